#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds an external kernel module for the VM's kernel:
#   kbuild.sh DIR [make arguments...]          DIR holds a Kbuild or Makefile with obj-m; the .ko files appear in it
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"

if [ "${1-}" = --headers ]; then headers=$2; shift 2; else headers=$("$vm_dir/prepare.sh" --dir)/headers; fi
[ -d "${1-}" ] || die "usage: kbuild.sh DIR [make arguments...]"
module_dir=$(realpath "$1"); shift
need make=make gcc=gcc

# Debian configured the kernel for gcc 14. An older gcc lacks one of its options; a filter replaces it.
compiler=gcc
if ! echo | gcc -fmin-function-alignment=16 -x c -c -o /dev/null - 2> /dev/null; then compiler=$vm_dir/prepare/older-gcc; fi

# The flavour's own Makefile names /usr/src; naming the two trees here lets the headers lie anywhere.
common=$(echo "$headers"/usr/src/linux-headers-*-common)
flavour=$(echo "$headers"/usr/src/linux-headers-*-amd64)
exec make -s -j"$(nproc)" -C "$common" O="$flavour" M="$module_dir" CC="$compiler" CROSS_COMPILE= \
  CONFIG_DEBUG_INFO_BTF_MODULES= "$@" modules
