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

# What asks real hardware: packed for a machine that has it, and run where this one does.
level_device() {
    setup build tests
    configure_native
    compile build
    local folder=$top/build/device log=$top/build/device.log size
    size=$("$top/tests/device/pack.sh" "$top/build" "$folder")
    if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [[ ! -e /dev/kfd ]]; then
        skip 2 "no GPU here: neither /dev/nvidia0 nor /dev/kfd exists. All that is needed is in $folder ($size): copy it to a machine with \
a GPU and run run.sh there"
        return 0
    fi
    "$folder/run.sh" "$folder/out" 2>&1 | tee "$log" || true
    local passed=0 failed=1 skipped=0
    read -r passed failed skipped < <(
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" | tail -1
    ) || true
    count "$passed" "$failed" "$skipped"
}
