#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/device/pack.sh BUILD FOLDER: all that the device level needs, for a machine with a GPU that has no compiler, and no
# package of this project. There: FOLDER/run.sh [OUT]
set -euo pipefail
build=$(realpath "$1")
folder=$2
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
programs=("$build"/tests/gpu/{cuda,hip}_suite "$build/docs/examples/load_to_gpu")
for program in "$build"/tools/upcie "$build"/tools/upcie_*; do
    if [[ -f $program && -x $program ]]; then programs+=("$program"); fi
done
cp "${programs[@]}" "$folder/bin/"
strip "$folder"/bin/*
# What Debian has and others may not; the C++ runtime is everywhere that a GPU's runtime is.
for library in $(ldd "$folder"/bin/* | awk '/libfmt|liblzma|libz\./ {print $3}' | sort -u); do
    cp -L "$library" "$folder/lib/"
done
cp "$here/run.sh" "$folder/"
du -sh "$folder" | cut -f1
