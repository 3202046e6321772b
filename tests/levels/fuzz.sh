# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# fuzz: clang's libFuzzer over everything that reads bytes it was given by somebody else.

level_fuzz() {
    setup build tests clang
    configure_sanitized "${asan_build[@]}"
    local programs log=$results/fuzz.log
    programs=$(test_programs build-asan fuzz)
    if [[ -z $programs ]]; then
        say "FAIL: no fuzzer is built"
        return 1
    fi
    # shellcheck disable=SC2086 # one target a word
    compile build-asan $programs
    export ASAN_OPTIONS=allocator_may_return_null=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-14
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export top cache
    # A fuzzer has one thread: as many at a time as there are processors.
    printf '%s\n' $programs | xargs -P "$jobs" -I{} bash -c "$(declare -f fuzz_one); fuzz_one {}" | tee "$log"
    count "$(grep -c '^PASS' "$log" || true)" "$(grep -c '^FAIL' "$log" || true)" 0
}

# fuzz_one PROGRAM: FUZZ_SECONDS of those that turn pointers into addresses, a third of that of the others. New inputs stay in the cache; the tree's own corpus, if any, seeds them.
fuzz_one() {
    local name seconds=${FUZZ_SECONDS:-60} corpus log crash seeds=()
    name=$(basename "$1")
    case $name in
        fuzz_prp | fuzz_registry | fuzz_scatter_list) ;;
        *) seconds=$((seconds / 3)) ;;
    esac
    corpus=$cache/fuzz/$name
    crash=$top/build-asan/$name-
    log=$top/build-asan/$name.log
    mkdir -p "$corpus"
    [[ ! -d $top/tests/fuzz/corpus/$name ]] || seeds=("$top/tests/fuzz/corpus/$name")
    if "$top/build-asan/$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$crash" -print_final_stats=1 "$corpus" "${seeds[@]}" >"$log" 2>&1; then
        echo "PASS: $name, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
    else
        tail -40 "$log"
        echo "FAIL: $name; the input is $(find "$top/build-asan" -maxdepth 1 -name "$name-*" -newer "$top/build-asan/$1" | head -1)"
    fi
}
