# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# The machine: turns run.sh's options (its variables) into QEMU arguments. Sourced by run.sh.

build_qemu_arguments() {
  # On a busy host the guest may get no processor for a while; neither the boot's timer check nor a watchdog may mind.
  local kernel_arguments="console=ttyS0 panic=-1 no_timer_check nowatchdog hugepages=$hugepages"
  qemu_arguments=(
    -nodefaults -no-user-config -display none -monitor none -no-reboot
    # One emulation thread: with several, about one boot in forty died, and none was faster.
    -accel tcg,thread=single -machine q35,kernel-irqchip=split -cpu "$cpu" -smp "$smp" -m "$memory"
    -device isa-debug-exit,iobase=0x501,iosize=1
    -serial "file:$out/console.log"
    -device virtio-serial-pci
    -chardev "file,id=stdout,path=$scratch/stdout,append=on" -device virtserialport,chardev=stdout,name=stdout
    -chardev "file,id=stderr,path=$scratch/stderr,append=on" -device virtserialport,chardev=stderr,name=stderr
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap
    -device virtio-9p-pci,fsdev=host,mount_tag=host
    -fsdev "local,id=out,path=$out,security_model=none"
    -device virtio-9p-pci,fsdev=out,mount_tag=out
  )
  if [ "$iommu" = on ]; then
    qemu_arguments+=(-device intel-iommu,intremap=on,caching-mode=on)
    kernel_arguments+=" intel_iommu=on iommu=$iommu_mode"
  fi
  add_drives
  if [ -n "$ivshmem" ]; then
    qemu_arguments+=(
      -object "memory-backend-file,id=ivshmem,size=$ivshmem,mem-path=$out/ivshmem,share=on"
      -device ivshmem-plain,memdev=ivshmem
    )
  fi
  qemu_arguments+=(-kernel "$prepared/kernel" -initrd "$scratch/initramfs.cpio" -append "$kernel_arguments $append")
}

# A controller for each of `drives`, each by default behind a root port of its own, so that each can be reset alone.
add_drives() {
  local drive items item name bus properties namespaces slot=0 number image
  mkdir -p "$disks"
  for drive in "${drives[@]}"; do
    [ "$drive" != none ] || continue
    IFS=, read -r -a items <<< "$drive"
    name=${items[0]} properties='' namespaces=() slot=$((slot + 1)) bus=port$slot
    for item in "${items[@]:1}"; do
      case $item in
        ns=*) namespaces+=("${item#ns=}") ;;
        bus=root) bus=pcie.0 ;;
        *=*) properties+=,$item ;;
        *) die "--nvme $drive: '$item' is not NAME=VALUE" ;;
      esac
    done
    if [ "$bus" != pcie.0 ]; then qemu_arguments+=(-device "pcie-root-port,id=$bus,chassis=$slot,slot=$slot"); fi
    qemu_arguments+=(-device "nvme,id=$name,serial=upcie-$name,bus=$bus$properties")
    number=0
    for item in "${namespaces[@]}"; do
      number=$((number + 1)) image=$disks/$name$number.img
      local block=${item%%:*} size=64M
      case $item in *:*) size=${item#*:} ;; esac
      [ -f "$image" ] || truncate -s "$size" "$image"
      qemu_arguments+=(
        -drive "file=$image,if=none,id=$name$number,format=raw,cache=unsafe"
        -device "nvme-ns,drive=$name$number,bus=$name,nsid=$number,logical_block_size=$block,physical_block_size=$block"
      )
    done
  done
}
