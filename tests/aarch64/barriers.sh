#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/aarch64/barriers.sh: the order of accesses that an Arm machine needs and that no run under emulation would miss.
# Looks at what the compiler makes of the doorbell and of the look at a completion.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
compiler=${AARCH64_CXX:-aarch64-linux-gnu-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/probe.cpp" <<'EOF'
#include <upcie/nvme/queue_pair.hpp>
using upcie::nvme::QueueLayout;
extern "C" void ring_it(QueueLayout& queue, std::uint64_t value) {
    queue.submission[0].prp1 = value;
    queue.ring_submission();
}
extern "C" std::uint32_t look_at_it(const QueueLayout& queue) {
    std::uint32_t dword3 = 0;
    return queue.peek_completion(dword3) ? queue.upcoming->result_low : 0;
}
extern "C" std::size_t poll_it(upcie::nvme::QueuePair& queue, std::span<upcie::nvme::Completion> out) {
    return queue.poll(out);
}
EOF
# The host's folder comes last: only header-only libraries are found there that the cross compiler has none of.
"$compiler" -std=c++20 -O2 -fno-stack-protector -S -I"$top/include" -idirafter /usr/include "$work/probe.cpp" -o "$work/probe.s"

body() { sed -n "/^$1[^:]*:/,/\.size/p" "$work/probe.s" | grep -E '^\s+[a-z]' | sed 's/^\s*//'; }
failed=0
# expect NAME FUNCTION PATTERN...: the patterns come in this order among the function's instructions.
expect() {
    local name=$1 function=$2 line
    shift 2
    while [[ $# -gt 0 ]] && read -r line; do
        if [[ $line =~ $1 ]]; then shift; fi
    done < <(body "$function")
    if [[ $# -eq 0 ]]; then
        echo "PASS: $name"
    else
        body "$function"
        echo "FAIL: $name: no '$1' where it belongs"
        failed=1
    fi
}

gap=$'[ \t]+'
# The entry is stored, all stores are pushed before the doorbell's, and the doorbell is one 32-bit store.
expect "the submission doorbell is rung after the entry is visible to the device" ring_it \
    "^str${gap}x" "^dmb${gap}oshst" "^stlr${gap}w"
# The phase is read with acquire, and a load barrier for the device's writes comes before the entry's body is read.
expect "a completion's body is read after its phase bit" look_at_it "^ldar${gap}w" "^dmb${gap}oshld" "^ldr${gap}w"
expect "poll() reads a completion's body after its phase bit" _ZN5upcie4nvme9QueuePair4poll "^ldar${gap}w" "^dmb${gap}oshld" "^ldr${gap}x"
exit $failed
