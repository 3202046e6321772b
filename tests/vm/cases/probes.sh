# shellcheck shell=bash
# boot: --iommu on
# The probes behind an IOMMU, against shared/vm.md. Their reports stay in OUT/boot<n>/probes.
here=$(dirname "${BASH_SOURCE[0]}")/../probes
build=${UPCIE_BUILD:-$here/../../../build} tools=${UPCIE_BUILD:-$here/../../../build}/tools
kept=/run/out/probes
mkdir -p "$kept"

# as USER [setpriv options] -- COMMAND...: as that user, with no capability but those named.
as() {
  local user=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  setpriv --reuid "$user" --regid "$user" --clear-groups "${options[@]}" "$@"
}

expect() { python3 "$here/check_report.py" "$kept/$1.json" "$here/$2.expected"; }

# share NAME PRIMARY_UID SECONDARY_UID [OPTIONS]: both sides of the share probe, the primary with ${primary_caps}.
share() {
  local name=$1 primary_user=$2 secondary_user=$3 status=0
  shift 3
  local socket=/tmp/share.$name secondary
  as "$secondary_user" -- "$tools/upcie_probe_vfio_share" secondary --socket "$socket" --memlock 6MiB --timeout 60 \
    > "$kept/$name.secondary.txt" &
  secondary=$!
  as "$primary_user" "${primary_caps[@]}" -- "$tools/upcie_probe_vfio_share" primary "$a" --socket "$socket" --memlock 12MiB \
    --span 16 --allow-uid "$secondary_user" --timeout 60 --json "$@" > "$kept/$name.json" || status=$?
  wait "$secondary" || status=$?
  if [ $status -ne 0 ]; then grep -h -A1 -E '"reason"|could not be asked' "$kept/$name.json" "$kept/$name.secondary.txt"; fi
  return $status
}

ulimit -l 65536 # KiB: the hard limit, which other users below cannot raise
load_vfio && load_module udmabuf
a=$(nvme_bdf a)
check "probes: a binds to vfio-pci" bind_device "$a" vfio-pci
node=$(vfio_node "$a")

cdev() { "$tools/upcie_probe_vfio_cdev" "$a" --json > "$kept/vfio_cdev.json"; }
check "probe vfio_cdev runs" cdev
check "probe vfio_cdev: as the kernel was seen to be" expect vfio_cdev vfio_cdev

# gpu_probe KEPT QUESTION_FLAVOUR [ARGUMENTS]: a GPU's probe, over the stub or the tests' own libraries; dma-bufs are udmabufs.
export UPCIE_CUDA_LIBRARY=$build/tests/fake_gpu/libfake_cuda.so UPCIE_HIP_LIBRARY=$build/tests/fake_gpu/libfake_hip.so
gpu_probe() {
  "$tools/upcie_probe_$2" "${@:3}" --json > "$kept/$1.json"
}
for flavour in stub cuda hip; do
  check "probe vram_ioas_$flavour runs without a device" gpu_probe "vram_ioas_alone_$flavour" "vram_ioas_$flavour"
  check "probe vram_ioas_$flavour, no device: as the kernel was seen to be" expect "vram_ioas_alone_$flavour" vram_ioas_alone
  check "probe vram_ioas_$flavour runs with a device" gpu_probe "vram_ioas_$flavour" "vram_ioas_$flavour" "$a"
  check "probe vram_ioas_$flavour: takes vfio's dma-bufs alone" expect "vram_ioas_$flavour" vram_ioas
  check "probe vfio_bar_import_$flavour runs" gpu_probe "vfio_bar_import_$flavour" "vfio_bar_import_$flavour" "$a"
  check "probe vfio_bar_import_$flavour: the BAR can be told from a refusal of all" expect "vfio_bar_import_$flavour" \
    "vfio_bar_import_$flavour"
done
check "probe vfio_bar_import_stub runs on another range" gpu_probe vfio_bar_import_range vfio_bar_import_stub "$node" 0 8K 8K
bar_not_there() {
  local status=0
  gpu_probe vfio_bar_import_not_there vfio_bar_import_stub "$a" 0 16K || status=$?
  [ $status -eq 1 ] && grep -q 'The BAR has 16384 bytes' "$kept/vfio_bar_import_not_there.json"
}
check "probe vfio_bar_import_stub past the BAR's end says why not" bar_not_there

# Root and root.
primary_caps=()
root_share() { "$tools/upcie_probe_vfio_share" primary "$a" --spawn --span 16 --json > "$kept/share_root.json"; }
check "probe vfio_share runs as root" root_share
check "probe vfio_share, root: the device can be used" expect share_root share_usable
check "probe vfio_share, root: says that it learned nothing about limits" expect share_root share_root

