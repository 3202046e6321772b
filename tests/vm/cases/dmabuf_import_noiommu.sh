# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off --cpu EPYC --memory 4096 --ivshmem 16M --append slub_debug=FZP
# module: src/kmod/dmabuf_import
# The dma-buf importer without an IOMMU, where all addresses are physical, and what it makes of bad and of much use. There is memory
# above 4 GiB, which a function's DMA mask does not reach by itself. slub_debug has the kernel notice use after free and its like.
import_check=$UPCIE_BUILD/tests/vm/dmabuf_import_check
requests=$UPCIE_BUILD/tests/vm/dmabuf_import_requests
endurance=$UPCIE_BUILD/tests/vm/dmabuf_import_endurance
a=$(nvme_bdf a)
b=$(nvme_bdf b)
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "the module loads" load_own_module upcie_dmabuf_import
check "memory above 4 GiB, no driver" "$import_check" high "$b"
check "every page where pagemap says" "$import_check" udmabuf "$b" physical
check "a binds to vfio-pci" bind_device "$a" vfio-pci
check "b binds to vfio-pci" bind_device "$b" vfio-pci
check "memory above 4 GiB, on vfio-pci" "$import_check" high "$a"
check "every page on vfio-pci" "$import_check" udmabuf "$a" physical
check "a's BAR as b: where sysfs says" "$import_check" bar "$a" "$b"
check "revocation is an event, and ESTALE" "$import_check" revoke "$a" "$b"

check "bad arguments, small arrays" "$requests" arguments "$b"
check "handles belong to their opener" "$requests" handles "$b"
check "1000 rounds leave nothing behind" "$endurance" rounds "$b" 1000
check "killed importers leave nothing behind" "$endurance" kill "$b"
check "random requests" "$endurance" fuzz "$b" 40000 4711

exec {node}<> /dev/upcie_dmabuf_import
refuses_to_unload() { ! rmmod upcie_dmabuf_import 2> /dev/null; }
check "no unloading while the node is open" refuses_to_unload
exec {node}>&-
mkfifo /tmp/holder
"$endurance" hold "$b" > /tmp/holder & holder=$!
read -r said < /tmp/holder
check_output "a process holds an import" holding echo "$said"
check "no unloading while it does" refuses_to_unload
kill -9 $holder
wait $holder 2> /dev/null
check "the module unloads" rmmod upcie_dmabuf_import
check "it is gone" test ! -e /dev/upcie_dmabuf_import -a ! -e /sys/module/upcie_dmabuf_import
