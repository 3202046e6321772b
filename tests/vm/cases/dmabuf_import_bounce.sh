# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off --append swiotlb=force
# module: src/kmod/dmabuf_import
# Where the kernel maps through bounce buffers, the addresses are those of copies: said so, and refused.
check "the module loads" load_own_module upcie_dmabuf_import
check "bounce buffers: said so, and refused" "$UPCIE_BUILD/tests/vm/dmabuf_import_check" udmabuf "$(nvme_bdf b)" bounced
check "the module unloads" rmmod upcie_dmabuf_import
