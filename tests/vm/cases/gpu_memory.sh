# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu off
# module: src/kmod/dmabuf_import
# host before: fill-stamps a1.img --size 64M --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 4711 --range 16384:4096
# host after: check-stamps a1.img --seed 105 --range 98304:2048
# host after: check-stamps a1.img --seed 106 --range 100352:2048
# host after: check-stamps a1.img --seed 107 --range 102400:2048
# A real drive and GPU memory, through the tests' vendor libraries in the manners of CUDA and ROCm: their memory is udmabufs.
a=$(nvme_bdf a)
fakes=$UPCIE_BUILD/tests/fake_gpu
export UPCIE_CUDA_LIBRARY=$fakes/libfake_cuda.so UPCIE_HIP_LIBRARY=$fakes/libfake_hip.so
gpu_check=$UPCIE_BUILD/tests/vm/gpu_memory_check
upcie=$UPCIE_BUILD/tools/upcie
check "vfio loads, no-IOMMU mode" load_vfio noiommu
check "uio loads" load_module uio_pci_generic
check "udmabuf loads" load_module udmabuf
check "the importer loads" load_own_module upcie_dmabuf_import

# on PATH GPU MANNER SEED FIRST: everything with one library in one manner.
on() {
  export UPCIE_FAKE_GPU_MANNER=$3
  check "$2, $3, $1: exact places, many threads, and what the first segment's address does" "$gpu_check" "$a" "$1" "$2" 4711:16384:4096
  check "$2, $3, $1: upcie verify reads the host's stamps into it" "$upcie" verify "$a" --path "$1" --into "$2" --system-memory-ok \
    --read-only --seed 4711 --lba 16384 --blocks 4096
  check "$2, $3, $1: upcie verify writes from it" "$upcie" verify "$a" --path "$1" --into "$2" --system-memory-ok \
    --destructive --seed "$4" --lba "$5" --blocks 2048
}
refused() {
  local said status=0
  said=$("$upcie" verify "$a" --path noiommu --into cuda --read-only --seed 4711 --lba 16384 --blocks 8 2>&1) || status=$?
  [ $status -ne 0 ] && grep -q 'EREMOTE.*system memory' <<< "$said" || { echo "$status: $said"; return 1; }
}
check "a binds to vfio-pci" bind_device "$a" vfio-pci
on noiommu cuda exact 105 98304
on noiommu hip whole-object 106 100352
check "memory that is the host's is refused where it was not said" refused
check "a binds to uio_pci_generic" bind_device "$a" uio_pci_generic
on uio cuda suballocated 107 102400
