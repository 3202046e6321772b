#!/usr/bin/env bash
# Instructions per I/O by callgrind: instructions.sh BENCH_IO [CASE...] prints "<case> <value> Ir/io" a line.
# A run of 2N less a run of N, divided by N: set-up and start-up fall out. Deterministic for one binary.
set -euo pipefail
bench=$1
shift
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(read-4k-qd1 read-4k-qd32 read-128k-qd1 read-128k-qd32)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

instructions() { # CASE COUNT
    if ! valgrind --tool=callgrind --callgrind-out-file="$work/out" "$bench" "$1" "$2" >"$work/log" 2>&1; then
        cat "$work/log" >&2
        exit 1
    fi
    awk '/^summary:/ { print $2; exit } /^totals:/ { print $2; exit }' "$work/out"
}

for name in "${cases[@]}"; do
    n=8000
    one=$(instructions "$name" $n)
    two=$(instructions "$name" $((2 * n)))
    awk -v c="$name" -v a="$one" -v b="$two" -v n=$n 'BEGIN { printf "%s %.1f Ir/io\n", c, (b - a) / n }'
done
