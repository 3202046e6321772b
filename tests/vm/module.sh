#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds one of the project's own kernel modules for the VM's kernel and prints where the .ko is:
#   module.sh [--kasan] DIR                     --kasan: for the kernel that run.sh --kasan boots
# DIR is left as it is. What was built is kept in the cache, under a name made from the sources and the kernel.
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"

prepare_options=(--dir)
if [ "${1-}" = --kasan ]; then prepare_options+=(--kasan); shift; fi
[ -e "${1-}/Kbuild" ] || die "usage: module.sh [--kasan] DIR, which holds a Kbuild"
source=$(realpath "$1")
prepared=$("$vm_dir/prepare.sh" "${prepare_options[@]}")
sources=("$source"/*.[ch] "$source/Kbuild")
key=$(cat "${sources[@]}" "$prepared/version" <(realpath "$prepared") "$vm_dir/kbuild.sh" | sha256sum | cut -c1-12)
ready=$vm_cache/modules/$(basename "$source")-$key

if [ ! -d "$ready" ]; then
  mkdir -p "$vm_cache/modules"
  exec {lock}> "$vm_cache/modules/lock"
  flock "$lock"
fi
if [ ! -d "$ready" ]; then # one that waited finds the work done
  find "$vm_cache/modules" -maxdepth 1 -name 'scratch.*' -mmin +60 -exec rm -rf {} + # of killed runs
  scratch=$(mktemp -d "$vm_cache/modules/scratch.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cp "${sources[@]}" "$scratch/"
  say "building $(basename "$source")"
  # Warnings are errors: the kernel's own build has none.
  "$vm_dir/kbuild.sh" --headers "$prepared/headers" "$scratch" -j1 W=1 KCFLAGS=-Werror > "$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "$source does not build"; }
  mkdir "$scratch/result"
  mv "$scratch"/*.ko "$scratch/result/"
  mv -T "$scratch/result" "$ready"
  # The newest five are kept.
  find "$vm_cache/modules" -maxdepth 1 -name "$(basename "$source")-*" -printf '%T@ %p\n' | sort -rn | tail -n +6 | cut -d' ' -f2 |
    xargs -r rm -rf
fi
echo "$ready"/*.ko
