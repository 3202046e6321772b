# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the levels of tests/run.sh share: counting, building, and saying what happened. Sourced, never run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${JOBS:-$(nproc)}
results=$top/build-results
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$top} CCACHE_NOHASHDIR=1

# What needs a download is kept outside the tree, so that a clean clone finds it again.
cache=${UPCIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/upcie}

say() { printf '%s\n' "$*"; }

setup() { "$top/tools/setup.sh" "$@"; }

# count PASSED FAILED SKIPPED: adds to the present step's figures.
count() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$step_counts"; }

# skip N WHY: N tests did not run, and the reader learns why.
skip() {
    say "SKIP: $2"
    count 0 0 "$1"
}

# one NAME COMMAND...: a check that counts as a single test.
one() {
    local name=$1
    shift
    if "$@"; then
        say "PASS: $name"
        count 1 0 0
    else
        say "FAIL: $name"
        count 0 1 0
    fi
}

# step NAME FUNCTION ARGS...: runs one step of a level and adds its figures and its time to the summary. A step that
# breaks off, or that ran nothing at all, counts as a failure.
step() {
    local name=$1 rc begin=$SECONDS passed failed skipped
    shift
    mkdir -p "$results"
    step_counts=$(mktemp "$results/counts.XXXXXX")
    say "== $name"
    # Its status is looked at afterwards: a command that is tested has no `set -e` inside.
    (
        set -euo pipefail
        "$@"
    ) 2>&1 | tee "$results/step-$name.log"
    rc=${PIPESTATUS[0]}
    read -r passed failed skipped < <(awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}' "$step_counts")
    rm -f "$step_counts"
    if [[ $rc -ne 0 && $failed -eq 0 ]]; then
        say "FAIL: $name broke off (exit status $rc)" | tee -a "$results/step-$name.log"
        failed=1
    elif [[ $((passed + failed + skipped)) -eq 0 ]]; then
        say "FAIL: $name ran no test" | tee -a "$results/step-$name.log"
        failed=1
    fi
    if [[ $skipped -gt 0 && " ${UPCIE_MUST_RUN:-} " == *" ${name%% *} "* ]]; then
        say "FAIL: $name skipped $skipped, and here nothing of it may be skipped" | tee -a "$results/step-$name.log"
        failed=$((failed + skipped))
        skipped=0
    fi
    printf '%s\t%s\t%s\t%s\t%s\n' "$passed" "$failed" "$skipped" $((SECONDS - begin)) "$name" >>"$summary"
    say "-- $name: $passed passed, $failed failed, $skipped skipped ($((SECONDS - begin)) s)"
}

# What failed once more, since the reader of a long log begins at its end; then the table of steps and the closing line.
# The status says whether anything failed.
finish() {
    local passed failed skipped name
    say ""
    while IFS=$'\t' read -r _ failed _ _ name; do
        [[ $failed -gt 0 ]] || continue
        say "== what failed in $name (all of it: $results/step-$name.log)"
        grep -A 25 -E '^ *FAIL' "$results/step-$name.log" | grep -vE '^ *(PASS|SKIP)' | head -60
        say ""
    done <"$summary"
    awk -F'\t' '{printf "%6d passed %4d failed %4d skipped %6d s  %s\n", $1, $2, $3, $4, $5}' "$summary"
    read -r passed failed skipped < <(awk -F'\t' '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}' "$summary")
    say ""
    say "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 && $passed -gt 0 ]]
}

# configure DIR ARGS...: sets up a build folder, or changes its options where they differ from last time.
configure() {
    local dir=$top/$1 wanted
    shift
    [[ -z ${WERROR:-} ]] || set -- "$@" -Dwerror=true
    wanted="${CXX:-default} $*"
    if [[ ! -f $dir/build.ninja ]]; then
        rm -rf "$dir"
        meson setup "$dir" "$top" "$@" >"$dir.setup.log" 2>&1 || {
            cat "$dir.setup.log"
            return 1
        }
        mv "$dir.setup.log" "$dir/setup.log"
    elif [[ $(cat "$dir/options" 2>/dev/null) != "$wanted" ]]; then
        meson setup --reconfigure "$dir" "$top" "$@" >"$dir/setup.log" 2>&1 || {
            cat "$dir/setup.log"
            return 1
        }
    fi
    printf '%s' "$wanted" >"$dir/options"
}

# What build/ is: not optimised and without debug information, since compiling is what costs time on two cores. What is
# measured has a folder of its own (tests/levels/bench.sh). All is said, since tools/demo.sh may have made the folder.
configure_native() {
    configure build "${native_options[@]}"
}

# GNU ld takes five times as long over a hundred programs. What users link and what is measured is linked as ever.
quick_links=(-Dcpp_link_args=-fuse-ld=lld)
native_options=("${quick_links[@]}" -Doptimization=0 -Ddebug=false -Dunity=off -Dtests=true -Dbenchmarks=true)

# For folders where everything is compiled anyway: several files at a time, in a third of the time. That each file stands
# by itself, build/ shows. Files that share a compilation shadow each other's names: such a folder adds -Wno-shadow.
unity=(-Dunity=on -Dunity_size=6)

# compile DIR TARGET...: quiet when all goes well.
compile() {
    local dir=$top/$1
    shift
    if ! ninja -C "$dir" -j "$jobs" "$@" >"$dir/build.log" 2>&1; then
        grep -vE '^\[[0-9]+/[0-9]+\] ' "$dir/build.log" | head -200
        say "FAIL: the build in $dir failed; all of it is in $dir/build.log"
        return 1
    fi
    # A warning that is no error yet is still worth a reader's eye.
    grep -E 'warning:' "$dir/build.log" | sort -u | head -20 || true
}

# test_programs DIR SUITE...: the ninja targets of the test programs of these suites.
test_programs() {
    local dir=$top/$1
    shift
    python3 "$top/tests/run_programs.py" --build "$dir" --list "$@"
}

# run_programs DIR SUITE... [-- OPTION...]: runs the test programs and counts what they report.
run_programs() {
    local dir=$top/$1 suites=() totals
    shift
    while [[ $# -gt 0 && $1 != -- ]]; do
        suites+=("$1")
        shift
    done
    [[ $# -eq 0 ]] || shift
    totals=$(mktemp "$results/totals.XXXXXX")
    python3 "$top/tests/run_programs.py" --build "$dir" --jobs "$jobs" --totals "$totals" "$@" "${suites[@]}" || true
    local passed=0 failed=1 skipped=0
    read -r passed failed skipped <"$totals" || true
    rm -f "$totals"
    count "$passed" "$failed" "$skipped"
}
