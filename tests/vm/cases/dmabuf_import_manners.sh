# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off --cpu EPYC --memory 4096 --ivshmem 16M --append slub_debug=FZP
# module: src/kmod/dmabuf_import
# module: tests/vm/modules/dmabuf_exporter
# The importer against an exporter that pins, refuses, fails and moves, as GPU drivers do.
check "the importer loads" load_own_module upcie_dmabuf_import
check "the exporter loads" load_own_module upcie_dmabuf_exporter
check "pinning, moves, ends, kinds, long lists, races" "$UPCIE_BUILD/tests/vm/dmabuf_import_manners" "$(nvme_bdf b)" "$(nvme_bdf a)"
check "the exporter unloads: nothing of it is held" rmmod upcie_dmabuf_exporter
check "the importer unloads" rmmod upcie_dmabuf_import
