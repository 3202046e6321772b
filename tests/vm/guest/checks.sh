# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# One line a test, PASS, FAIL or SKIP, and a count at the end; many in one boot. Source it:  . "$UPCIE_VM_GUEST/checks.sh"
#
#   check NAME COMMAND...     PASS if the command succeeds, SKIP if it says 77 (its last line is the reason), else FAIL with
#                             its output. The command may be a shell function.
#   check_output NAME WANTED COMMAND...   PASS if the command prints exactly WANTED
#   skip NAME REASON, fail NAME REASON
#   finish_checks             prints "N passed, N failed, N skipped"; fails if a test did, or if none ran
#   add_checks < OUTPUT       passes the output of another boot on and counts its lines
#
# UPCIE_VM_CHECK_TIMEOUT (60) seconds are allowed for a command that is a program.

checks_passed=0 checks_failed=0 checks_skipped=0

check() {
  local name=$1 output status=0
  shift
  if [ "$(type -t "$1")" = file ]; then set -- timeout -k 5 "${UPCIE_VM_CHECK_TIMEOUT:-60}" "$@"; fi
  output=$("$@" 2>&1) || status=$?
  case $status in
    0) echo "PASS $name"; checks_passed=$((checks_passed + 1)) ;;
    77) skip "$name" "${output##*$'\n'}" ;;
    *)
      fail "$name" "status $status"
      [ -z "$output" ] || printf '%s\n' "$output" | head -n 50 | sed 's/^/  | /'
      ;;
  esac
}

check_output() {
  local name=$1 wanted=$2 got
  shift 2
  got=$("$@" 2>&1) || true
  if [ "$got" = "$wanted" ]; then check "$name" true; else fail "$name" "got '$got', wanted '$wanted'"; fi
}

fail() {
  echo "FAIL $1: $2"
  checks_failed=$((checks_failed + 1))
}

skip() {
  echo "SKIP $1: $2"
  checks_skipped=$((checks_skipped + 1))
}

add_checks() {
  local line
  while IFS= read -r line; do
    case $line in
      'PASS '*) checks_passed=$((checks_passed + 1)) ;;
      'FAIL '*) checks_failed=$((checks_failed + 1)) ;;
      'SKIP '*) checks_skipped=$((checks_skipped + 1)) ;;
      [0-9]*' passed, '*) continue ;;                 # a boot's own count; the sum is printed once
    esac
    printf '%s\n' "$line"
  done
}

finish_checks() {
  echo "$checks_passed passed, $checks_failed failed, $checks_skipped skipped"
  [ $checks_failed -eq 0 ] && [ $checks_passed -gt 0 ]
}
