#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Boots the guest and runs a command in it, on this machine's own root file system (read-only).
#
#   run.sh [options] -- command [arguments...]
#
#   --out DIR          writable in the guest as /run/out; receives console.log and dmesg (default: a folder deleted afterwards)
#   --disks DIR        the drives' images, made if missing (default: OUT/disks)
#   --nvme DRIVE       an NVMe controller, may be repeated; 'none' for no controller. DRIVE is NAME[,ITEM]...:
#                        ns=BLOCK[:SIZE]   a namespace with that LBA size; image NAME<n>.img (default size 64M)
#                        bus=root          on the root bus (otherwise behind a root port of its own)
#                        anything else     a property of QEMU's nvme device: cmb_size_mb=1, mdts=5, max_ioqpairs=8, ...
#                      default: --nvme a,cmb_size_mb=1,mdts=9,ns=512 --nvme b,ns=512,ns=4096; serials are upcie-NAME
#   --ivshmem SIZE     a PCI device whose BAR 2 is memory, backed by OUT/ivshmem ("fake VRAM")
#   --iommu on|off     Intel IOMMU (on)              --iommu-mode nopt|pt   DMA domains, or passthrough by default (nopt)
#   --cpu MODEL        (max; EPYC for peer-to-peer)  --smp N                processors (2)
#   --memory MIB       (1024)                        --timeout SECONDS      boot included (120)
#   --hugepages N      of 2 MiB (64)                 --append ARGS          more kernel arguments
#   --qemu ARG         one more QEMU argument, may be repeated              --kasan   the kernel with KASAN
#
# The status is the command's; 99: the guest died (see console.log), 124: the timeout passed, 2: could not be started.
# The guest has /tmp and /run of its own. The command starts in the same folder; of the environment it sees UPCIE_* and
# UPCIE_VM_GUEST, the folder of the guest's helper scripts.
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"
. "$vm_dir/qemu.sh"

out='' disks='' drives=() ivshmem='' iommu=on iommu_mode=nopt cpu=max smp=2 memory=1024 timeout=120 hugepages=64 append=''
extra=() prepare_options=(--dir)
while [ $# -gt 0 ]; do
  option=$1
  shift
  case $option in
    -h | --help) sed -n '3,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) break ;;
    --kasan) prepare_options+=(--kasan); continue ;;
  esac
  [ $# -gt 0 ] || die "$option wants a value (try --help)"
  case $option in
    --out) out=$1 ;;
    --disks) disks=$1 ;;
    --nvme) drives+=("$1") ;;
    --ivshmem) ivshmem=$1 ;;
    --iommu) case $1 in on | off) iommu=$1 ;; *) die "--iommu is on or off" ;; esac ;;
    --iommu-mode) case $1 in nopt | pt) iommu_mode=$1 ;; *) die "--iommu-mode is nopt or pt" ;; esac ;;
    --cpu) cpu=$1 ;;
    --smp) smp=$1 ;;
    --memory) memory=$1 ;;
    --timeout) timeout=$1 ;;
    --hugepages) hugepages=$1 ;;
    --append) append=$1 ;;
    --qemu) extra+=("$1") ;;
    *) die "unknown option $option (try --help)" ;;
  esac
  shift
done
[ $# -gt 0 ] || die "no command: run.sh [options] -- command [arguments...]"
[ ${#drives[@]} -gt 0 ] || drives=('a,cmb_size_mb=1,mdts=9,ns=512' 'b,ns=512,ns=4096')

need qemu-system-x86_64=qemu-system-x86 cpio=cpio modprobe=kmod setsid=util-linux
prepared=$("$vm_dir/prepare.sh" "${prepare_options[@]}")

scratch=$(mktemp -d)
qemu_pid=''
# shellcheck disable=SC2317
cleanup() {
  if [ -n "$qemu_pid" ]; then kill "$qemu_pid" 2> /dev/null || true; fi
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

out=${out:-$scratch/out}
mkdir -p "$out"
out=$(realpath "$out")
disks=$(realpath -m "${disks:-$out/disks}")
rm -f "$out/.status" "$out/dmesg" "$out/console.log"

# What this boot adds to the prepared initramfs: /init, the second stage, and the command. The kernel unpacks archives one
# after the other.
make_boot_files() {
  local root=$scratch/initramfs name
  mkdir -p "$root/vm"
  install -m 755 "$vm_dir/guest/init" "$root/init"
  cp "$vm_dir/guest/main.sh" "$root/vm/"
  hidden_folders "$PWD" "$(realpath "$vm_dir/../..")" > "$root/vm/visible"
  # Where both streams end in the same place anyway, one pipe keeps their lines in order.
  [ /dev/stdout -ef /dev/stderr ] || touch "$root/vm/streams_apart"
  {
    for name in "${!UPCIE_@}"; do echo "export $name=$(quote "${!name}")"; done
    echo "export UPCIE_VM_GUEST=$(quote "$vm_dir/guest") UPCIE_VM_DRIVES=$(quote "${drives[*]%%,*}")"
    echo "cd $(quote "$PWD") 2> /dev/null || cd /"
    echo "exec $(quote "$@")"
  } > "$root/vm/command.sh"
  { cat "$prepared/initramfs.cpio"; (cd "$root" && find . | cpio --quiet -o -H newc); } > "$scratch/initramfs.cpio"
}

# Words for any shell (the guest's is busybox's; bash's own %q knows forms that only bash reads).
quote() {
  local word words=()
  for word in "$@"; do words+=("'${word//\'/\'\\\'\'}'"); done
  echo "${words[*]}"
}

# Those folders that the guest's own /tmp and /run would hide.
hidden_folders() {
  local folder
  for folder in "$@"; do case $folder in /tmp/* | /run/*) echo "$folder" ;; esac; done | sort -u
}

make_boot_files "$@"
build_qemu_arguments

mkfifo "$scratch/stdout" "$scratch/stderr"
cat "$scratch/stdout" & readers=($!)
cat "$scratch/stderr" >&2 & readers+=($!)

timeout --kill-after=5 "$timeout" qemu-system-x86_64 "${qemu_arguments[@]}" "${extra[@]}" < /dev/null 2> "$scratch/qemu.log" &
qemu_pid=$!
qemu_status=0
wait "$qemu_pid" || qemu_status=$?
qemu_pid=''
# QEMU opens the pipes when it starts; where it could not, the readers wait for nobody.
if [ ! -s "$out/console.log" ]; then kill "${readers[@]}" 2> /dev/null || true; fi
wait "${readers[@]}" || true

if [ -f "$out/.status" ]; then
  status=$(cat "$out/.status")
  rm "$out/.status"
  exit "$status"
fi
case $qemu_status in
  124 | 137)
    say "timed out after $timeout s; the console's last lines:"
    tail -n 5 "$out/console.log" >&2 || true
    exit 124
    ;;
esac
if [ ! -s "$out/console.log" ]; then
  cat "$scratch/qemu.log" >&2
  die "QEMU did not start (status $qemu_status)"
fi
cat "$scratch/qemu.log" >&2
say "the guest died; the console's last lines:"
tail -n 30 "$out/console.log" >&2
exit 99
