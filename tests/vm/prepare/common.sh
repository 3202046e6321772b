# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# Shared by the VM scripts: messages, the cache's place, and the packages that a tool comes from.

vm_cache=${UPCIE_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/upcie/vm}

# Progress goes to stderr: stdout belongs to answers (`prepare.sh --uapi`) and to the guest command's own output.
say() { printf 'vm: %s\n' "$*" >&2; }
die() { printf 'vm: error: %s\n' "$*" >&2; exit 2; }

# need TOOL=PACKAGE... : installs what is missing. A fresh Debian 12 (CI) has none of these.
need() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" > /dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" = 0 ] || die "missing tools; as root: apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  # An image without package lists is usual in containers; refresh them only if the first try fails.
  local install=(apt-get install -y -qq --no-install-recommends "${missing[@]}")
  DEBIAN_FRONTEND=noninteractive "${install[@]}" > /dev/null 2>&1 && return
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive "${install[@]}" > /dev/null || die "could not install ${missing[*]}"
}
