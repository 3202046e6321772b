# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# mutants: a test that passes with the check taken out proves nothing.

level_mutants() {
    setup build tests aarch64
    local options="${native_options[*]}"
    [[ -z ${WERROR:-} ]] || options+=" -Dwerror=true" # as build/ is, or ccache would not know it again
    python3 "$top/tests/mutants/run.py" --jobs "$jobs" --work "$top/build-mutants" --setup "$options" | tee "$results/mutants.log" || true
    local passed=0 failed=1
    read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$results/mutants.log" |
        tail -1) || true
    count "$passed" "$failed" 0
}
