# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the library does with drive a on one path; the case says to whom the host's stamps belong. Sourced by the cases.
# Of a's 131072 blocks of 512 bytes, 16384 to 20479 are stamped by the host and never written; 32768 to 40959 are scratch.

export UPCIE_VM_CHECK_TIMEOUT=200
drive_check=$UPCIE_BUILD/tests/vm/drive_check
upcie=$UPCIE_BUILD/tools/upcie
host_stamps=4711:16384:4096 # 2 MiB

# run_conformance PATH BDF SEED:FIRST:COUNT: the suite, with stamps left for the host. Nothing may be skipped, except
# interrupts on uio, which has none.
run_conformance() {
  local output allowed=none
  [ "$1" != uio ] || allowed=Queues.InterruptsWake
  output=$(UPCIE_TEST_DEVICE=$2 UPCIE_TEST_PATH=$1 UPCIE_TEST_SCRATCH=32768:8192 UPCIE_TEST_WITNESS_READ=$host_stamps \
    UPCIE_TEST_WITNESS_WRITE=$3 timeout 200 "$UPCIE_BUILD/tests/conformance/conformance" 2>&1) || {
    grep -v -e '^\[ RUN' -e '^\[       OK' <<< "$output" | tail -n 40
    return 1
  }
  ! grep '^\[  SKIPPED \] .*ms)' <<< "$output" | grep -v "$allowed " && grep -q '^\[  PASSED  \]' <<< "$output"
}

# finds_stale PATH BDF: stamps of pass 1 where those of pass 2 should be. Status 3, and no other.
finds_stale() {
  local status=0
  "$upcie" verify "$2" --path "$1" --read-only --seed 4711 --pass 2 --lba 16384 --blocks 64 || status=$?
  [ $status -eq 3 ]
}

# run_drive PATH BDF KILLS FIRST: reads of the host's stamps and writes for it from block FIRST on: 1024 with seed 101, 4096 with
# seed 104, 300 with seed 100 (conformance), and after a gap at FIRST + 5632 1024 with seed 102 (upcie verify), then KILLS
# killed owners.
run_drive() {
  check "$1: a queue, a transfer of 2 MiB" "$drive_check" transfer "$2" "$1" 1 "$host_stamps" "101:$4:1024" 1
  check "$1: four queues" "$drive_check" transfer "$2" "$1" 1 "$host_stamps" "104:$(($4 + 1024)):4096" 4
  check "$1: the conformance suite" run_conformance "$1" "$2" "100:$(($4 + 5120)):300"
  check "$1: upcie verify finds the host's stamps" "$upcie" verify "$2" --path "$1" --read-only --seed 4711 --lba 16384 --blocks 4096
  check "$1: upcie verify finds them stale where they are" finds_stale "$1" "$2"
  check "$1: upcie verify writes" "$upcie" verify "$2" --path "$1" --destructive --seed 102 --lba $(($4 + 5632)) --blocks 1024
  check "$1: killed $3 times, taken over each time" "$drive_check" kill "$2" "$1" 1 "$host_stamps" "$3"
}
