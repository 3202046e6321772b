# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# upcie report on a machine with a drive and no GPU: every probe is in it, asked or with the reason why not.

# check_report NAME TITLE PROBE...: writes OUT/boot<n>/NAME, which docs/findings has of the VM; the PROBEs must have answered.
check_report() {
  local name=$1 title=$2 upcie=$UPCIE_BUILD/tools/upcie drive
  shift 2
  drive=$(nvme_bdf a)
  check "udmabuf loads" load_module udmabuf
  check "a binds to vfio-pci" bind_device "$drive" vfio-pci
  export UPCIE_VM_CHECK_TIMEOUT=250
  check "upcie report runs every probe that it can" \
    "$upcie" report --out "/run/out/$name" --name "$title" --device "$drive" --with-stub --timeout 60
  check "its page has them" grep -q vfio_delegate "/run/out/$name/report.md"
  check "the drive's and the stub's probes answered" have_answered "/run/out/$name/report.json" "$@"
}

have_answered() {
  python3 - "$@" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
state = {probe["probe"]: probe["outcome"] for probe in report["probes"]}
wrong = {name: state.get(name) for name in sys.argv[2:] if state.get(name) != "answered"}
print(wrong or "all answered")
sys.exit(1 if wrong else 0)
PYTHON
}
