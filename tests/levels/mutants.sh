# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# mutants: a test that passes with the check taken out proves nothing.

level_mutants() {
    setup build tests clang aarch64
    python3 "$top/tests/mutants/run.py" --jobs "$jobs" --work "$top/build-mutants" | tee "$results/mutants.log" || true
    local passed=0 failed=1
    read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$results/mutants.log" |
        tail -1) || true
    count "$passed" "$failed" 0
}
