#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the guest's kernel, modules and initramfs ready in the cache, once: Debian's newest 7.3 kernel from backports, plus
# iommufd and vfio built from Debian's own source.
#
#   prepare.sh             prepare what is missing, say where it lies
#   prepare.sh --dir       ... and print the prepared folder
#   prepare.sh --uapi      ... and print the include folder of the kernel's user API headers
#   prepare.sh --refresh   look for a newer kernel even if one is ready
#   prepare.sh --kasan     an own kernel with KASAN and lockdep instead (several minutes); goes with --dir
#
# The cache is ${UPCIE_VM_CACHE:-${XDG_CACHE_HOME:-~/.cache}/upcie/vm}; UPCIE_VM_SERIES chooses another kernel series.
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"

kind=debian answer=summary refresh=no
while [ $# -gt 0 ]; do
  case $1 in
    --dir) answer=dir ;;
    --uapi) answer=uapi ;;
    --refresh) refresh=yes ;;
    --kasan) kind=kasan ;;
    -h | --help) sed -n '3,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown option $1 (try --help)" ;;
  esac
  shift
done
series=${UPCIE_VM_SERIES:-7.3}

# What is ready is found under a name made from the recipe, so that checkouts whose recipes differ do not fight over a cache.
recipe_files=("$vm_dir"/prepare/{packages,modules,debian}.sh "$vm_dir/prepare/older-gcc" "$vm_dir/kbuild.sh")
if [ $kind = kasan ]; then recipe_files+=("$vm_dir"/prepare/kasan.*); fi
recipe=$(cat "${recipe_files[@]}" <(echo "$series") | sha256sum | cut -c1-12)
ready=$vm_cache/$kind-$recipe

print_answer() {
  case $answer in
    dir) realpath "$ready" ;;
    uapi) echo "$(realpath "$ready")/uapi/usr/include" ;;
    summary) say "ready: Linux $(cat "$ready/release") in $(realpath "$ready")" ;;
  esac
}

if [ -d "$ready" ] && [ $refresh = no ]; then print_answer; exit 0; fi

# One run at a time for each kind (KASAN takes long); one that waited finds the work done.
mkdir -p "$vm_cache"
exec {lock}> "$vm_cache/lock.$kind"
flock -n "$lock" || { say "waiting for another prepare.sh"; flock "$lock"; }
if [ -d "$ready" ] && [ $refresh = no ]; then print_answer; exit 0; fi

need gcc=gcc make=make xz=xz-utils zstd=zstd cpio=cpio depmod=kmod flock=util-linux busybox=busybox-static dpkg-deb=dpkg
. "$vm_dir/prepare/packages.sh"
. "$vm_dir/prepare/modules.sh"
. "$vm_dir/prepare/debian.sh"
. "$vm_dir/prepare/kasan.sh"

# Everything happens in a scratch folder; the last act is a rename. Scratch of killed runs is swept here, under the lock.
rm -rf "$vm_cache/scratch.$kind".*
scratch=$(mktemp -d "$vm_cache/scratch.$kind.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
started=$SECONDS

private_apt_setup "$scratch/apt"
kernel=$(newest_kernel "$series")
if [ -d "$ready" ] && [ "$(cat "$ready/version")" = "$kernel" ]; then say "$kernel is the newest"; print_answer; exit 0; fi
mkdir "$scratch/result"
case $kind in
  debian) prepare_debian "$kernel" "$scratch" "$scratch/result" ;;
  kasan) prepare_kasan "$kernel" "$scratch" "$scratch/result" ;;
esac
echo "$kernel" > "$scratch/result/version"

folder=$vm_cache/store/$kind-$kernel-$(date +%s)
mkdir -p "$vm_cache/store"
mv -T "$scratch/result" "$folder"
ln -s "store/$(basename "$folder")" "$scratch/link"
replaced=$(readlink -e "$ready" || true)
mv -T "$scratch/link" "$ready"
if [ -n "$replaced" ]; then rm -rf "$replaced"; fi
# Other recipes' folders: the newest three are kept.
find "$vm_cache" -maxdepth 1 -name "$kind-*" -type l -printf '%T@ %p\n' | sort -rn | tail -n +4 | cut -d' ' -f2 |
  while read -r old; do rm -rf "$(readlink -f "$old")" "$old"; done
say "prepared in $((SECONDS - started)) s, $(du -sh "$folder" | cut -f1)"
print_answer
