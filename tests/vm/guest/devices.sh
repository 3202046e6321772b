# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Modules, drivers and IOMMU groups in the guest. Source it in a test:  . "$UPCIE_VM_GUEST/devices.sh"
# Every function says on stderr what went wrong, naming the device and the file, and returns 1.
# Bash's own means go before cat, basename and their like: starting a program takes a tenth of a second here.

vm_fault() { echo "devices.sh: $*" >&2; return 1; }

# load_module NAME [PARAMETER=VALUE]... : from the prepared modules; nothing to do where it is built in or loaded already,
# except for parameters, which are then set through sysfs.
load_module() {
  local name=${1//-/_} parameter message
  shift
  if [ ! -d "/sys/module/$name" ]; then
    message=$(modprobe -d /run/vm/modules "$name" "$@" 2>&1) || vm_fault "modprobe $name $*: $message"
    return
  fi
  for parameter in "$@"; do
    vm_write "${parameter#*=}" "/sys/module/$name/parameters/${parameter%%=*}" || return
  done
}

unload_module() { modprobe -d /run/vm/modules -r "$1" || vm_fault "cannot unload $1"; }

# load_own_module NAME: the one that the case's `# module:` line had built.
load_own_module() {
  local message
  message=$(insmod "/run/out/modules/$1.ko" 2>&1) || vm_fault "insmod $1.ko: $message"
}

# iommufd and vfio, both the cdev and the group with type1. `load_vfio noiommu` allows devices without an IOMMU.
load_vfio() {
  local parameters=()
  if [ "${1-}" = noiommu ]; then parameters=(enable_unsafe_noiommu_mode=1); fi
  load_module iommufd && load_module vfio "${parameters[@]}" && load_module vfio_iommu_type1 && load_module vfio-pci
}

# vm_write VALUE FILE: the kernel's reason with the file's name, which a bare redirection hides.
vm_write() {
  local message
  message=$( { printf '%s' "$1" > "$2"; } 2>&1) || vm_fault "writing '$1' to $2: ${message##*: }"
}

# nvme_bdf NAME: the PCI address of the controller that run.sh calls NAME. Controllers appear in the order of their options.
nvme_bdf() {
  local index=0 name file
  for name in $UPCIE_VM_DRIVES; do
    if [ "$name" = "$1" ]; then break; fi
    index=$((index + 1))
  done
  local found=()
  for file in /sys/bus/pci/devices/*; do
    if [ "$(< "$file/class")" = 0x010802 ]; then found+=("${file##*/}"); fi
  done
  if [ $index -lt ${#found[@]} ]; then echo "${found[index]}"; else vm_fault "no NVMe controller named $1 (there are: $UPCIE_VM_DRIVES)"; fi
}

# nvme_block BDF NSID: the kernel driver's block device of a namespace. Its name does not tell: the n1 of nvme0n1 counts
# namespaces as they were found, which is in any order. Waits for it, as the driver scans in the background.
nvme_block() {
  local block
  for _ in {1..50}; do
    for block in /sys/bus/pci/devices/"$1"/nvme/nvme*/nvme*n*; do
      if [ -b "/dev/${block##*/}" ] && [ "$(< "$block/nsid")" = "$2" ]; then echo "/dev/${block##*/}"; return; fi
    done
    sleep 0.1
  done
  vm_fault "no block device for namespace $2 of $1 (driver: $(driver_of "$1"))"
}

# ivshmem_bdf: the PCI address of --ivshmem's device.
ivshmem_bdf() {
  local file
  for file in /sys/bus/pci/devices/*; do
    if [ "$(< "$file/vendor") $(< "$file/device")" = '0x1af4 0x1110' ]; then echo "${file##*/}"; return; fi
  done
  vm_fault "no ivshmem device (run.sh --ivshmem SIZE)"
}

driver_of() { basename "$(readlink "/sys/bus/pci/devices/$1/driver" || echo none)"; }

unbind_device() {
  local device=/sys/bus/pci/devices/$1
  [ -d "$device" ] || vm_fault "no PCI device $1" || return
  if [ -e "$device/driver" ]; then vm_write "$1" "$device/driver/unbind" || return; fi
  vm_write $'\n' "$device/driver_override"
}

# release_devices: every NVMe controller and ivshmem device free of drivers and overrides, as at boot.
release_devices() {
  local file
  for file in /sys/bus/pci/devices/*; do
    case $(< "$file/class") in 0x010802 | 0x050000) unbind_device "${file##*/}" ;; esac
  done
}

# bind_device BDF DRIVER: DRIVER is vfio-pci, uio_pci_generic or nvme. The override makes the driver take this device alone.
bind_device() {
  local bdf=$1 driver=$2 device=/sys/bus/pci/devices/$1
  [ ! "$device/driver" -ef "/sys/bus/pci/drivers/$driver" ] || return 0
  [ -d "/sys/bus/pci/drivers/$driver" ] || vm_fault "driver $driver is not loaded" || return
  unbind_device "$bdf" && vm_write "$driver" "$device/driver_override" && vm_write "$bdf" /sys/bus/pci/drivers_probe || return
  [ "$device/driver" -ef "/sys/bus/pci/drivers/$driver" ] || vm_fault "$bdf did not bind to $driver (see dmesg)"
}

# set_group_type BDF TYPE: identity, DMA or DMA-FQ. Only while no kernel driver uses a device of the
# group (bound to vfio-pci but not opened is fine).
set_group_type() {
  local file=/sys/bus/pci/devices/$1/iommu_group/type
  [ -e "$file" ] || vm_fault "$1 has no IOMMU group (is the IOMMU on?)" || return
  vm_write "$2" "$file" || vm_fault "set_group_type $1: the device must be out of use first; its driver is $(driver_of "$1")" || return
  [ "$(< "$file")" = "$2" ] || vm_fault "$1's group is of type $(< "$file"), wanted $2"
}

# vfio_node BDF: the device's cdev, if it has one. sysfs names it even where there is none, so look for the node itself.
vfio_node() {
  local name
  for name in /sys/bus/pci/devices/"$1"/vfio-dev/*; do
    name=/dev/vfio/devices/${name##*/}
    if [ -e "$name" ]; then echo "$name"; return; fi
  done
  vm_fault "$1 has no node in /dev/vfio/devices (driver: $(driver_of "$1"))"
}
