#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/compile_fail/check.sh INCLUDE_DIR [JOBS]: what must not compile does not, and the message says why.
set -euo pipefail
include=$(realpath "$1")
source=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/flavour.cpp
export include source

# check COMPILER CHANGE: CHANGE is WITHHOLD_name, CHANGE_name, or none.
check() {
    local compiler=$1 change=$2 output name=${2#*_}
    output=$("$compiler" -std=c++20 -fsyntax-only -I"$include" -D"$change" "$source" 2>&1) && {
        if [[ $change == none ]]; then echo "PASS: a whole flavour compiles with $compiler"; else
            echo "FAIL: $change: a flavour without it compiles with $compiler"; fi
        return
    }
    # The first error is what people read.
    if [[ $change != none ]] && grep -m1 'error:' <<<"$output" | grep -q "the flavour lacks $name("; then
        echo "PASS: $change is named by $compiler"
    else
        printf '%s\nFAIL: %s with %s: the message does not name it\n' "$output" "$change" "$compiler"
    fi
}
export -f check

log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
    echo none
    grep -o 'WITHHOLD_[a-z_]*\|CHANGE_[a-z_]*' "$source" | sort -u
} | while read -r change; do printf 'g++ %s\nclang++-14 %s\n' "$change" "$change"; done |
    xargs -P "${2:-1}" -L1 bash -c 'check "$0" "$1"' | tee "$log"
! grep -q '^FAIL' "$log"
