#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the project's tests, from a clean clone on a fresh Debian 12 too: each level installs what it needs.
#
#   tests/run.sh LEVEL...
#
#   unit      unit tests and the conformance suite on the simulator (build/), public headers alone, the installed
#             library, then the unit tests under ASan+UBSan and TSan
#   vm        the library and the probes on a real kernel under QEMU
#   device    what needs hardware of this machine; skipped without it
#   fuzz      PRPs and SGLs, registry and scatter lists for FUZZ_SECONDS seconds (60) each, the others for a third
#   bench     instructions an I/O, counted by callgrind
#   mutants   each guarded check taken out: its test must fail
#   all       all of these, and lint and aarch64
#   one step alone: native headers install asan tsan clang aarch64 format tidy scripts names lint
#
# Environment: JOBS (processors to use), WERROR=1 (warnings are errors), UPCIE_CACHE (downloads),
# UPCIE_MUST_RUN="LEVEL..." (a skipped test of these is a failure).
# Every step ends with a line of figures; the last line is `N passed, N failed, N skipped`, and the exit status is 0
# when nothing failed, 1 when something did, 2 for a wrong command line.
set -uo pipefail

# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top" || exit 1
for part in build sanitizers lint install aarch64 bench fuzz mutants kernel; do
    # shellcheck source=/dev/null
    source "$top/tests/levels/$part.sh"
done

usage() { sed -n '/^# *tests\/run.sh/,/^# when nothing/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

run_level() {
    case $1 in
        native) step native level_native ;;
        headers) step headers level_headers ;;
        install) step install level_install ;;
        asan) step asan level_asan ;;
        tsan) step tsan level_tsan ;;
        clang) step clang level_clang ;;
        aarch64) step aarch64 level_aarch64 ;;
        format) step format level_format ;;
        scripts) step scripts level_scripts ;;
        names) step names level_names ;;
        tidy) step tidy level_tidy ;;
        fuzz) step fuzz level_fuzz ;;
        bench) step bench level_bench ;;
        mutants) step mutants level_mutants ;;
        vm) step vm level_vm ;;
        device) step device level_device ;;
        lint) for part in format scripts tidy; do run_level $part; done ;;
        unit) for part in native names headers install asan tsan; do run_level $part; done ;;
        all) for part in lint unit bench mutants vm aarch64 fuzz device; do run_level $part; done ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
}

case ${1:-} in
    '')
        usage >&2
        exit 2
        ;;
    -h | --help)
        usage
        exit 0
        ;;
esac
mkdir -p "$results"
summary=$(mktemp "$results/summary.XXXXXX")
trap 'rm -f "$summary"' EXIT
for level in "$@"; do
    run_level "$level"
done
finish
