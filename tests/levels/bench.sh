# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# bench: instructions an I/O. Counted, not timed, so that a busy machine says the same.

level_bench() {
    if [[ ! -x $top/tests/bench/instructions.sh ]]; then
        say "FAIL: tests/bench/instructions.sh is missing"
        return 1
    fi
    setup build bench
    # -O2 as a distribution builds it: no -march, no link-time optimisation, asserts of the library's own left alone.
    configure build-bench --buildtype=plain -Doptimization=2 -Ddebug=true -Ddefault_library=static -Dtests=true \
        -Dbenchmarks=true
    compile build-bench tests/bench/bench_io
    "$top/tests/bench/instructions.sh" "$top/build-bench" | tee "$results/bench.log"
    # A line `<case> <value> <unit>` is a measurement; PASS and FAIL lines say how it stands to the figure that CI holds.
    count "$(grep -c '^PASS' "$results/bench.log" || true)" "$(grep -c '^FAIL' "$results/bench.log" || true)" 0
}
