# shellcheck shell=bash
# boot: --iommu off
# upcie_probe_noiommu_pa without an IOMMU. Its report stays in OUT/boot<n>/probes.
here=$(dirname "${BASH_SOURCE[0]}")/../probes
build=${UPCIE_BUILD:-$here/../../../build} tools=${UPCIE_BUILD:-$here/../../../build}/tools
kept=/run/out/probes
mkdir -p "$kept"
load_vfio noiommu && load_module udmabuf
a=$(nvme_bdf a)
check "probe noiommu_pa: a binds to vfio-pci" bind_device "$a" vfio-pci
noiommu_pa() { "$tools/upcie_probe_noiommu_pa" "$a" --json > "$kept/noiommu_pa.json"; }
check "probe noiommu_pa runs" noiommu_pa
check "probe noiommu_pa: as the kernel was seen to be" python3 "$here/check_report.py" "$kept/noiommu_pa.json" \
  "$here/noiommu_pa.expected"
unprivileged() {
  local status=0
  setpriv --reuid 65534 --regid 65534 --clear-groups "$tools/upcie_probe_noiommu_pa" "$a" --json \
    > "$kept/noiommu_pa_unprivileged.json" || status=$?
  [ $status -eq 1 ] && grep -q '"asked": false' "$kept/noiommu_pa_unprivileged.json"
}
check "probe noiommu_pa without privileges says why not" unprivileged
refused() {
  local status=0
  "$tools/$1" "${@:2}" "$a" --json > "$kept/$1.refused.json" || status=$?
  [ $status -eq 1 ] && grep -q 'an IOVA is no address' "$kept/$1.refused.json"
}
check "probe vfio_share has no DMA done without an IOMMU" refused upcie_probe_vfio_share primary
check "probe vfio_delegate has no DMA done without an IOMMU" refused upcie_probe_vfio_delegate standalone
cdev() { "$tools/upcie_probe_vfio_cdev" "$a" --json > "$kept/vfio_cdev.json"; }
check "probe vfio_cdev runs without an IOMMU" cdev
check "probe vfio_cdev without an IOMMU: as the kernel was seen to be" python3 "$here/check_report.py" \
  "$kept/vfio_cdev.json" "$here/vfio_cdev_noiommu.expected"

# gpu_probe QUESTION FLAVOUR: over the stub or the tests' own libraries; dma-bufs are udmabufs.
export UPCIE_CUDA_LIBRARY=$build/tests/fake_gpu/libfake_cuda.so UPCIE_HIP_LIBRARY=$build/tests/fake_gpu/libfake_hip.so
gpu_probe() {
  "$tools/upcie_probe_$1_$2" "$a" --json > "$kept/$1_$2.json"
}
for flavour in stub cuda hip; do
  check "probe vram_ioas_$flavour runs without an IOMMU" gpu_probe vram_ioas "$flavour"
  check "probe vram_ioas_$flavour without an IOMMU: GET_PA tells of vfio's alone" python3 "$here/check_report.py" \
    "$kept/vram_ioas_$flavour.json" "$here/vram_ioas_noiommu.expected"
  check "probe vfio_bar_import_$flavour runs without an IOMMU" gpu_probe vfio_bar_import "$flavour"
  check "probe vfio_bar_import_$flavour without an IOMMU: as with one" python3 "$here/check_report.py" \
    "$kept/vfio_bar_import_$flavour.json" "$here/vfio_bar_import_$flavour.expected"
done
