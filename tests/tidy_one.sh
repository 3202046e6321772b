#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/tidy_one.sh BUILD SOURCE: clang-tidy over one source, its findings printed in one piece.
output=$(clang-tidy-14 -p "$1" --quiet --warnings-as-errors='*' "$2" 2>/dev/null)
status=$?
if [[ $status -ne 0 || -n $output ]]; then
    printf '%s\nFAIL: tidy %s\n' "$output" "$2"
else
    echo "PASS: tidy $2"
fi
