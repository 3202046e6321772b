# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# asan, tsan: the unit tests, built by clang, which compiles them in half of GCC's time, and not optimised, which saves a
# third again.

# configure_sanitized DIR SANITIZERS FLAGS OPTION...
configure_sanitized() {
    local dir=$1 sanitizers=$2 flags=$3
    shift 3
    CXX="ccache clang++-14" configure "$dir" -Db_sanitize="$sanitizers" -Db_lundef=false -Ddefault_library=static \
        "${unity[@]}" "${quick_links[@]}" -Doptimization=0 -Ddebug=false -Dbenchmarks=false -Dcpp_args="-gline-tables-only -Wno-shadow $flags" "$@"
}

# The fuzzers come out of the same build, so it has their instrumentation too.
asan_build=(build-asan "address,undefined" "-fno-sanitize-recover=undefined -fsanitize=fuzzer-no-link" -Dfuzzers=true)

# All there is, and not the test programs alone: the second compiler is to see the tools and the fuzzers too.
level_asan() {
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
    setup build tests clang
    configure_sanitized "${asan_build[@]}"
    compile build-asan
    run_programs build-asan unit conformance -- --patience 4
}

level_tsan() {
    local programs
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:external_symbolizer_path=/usr/bin/llvm-symbolizer-14
    setup build tests clang
    configure_sanitized build-tsan thread ""
    programs=$(test_programs build-tsan unit conformance)
    # shellcheck disable=SC2086 # one target a word
    compile build-tsan $programs
    run_programs build-tsan unit conformance -- --patience 4
}