# Root and another user: descriptors delegate, limits stay the registrar's.
mixed_share() {
  local status=0
  as 65534 -- "$tools/upcie_probe_vfio_share" secondary --socket /tmp/mixed --memlock 6MiB > "$kept/share_mixed.secondary.txt" &
  "$tools/upcie_probe_vfio_share" primary "$a" --socket /tmp/mixed --allow-uid 65534 --span 16 --json \
    > "$kept/share_mixed.json" || status=$?
  wait $! || status=$?
  return $status
}
check "probe vfio_share runs from root to another user" mixed_share
check "probe vfio_share, root to another: the device can be used" expect share_mixed share_usable
check "probe vfio_share, root to another: the registrar's limit" expect share_mixed share_mixed

# Nobody is root.
chown 65534 "$node"
chmod 666 /dev/iommu
check "probe vfio_share runs as one user" share share_same_user 65534 65534
check "probe vfio_share, one user: the device can be used" expect share_same_user share_usable
check "probe vfio_share, one user: one account" expect share_same_user share_same_user
check "probe vfio_share, one user: may not choose the accounting" expect share_same_user share_unprivileged
check "probe vfio_share runs with distinct users" share share_distinct_users 65534 65533
check "probe vfio_share, distinct users: the device can be used" expect share_distinct_users share_usable
check "probe vfio_share, distinct users: separate accounts" expect share_distinct_users share_distinct_users
primary_caps=(--inh-caps +sys_resource --ambient-caps +sys_resource)
check "probe vfio_share runs with accounting by process" share share_by_process 65534 65534 --accounting process
check "probe vfio_share, by process: separate accounts" expect share_by_process share_same_user_by_process
chown 0 "$node"
chmod 600 /dev/iommu

delegate() { "$tools/upcie_probe_vfio_delegate" standalone "$a" --end "$1" --json > "$kept/delegate_$1.json"; }
for end in exit kill; do
  check "probe vfio_delegate runs ($end)" delegate "$end"
  check "probe vfio_delegate ($end): everything survives" expect "delegate_$end" delegate_survival
  check "probe vfio_delegate ($end): a restart is a handover" expect "delegate_$end" delegate_restart
done
delegate_to_another() {
  local status=0
  as 65534 -- "$tools/upcie_probe_vfio_delegate" secondary --socket /tmp/delegate --json > "$kept/delegate_other.json" &
  local secondary=$!
  "$tools/upcie_probe_vfio_delegate" primary "$a" --socket /tmp/delegate --allow-uid 65534 > "$kept/delegate_other.txt" \
    || status=$?
  wait $secondary || status=$?
  return $status
}
check "probe vfio_delegate runs from root to another user" delegate_to_another
check "probe vfio_delegate, root to another: everything survives" expect delegate_other delegate_survival

# A killed run leaves nothing that stops the next.
killed_then_next() {
  "$tools/upcie_probe_vfio_share" primary "$a" --socket /tmp/killed --timeout 60 > /dev/null &
  local first=$! waited=0
  while [ ! -S /tmp/killed ]; do
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 200 ] || { echo "no socket came"; return 1; }
  done
  kill -KILL $first
  wait $first
  [ -S /tmp/killed ] || { echo "the killed run left no socket: this checks nothing"; return 1; }
  "$tools/upcie_probe_vfio_share" secondary --socket /tmp/killed > /dev/null &
  "$tools/upcie_probe_vfio_share" primary "$a" --socket /tmp/killed --span 16 --json > "$kept/after_kill.json" && wait $!
}
check "probe vfio_share after a killed run" killed_then_next

# What cannot be asked ends with 1 and a reason, wrong usage with 2.
not_asked() {
  local status=0
  "$tools/upcie_probe_noiommu_pa" "$a" --json > "$kept/not_asked.json" || status=$?
  [ $status -eq 1 ] && grep -q '"asked": false' "$kept/not_asked.json" && grep -q enable_unsafe_noiommu_mode "$kept/not_asked.json"
}
check "probe noiommu_pa behind an IOMMU says why not" not_asked
wrong_usage() {
  local status=0
  "$tools/upcie_probe_vfio_cdev" --nonsense 2> /dev/null || status=$?
  [ $status -eq 2 ]
}
check "probes: wrong usage ends with 2" wrong_usage

