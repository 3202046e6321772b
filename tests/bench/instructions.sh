#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Instructions by callgrind: instructions.sh FOLDER [CASE...] prints "<case> <value> <unit>" a line, for the programs in
# FOLDER. A run of 2N less a run of N, divided by N: set-up and start-up fall out. Where a control is named, what that
# takes is taken off. Deterministic for one binary.
set -euo pipefail
folder=$1
shift

# Case, program, N, unit, control.
table='
read-4k-qd1           bench_io        8000    Ir/io
read-4k-qd32          bench_io        8000    Ir/io
read-128k-qd1         bench_io        8000    Ir/io
read-128k-qd32        bench_io        8000    Ir/io
read-4k-device-qd32   bench_io        8000    Ir/io
read-128k-device-qd32 bench_io        8000    Ir/io
read-1m-64k-runs-qd32 bench_io        2048    Ir/io
resolve-handle        bench_translate 20000   Ir/op      draw-handle
resolve-pointer       bench_translate 20000   Ir/op      draw-pointer
register-64g          bench_translate 1048576 Ir/segment read-segments
'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

instructions() { # PROGRAM CASE COUNT
    if ! valgrind --tool=callgrind --callgrind-out-file="$work/out" "$folder/$1" "$2" "$3" >"$work/log" 2>&1; then
        cat "$work/log" >&2
        exit 1
    fi
    awk '/^summary:/ { print $2; exit } /^totals:/ { print $2; exit }' "$work/out"
}

each() { # PROGRAM CASE COUNT: instructions of one
    local one two
    one=$(instructions "$1" "$2" "$3")
    two=$(instructions "$1" "$2" $((2 * $3)))
    awk -v a="$one" -v b="$two" -v n="$3" 'BEGIN { printf "%.3f", (b - a) / n }'
}

while read -r name program n unit control; do
    [[ -n $name && ($# -eq 0 || " $* " == *" $name "*) ]] || continue
    cost=$(each "$program" "$name" "$n")
    spent=0
    [[ -z $control ]] || spent=$(each "$program" "$control" "$n")
    awk -v c="$name" -v a="$cost" -v b="$spent" -v u="$unit" 'BEGIN { printf "%s %.1f %s\n", c, a - b, u }'
done <<<"$table"
