#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares this project's own declarations of kernel structures with real kernel headers, by compiling.
# usage: tests/uapi/check.sh INCLUDE_DIR   (the usr/include of a linux-libc-dev; `tests/vm/prepare.sh --uapi` prints one)
set -euo pipefail
if [ $# -ne 1 ] || [ ! -e "$1/linux/iommufd.h" ]; then
    echo "usage: $0 INCLUDE_DIR holding linux/iommufd.h of the kernel to compare with" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
# Debian keeps <asm/...> in a directory of its own beside usr/include (older packages: the multiarch directory).
arguments=(-isystem "$1")
for asm in "$1/../lib/linux/uapi/x86" "$1/x86_64-linux-gnu"; do
    [ -d "$asm" ] && arguments+=(-isystem "$asm")
done
for source in "$here"/check_*.cpp; do
    "${CXX:-c++}" -std=c++20 -fsyntax-only -I "$here/../../src" "${arguments[@]}" "$source"
    echo "agrees: $(basename "$source")"
done
