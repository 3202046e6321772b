#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Shows the main job on a simulated NVMe drive, in under five minutes on a fresh Debian 12: installs what is missing,
# builds the library and the command line into build/, and runs it. Needs no drive, no IOMMU and, once the packages are
# there, no rights.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
begin=$SECONDS

note() { printf '\n\033[1m%s\033[0m\n' "$*"; }
explain() { printf '   %s\n' "$@"; }
# show EXPECTED_STATUS COMMAND...: prints the command, runs it, and breaks off when it ends otherwise than it should.
show() {
    local expected=$1 status=0
    shift
    printf '\n$ %s\n' "$*"
    "$@" || status=$?
    if [[ $status -ne $expected ]]; then
        echo "demo: the command ended with status $status, and $expected is right" >&2
        exit 1
    fi
    printf '(exit status %s)\n' "$status"
}

note "1. What is needed, and the build"
tools/setup.sh build
if [[ ! -f build/build.ninja ]]; then
    # Quick to build: without tests and benchmarks, whose libraries then need not be there, several files at a time.
    # tests/run.sh sets the same folder up for itself.
    meson setup build -Doptimization=1 -Ddebug=false -Dunity=on -Dunity_size=6 -Dtests=false -Dbenchmarks=false \
        >/dev/null
fi
ninja -C build tools/upcie | tail -1
explain "built in $((SECONDS - begin)) s"
PATH=$PWD/build/tools:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A drive that lives in a file, so that what one command wrote the next one finds: 64 MiB, blocks of 4096 bytes.
drive="sim:size=64M,lba=4096,file=$work/drive.img"

note "2. Identify: what the drive says about itself"
explain "The controller is reset and enabled, its admin queue set up, and Identify asked; nothing is simulated away:" \
    "the driver rings doorbells in a BAR and reads completions from a ring, as with a real drive."
show 0 upcie identify "$drive"

note "3. Write a file to the drive, read it back, compare"
head -c 1048576 /dev/urandom >"$work/in"
show 0 upcie write "$drive" --lba 100 --input "$work/in"
show 0 upcie read "$drive" --lba 100 --blocks 256 --output "$work/out"
cmp "$work/in" "$work/out"
# The drive's file is read by a program that knows nothing of NVMe: a witness of its own.
cmp "$work/in" <(dd if="$work/drive.img" bs=4096 skip=100 count=256 status=none)
explain "The file read back is the file written, and the drive's own image agrees (compared with dd and cmp)."

note "4. Verify: every block is stamped with its place, pass and seed, then read and judged"
show 0 upcie verify "$drive" --blocks 4096 --depth 32

note "5. The same on a drive that misbehaves"
explain "One write goes to the block after the one it was meant for, and is reported as a success. The status tells" \
    "nothing; the stamps do: verify names the blocks, and ends with status 3 for bad data."
show 3 upcie verify "sim:size=64M,lba=4096,faults=misplaced:1@op=write&nth=7" --blocks 1024 --size 4K
explain "" "A drive that reports an unrecovered read error (status type 2, code 0x81): status 1, and the block is named."
show 1 upcie read "sim:size=64M,lba=4096,faults=error:2:0x81@op=read&lba=100" --lba 96 --blocks 8 --output "$work/bad"

note "6. The same with the blocks in a GPU's memory"
explain "There is no GPU here, so it is a stub whose exports behave as ROCm's were measured to: every one describes the" \
    "whole buffer, whatever was asked. The GPU checks what arrives. --into cuda:0 takes a real one."
show 0 upcie verify sim:size=16M,lba=4096,scatter=1 --into stub:whole-object --blocks 1024

note "7. A probe: what is missing on this machine for a real drive?"
explain "doctor asks one question for every precondition and gives the fix beside each that is not met."
show_doctor() {
    local status=0
    printf '\n$ upcie doctor\n'
    upcie doctor || status=$?
    printf '(exit status %s)\n' "$status"
    # 0: a path is open; 4: none is, which is an answer too.
    [[ $status -eq 0 || $status -eq 4 ]]
}
show_doctor

note "Done in $((SECONDS - begin)) s"
explain "Next: docs/getting-started.md for a real drive, tests/run.sh unit for the tests."
