#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs case files one after the other in one boot: cases.sh FILE...  Started by suite.sh through run.sh.
set -uo pipefail
# shellcheck source=guest/checks.sh
. "$UPCIE_VM_GUEST/checks.sh"
# shellcheck source=guest/devices.sh
. "$UPCIE_VM_GUEST/devices.sh"

# run_case FILE: in a subshell, so that no case inherits another's variables, traps or folder.
run_case() (
  cd / || exit 1
  # shellcheck disable=SC2034
  checks_passed=0 checks_failed=0 checks_skipped=0
  # shellcheck source=/dev/null
  . "$1"
)

# What the kernel complained of by itself; a case that provokes a complaint can empty the log with `dmesg --clear`.
kernel_is_content() { ! dmesg | grep -E 'BUG:|BUG [a-z]|WARNING:|Oops|KASAN|UBSAN|general protection|possible (circular|recursive) locking'; }

for file in "$@"; do
  echo "# ${file##*/}"
  add_checks < <(run_case "$file" || echo "FAIL ${file##*/}: ended with status $?")
  release_devices
  check "${file##*/}: no complaint in the kernel's log" kernel_is_content
done
finish_checks
