# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu on
# shellcheck source=../guest/report.sh
source "$UPCIE_VM_GUEST/report.sh"
check "vfio loads" load_vfio
check_report report "QEMU q35, IOMMU on" \
  vfio_cdev vfio_share vfio_delegate dmabuf_stub vram_ioas_stub vfio_bar_import_stub vfio_share_gpu_stub
