#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The program as a user calls it: exit statuses, messages that name the cause, JSON that parses.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

bad_read='misplaced:1@op=read&lba=16..23&once'

expect 0 'namespace 1' identify sim:size=1M
expect 0 'GOOD' verify sim:size=1M --blocks 64
expect 3 'LBA 17 holds the block written for LBA 18' verify "sim:size=1M,faults=$bad_read" --blocks 64 --size 4K
expect 3 'no data arrived' verify 'sim:size=1M,faults=dropped@op=read&lba=8..15' --blocks 64 --size 4K
expect 3 'is stale' verify 'sim:size=1M,faults=dropped@op=write&lba=8&nth=2' --blocks 64 --size 512 --passes 2
expect 3 'differ, the first at byte 100' verify 'sim:size=1M,faults=corrupt:100@op=read&lba=8&once' --blocks 64 --size 512
expect 1 'read blocks 8 to 15' verify 'sim:size=1M,faults=error:2:0x81@op=read&lba=8..15' --blocks 64 --size 4K
expect 1 'ETIMEDOUT' verify 'sim:size=1M,faults=lost@op=read&nth=3' --blocks 64 --size 4K --timeout 0.3
expect 1 'CFS' verify 'sim:size=1M,faults=cfs@op=read&nth=3' --blocks 64 --size 4K
expect 1 'ENODEV' verify 'sim:size=1M,faults=gone@op=read&nth=3' --blocks 64 --size 4K
expect 1 'ETIMEDOUT' identify 'sim:size=1M,to=1,faults=never-ready'
expect 2 '--destructive' verify 0abc:12:13.4
expect 2 'subcommand' nonsense
expect 2 'has 2048 blocks' read sim:size=1M --lba 2048
expect 4 'ENODEV' identify 0abc:12:13.4
expect 2 'size' identify sim:size=wrong
expect 0 'IOPS' bench sim:size=1M --seconds 0.2
expect 0 'ready again' reset sim:size=1M
expect 0 'complete -F _upcie upcie' completion bash

expect_json 'd["result"]["counts"]["misplaced"] == 8' verify "sim:size=1M,faults=$bad_read" --blocks 64 --size 4K
expect_json 'd["error"]["name"] == "ENODEV" and d["error"]["hint"]' identify 0abc:12:13.4
expect_json 'd["result"]["controller"]["model"] and d["path"]["reason"]' identify sim:
expect_json 'd["result"]["iops"] > 0' bench sim:size=1M --seconds 0.2
expect_json 'all(c["status"] == "ok" or c["fix"] for c in d["result"]["checks"])' doctor
expect_json 'isinstance(d["result"]["functions"], list)' list --all

# What one process wrote, another checks; damage done between the two is found at its place.
disk="sim:size=1M,file=$work/disk"
expect 0 'GOOD' verify "$disk" --blocks 64 --seed 42
expect 0 'seed 0x2a (taken from LBA 0)' verify "$disk" --blocks 64 --read-only
printf 'x' | dd of="$work/disk" bs=1 seek=$((9 * 512 + 77)) conv=notrunc status=none
expect 3 'LBA 9 is corrupt: 1 of 512 bytes differ, the first at byte 77' verify "$disk" --blocks 64 --read-only

# A descriptor that the caller closed must not become a file of ours, for the text would go there.
for closed in '2>&-' '>&-' '<&- >&- 2>&-'; do
    for command in 'identify sim:size=1M' 'write sim:size=1M --pattern ones' 'verify sim:size=1M --blocks 64' 'read sim:size=1M --blocks 8'; do
        status=0
        timeout 20 bash -c "'$upcie' $command $closed" >"$work/out" 2>"$work/err" || status=$?
        [ "$status" -eq 0 ] || { echo "FAIL: upcie $command $closed ends with $status"; failed=1; }
    done
done
# Output that cannot be written is no success.
for command in 'identify sim:' 'identify sim: --json' 'list --all' '--help'; do
    status=0
    # shellcheck disable=SC2086
    "$upcie" $command >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || { echo "FAIL: upcie $command >/dev/full ends with $status"; failed=1; }
done

# The completion scripts are read without complaint by the shells that are here.
for shell in bash zsh fish; do
    if command -v "$shell" >/dev/null; then
        "$upcie" completion "$shell" >"$work/completion"
        "$shell" -n "$work/completion" || { echo "FAIL: $shell does not accept its completion script"; failed=1; }
    fi
done
completed=$(bash -c '. <("$1" completion bash); COMP_WORDS=(upcie ver); COMP_CWORD=1; COMP_LINE="upcie ver"; COMP_POINT=9
    _upcie; echo "${COMPREPLY[*]}"' bash "$upcie")
[ "$completed" = verify ] || { echo "FAIL: bash completes \"upcie ver\" to \"$completed\""; failed=1; }

[ "$failed" -eq 0 ] && echo 'all as expected'
exit "$failed"
