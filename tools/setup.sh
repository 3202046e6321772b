#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian packages that a part of the project needs, and does nothing when they are there.
#
#   tools/setup.sh GROUP...      groups: build tests hip clang lint aarch64 bench vm
set -euo pipefail

packages_of() {
    case $1 in
        build) echo g++ meson ninja-build pkg-config ccache python3 libfmt-dev libexpected-dev libcli11-dev zlib1g-dev \
            liblzma-dev nlohmann-json3-dev ;;
        tests) echo libgtest-dev libgmock-dev libbenchmark-dev binutils lld ;;
        # AMD's real runtime and its header, to be tested against: 18.5 MB to download, 83 MB on disk with what they need.
        hip) echo libamdhip64-5 libamdhip64-dev ;;
        clang) echo clang-14 libclang-rt-14-dev llvm-14 ;;
        lint) echo clang-format-14 clang-tidy-14 shellcheck ;;
        aarch64) echo g++-aarch64-linux-gnu qemu-user-static ;;
        bench) echo valgrind ;;
        vm) echo qemu-system-x86 busybox-static cpio kmod gcc make bc xz-utils e2fsprogs ;;
        *)
            echo "setup: no such group: $1 (build tests hip clang lint aarch64 bench vm)" >&2
            exit 2
            ;;
    esac
}

missing=()
for group in "$@"; do
    wanted=$(packages_of "$group")
    for package in $wanted; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
        [[ $status == installed ]] || missing+=("$package")
    done
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $(id -u) -eq 0 ]]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    echo "setup: these packages are missing and only root can install them: run" >&2
    echo "    sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
install=("${apt[@]}" install --no-install-recommends "${missing[@]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A machine whose lists are old or empty needs them refreshed; one whose lists are good need not wait for it.
if ! "${install[@]}" >"$log" 2>&1; then
    if ! "${apt[@]}" update >"$log" 2>&1 || ! "${install[@]}" >>"$log" 2>&1; then
        cat "$log" >&2
        echo "setup: apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
