# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# vm, device: a real kernel, in QEMU or on this machine.

level_vm() {
    if [[ ! -x $top/tests/vm/suite.sh ]]; then
        say "FAIL: tests/vm/suite.sh is missing"
        return 1
    fi
    setup build tests vm
    configure_native
    compile build
    local out=$top/build/vm
    mkdir -p "$out"
    "$top/tests/vm/suite.sh" "$top/build" "$out" 2>&1 | tee "$out/suite.log" || true
    local passed=0 failed=1 skipped=0
    read -r passed failed skipped < <(
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$out/suite.log" | tail -1
    ) || true
    count "$passed" "$failed" "$skipped"
    one "the project's declarations of kernel interfaces are those of the VM's kernel headers" \
        "$top/tests/uapi/check.sh" "$("$top/tests/vm/prepare.sh" --uapi)"
    say "reports and logs: $out"
}

# Programs of the meson suite `device` ask real hardware. Without any the level says so.
level_device() {
    local programs
    setup build tests
    configure_native
    programs=$(test_programs build device)
    if [[ -z $programs ]]; then
        skip 1 "no test program asks a device of this machine yet: GPUs come with their own issue"
        return 0
    fi
    if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [[ ! -e /dev/kfd ]]; then
        skip "$(wc -l <<<"$programs")" "no GPU here: neither /dev/nvidia0 nor /dev/kfd exists"
        return 0
    fi
    # shellcheck disable=SC2086 # one target a word
    compile build $programs
    run_programs build device
}
