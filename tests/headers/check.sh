#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/headers/check.sh INCLUDE_DIR [JOBS]: every public header compiles alone, with both compilers; what a GPU may use
# compiles for one, where nvcc is at hand.
set -euo pipefail
include=$(realpath "$1")
device=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/device.cu
export include

check() {
    local header=$1 compiler source output
    # A source that includes the header twice: it must also stand being seen again.
    source="#include <$header>
#include <$header>"
    for compiler in g++ clang++-14; do
        if output=$("$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
            -I"$include" -x c++ - <<<"$source" 2>&1); then
            echo "PASS: $header alone with $compiler"
        else
            printf '%s\nFAIL: %s does not compile alone with %s\n' "$output" "$header" "$compiler"
        fi
    done
}
export -f check

cd "$include"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
find upcie -name '*.hpp' | sort | xargs -P "${2:-1}" -I{} bash -c 'check {}' | tee "$log"
if nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc); then
    if output=$("$nvcc" -std=c++20 -arch=sm_90 -I"$include" -c "$device" -o /dev/null 2>&1) && [[ -z $output ]]; then
        echo "PASS: queue_layout.hpp in device code with nvcc"
    else
        printf '%s\nFAIL: queue_layout.hpp does not compile as device code\n' "$output"
    fi
else
    echo "SKIP: queue_layout.hpp in device code: there is no nvcc on this machine"
fi | tee -a "$log"
! grep -q '^FAIL' "$log"
