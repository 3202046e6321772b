# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# boot: --iommu on
# upcie report on a machine with a drive and no GPU: every probe is in it, asked or with the reason why not. What it wrote is in
# OUT/boot<n>/report, and is what docs/findings has of the VM.
a=$(nvme_bdf a)
upcie=$UPCIE_BUILD/tools/upcie
check "vfio loads" load_vfio
check "udmabuf loads" load_module udmabuf
check "a binds to vfio-pci" bind_device "$a" vfio-pci
report() { "$upcie" report --out /run/out/report --name "QEMU q35, IOMMU on" --device "$a" --with-stub --timeout 60; }
export UPCIE_VM_CHECK_TIMEOUT=250
check "upcie report runs every probe that it can" report
check "its page has them" grep -q vfio_delegate /run/out/report/report.md
asked() { python3 - "$@" <<'PYTHON'
import json, sys
report = json.load(open("/run/out/report/report.json"))
state = {probe["probe"]: probe["outcome"] for probe in report["probes"]}
wrong = {name: state.get(name) for name in sys.argv[1:] if state.get(name) != "answered"}
print(wrong or "all answered")
sys.exit(1 if wrong else 0)
PYTHON
}
check "the drive's and the stub's probes answered" asked vfio_cdev vfio_share vfio_delegate dmabuf_stub vram_ioas_stub vfio_bar_import_stub vfio_share_gpu_stub