# ---- A BAR from a GPU, by a passed descriptor: over the stub, and CUDA's flavour over the tests' library.
# share_gpu NAME FLAVOUR SECONDARY_UID: both sides, the primary as root.
share_gpu() {
  local name=$1 probe=$tools/upcie_probe_vfio_share_gpu_$2 user=$3 status=0 secondary
  as "$user" -- "$probe" secondary --socket "/tmp/$name" --timeout 60 > "$kept/$name.secondary.txt" &
  secondary=$!
  "$probe" primary "$a" --socket "/tmp/$name" --allow-uid "$user" --timeout 60 --json > "$kept/$name.json" || status=$?
  wait "$secondary" || status=$?
  if [ $status -ne 0 ]; then grep -h -A1 -E '"reason"|could not be asked' "$kept/$name.json" "$kept/$name.secondary.txt"; fi
  return $status
}
# share_gpu_alone NAME FLAVOUR [ARGUMENTS]
share_gpu_alone() {
  local name=$1 probe=$tools/upcie_probe_vfio_share_gpu_$2 status=0
  shift 2
  "$probe" standalone "$@" --json > "$kept/$name.json" || status=$?
  if [ $status -ne 0 ]; then grep -A1 '"reason"' "$kept/$name.json"; fi
  return $status
}
for flavour in stub cuda; do
  check "probe vfio_share_gpu_$flavour runs from root to root" share_gpu "gpu_root_$flavour" $flavour 0
  check "probe vfio_share_gpu_$flavour, root: the BAR is reached" expect "gpu_root_$flavour" share_gpu_reached
  check "probe vfio_share_gpu_$flavour runs from root to another user" share_gpu "gpu_other_$flavour" $flavour 65534
  check "probe vfio_share_gpu_$flavour, another user: the BAR is reached" expect "gpu_other_$flavour" share_gpu_reached
  check "probe vfio_share_gpu_$flavour, another user: says who it is" expect "gpu_other_$flavour" share_gpu_other_user
  check "probe vfio_share_gpu_$flavour runs standalone" share_gpu_alone "gpu_alone_$flavour" $flavour "$a"
  check "probe vfio_share_gpu_$flavour, standalone: the BAR is reached" expect "gpu_alone_$flavour" share_gpu_standalone
  check "probe vfio_share_gpu_$flavour runs without a device" share_gpu_alone "gpu_memory_$flavour" $flavour --memory
  check "probe vfio_share_gpu_$flavour, without a device: the BAR is not seen" expect "gpu_memory_$flavour" share_gpu_memory
done

# HIP takes no MMIO, as root or not; ordinary memory it does, which it reads by a copy.
check "probe vfio_share_gpu_hip runs standalone" share_gpu_alone gpu_alone_hip hip "$a"
check "probe vfio_share_gpu_hip, standalone: the BAR is refused" expect gpu_alone_hip share_gpu_hip
check "probe vfio_share_gpu_hip runs from root to another user" share_gpu gpu_other_hip hip 65534
check "probe vfio_share_gpu_hip, another user: the BAR is refused" expect gpu_other_hip share_gpu_hip_other

# A runtime that asks for privilege at the call, as CUDA's does: delegated or not, it is the caller's own that counts.
export UPCIE_FAKE_GPU_PRIVILEGE=root
check "probe vfio_share_gpu_cuda, privilege, runs from root to root" share_gpu gpu_privilege_root cuda 0
check "probe vfio_share_gpu_cuda, privilege, root: the BAR is reached" expect gpu_privilege_root share_gpu_reached
check "probe vfio_share_gpu_cuda, privilege, runs from root to another user" share_gpu gpu_privilege_other cuda 65534
check "probe vfio_share_gpu_cuda, privilege, another user is refused" expect gpu_privilege_other share_gpu_refused
check "probe vfio_share_gpu_cuda, privilege of root, tries capabilities" \
  share_gpu_alone gpu_capability_root cuda "$a" --try-capabilities --only sys_rawio
check "probe vfio_share_gpu_cuda, privilege of root: all capabilities do not suffice" expect gpu_capability_root share_gpu_capability_root
export UPCIE_FAKE_GPU_PRIVILEGE=17 # CAP_SYS_RAWIO
check "probe vfio_share_gpu_cuda, privilege of one capability, tries capabilities" \
  share_gpu_alone gpu_capability cuda "$a" --try-capabilities --only sys_rawio sys_admin
check "probe vfio_share_gpu_cuda, privilege of one capability: it is found" expect gpu_capability share_gpu_capability
unset UPCIE_FAKE_GPU_PRIVILEGE
share_gpu_not_asked() {
  local status=0
  "$tools/upcie_probe_vfio_share_gpu_cuda" standalone "$a" --library /nowhere/libcuda.so > "$kept/gpu_not_asked.txt" || status=$?
  [ $status -eq 1 ] && grep -q 'could not be asked.*nowhere' "$kept/gpu_not_asked.txt"
}
check "probe vfio_share_gpu_cuda without a GPU's library says why not" share_gpu_not_asked
