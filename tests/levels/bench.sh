# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bench: instructions an I/O and a translation. Counted, not timed, so that a busy machine says the same.

level_bench() {
    setup build tests bench
    # As a distribution would build it: GCC, -O2, no -march, no link-time optimisation.
    configure build-bench -Doptimization=2 -Ddebug=false
    compile build-bench tests/bench/bench_io tests/bench/bench_translate
    {
        "$top/tests/bench/instructions.sh" "$top/build-bench/tests/bench"
        "$top/build-bench/tests/bench/bench_translate" --time
    } | tee "$results/bench.txt"
    # Every case is a test: one that CI holds must be within 2 %, any other must have been measured.
    awk '
        NR == FNR { if ($0 !~ /^#/ && NF == 2) held[$1] = $2; next }
        {
            measured[$1] = 1
            if (!($1 in held)) {
                print "PASS: " $1 " measured"
            } else if ($2 <= held[$1] * 1.02) {
                print "PASS: " $1 " holds " held[$1] ($2 < held[$1] * 0.98 ? ": it got better, lower tests/bench/held" : "")
            } else {
                print "FAIL: " $1 " takes " $2 " " $3 " and tests/bench/held has " held[$1]
            }
        }
        END { for (name in held) if (!(name in measured)) print "FAIL: " name " was not measured" }
    ' "$top/tests/bench/held" "$results/bench.txt" | tee "$results/bench.log"
    count "$(grep -c '^PASS' "$results/bench.log" || true)" "$(grep -c '^FAIL' "$results/bench.log" || true)" 0
}
