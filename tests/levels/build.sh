# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# native, headers, clang: the tree as people build it.

level_native() {
    setup build tests hip
    configure_native
    compile build
    run_programs build unit conformance cli
}

# A second compiler sees other mistakes; the sanitizers use clang too, but leave out the tools.
level_clang() {
    setup build tests clang
    CXX="ccache clang++-14" configure build-clang "${quick_links[@]}" -Doptimization=1 -Ddebug=false
    compile build-clang
    run_programs build-clang unit conformance
}

# Public headers alone, and what must not compile.
level_headers() {
    setup build clang
    {
        "$top/tests/headers/check.sh" "$top/include" "$jobs" || true
        "$top/tests/compile_fail/check.sh" "$top/include" "$jobs" || true
    } >"$results/headers.log" 2>&1
    grep -v '^PASS' "$results/headers.log" || true
    count "$(grep -c '^PASS' "$results/headers.log" || true)" "$(grep -c '^FAIL' "$results/headers.log" || true)" \
        "$(grep -c '^SKIP' "$results/headers.log" || true)"
}

# Every test that tests/README.md names for a pitfall is a test of a built program, and every mutant there exists.
level_names() {
    setup build tests
    configure_native
    compile build $(test_programs build unit conformance)
    one "the tests and mutants named in tests/README.md exist" \
        python3 "$top/tests/mutants/check_table.py" --build "$top/build"
}
