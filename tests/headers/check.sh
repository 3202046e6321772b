#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/headers/check.sh INCLUDE_DIR [JOBS]: every public header compiles alone, with both compilers.
set -euo pipefail
include=$1
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
! grep -q '^FAIL' "$log"
