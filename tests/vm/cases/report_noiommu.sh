# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off
# shellcheck source=../guest/report.sh
source "$UPCIE_VM_GUEST/report.sh"
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check_report report_noiommu "QEMU q35, no IOMMU" vfio_cdev noiommu_pa dmabuf_stub vram_ioas_stub vfio_bar_import_stub
