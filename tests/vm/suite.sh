#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs case files in as few boots as their needs allow, and sums up.
#
#   suite.sh BUILD OUT [run.sh options] [-- FILE...]       UPCIE_VM_JOBS (2) boots run at once
#
# BUILD is the build folder, $UPCIE_BUILD for the cases ('none' for cases that need none). OUT/boot<n> keeps what each boot
# left: console.log, dmesg, and what the cases wrote to /run/out. FILEs default to cases/*.sh beside this script.
#
# A case file is bash, sourced in the guest with devices.sh and checks.sh at hand. A line `# boot: OPTIONS` in it gives run.sh
# options; files with the same line share a boot. `# module: DIR` has the kernel module in that folder of the checkout built;
# load_own_module of devices.sh loads it. The host is the witness of what is on the drives: each line
# `# host before: ARGUMENTS` is an invocation of disk_image.py among the boot's fresh images before it, `# host after: ...`
# a check after it.
set -euo pipefail
vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$vm_dir/prepare/common.sh"
. "$vm_dir/guest/checks.sh"

case ${1-} in -h | --help) sed -n '3,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ $# -ge 2 ] || die "usage: suite.sh BUILD OUT [run.sh options] [-- FILE...] (try --help)"
[ "$1" = none ] || UPCIE_BUILD=$(realpath -e "$1") || die "no build folder $1"
export UPCIE_BUILD=${UPCIE_BUILD-}
out=$2
shift 2
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
files=("${@:2}")
if [ ${#files[@]} -eq 0 ]; then files=("$vm_dir"/cases/*.sh); fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# boots[needs]: the files of that boot, one a line; order: the needs in the order of their first file
declare -A boots=()
order=()
for file in "${files[@]}"; do
  [ -f "$file" ] || die "no such case file: $file"
  needs=$(sed -n 's/^# boot: *//p' "$file")
  [ -n "${boots[x$needs]-}" ] || order+=("$needs")
  boots[x$needs]+=$(realpath "$file")$'\n'
done

# host_image WHEN FOLDER FILE...: runs disk_image.py as the files say, among the images in FOLDER.
host_image() {
  local when=$1 folder=$2 line arguments
  shift 2
  while IFS= read -r line; do
    read -r -a arguments <<< "$line"
    check "host $when: $line" env -C "$folder" python3 "$vm_dir/disk_image.py" "${arguments[@]}"
  done < <(sed -n "s/^# host $when: *//p" "$@" | sort -u)
}

# bring_modules FOLDER FILE...: for run_boot, the modules that the files name, built and copied into FOLDER.
bring_modules() {
  local folder=$1 name module kernel=()
  shift
  case " ${options[*]} ${needed[*]} " in *' --kasan '*) kernel=(--kasan) ;; esac
  rm -rf "$folder" && mkdir -p "$folder"
  while IFS= read -r name; do
    module=$("$vm_dir/module.sh" "${kernel[@]}" "$vm_dir/../../$name") && cp "$module" "$folder/" || fail "module $name" "it does not build"
  done < <(sed -n 's/^# module: *//p' "$@" | sort -u)
}

# run_boot NUMBER NEEDS FILE...: one boot with its cases, and the host's part before and after it.
run_boot() {
  local number=$1 needs=$2 started=$SECONDS status=0 needed disks
  shift 2
  read -r -a needed <<< "$needs"
  # What an earlier boot wrote must not pass for what this one wrote.
  disks=$(realpath -m "$out/boot$number/disks")
  rm -rf "$disks" && mkdir -p "$disks"
  host_image before "$disks" "$@"
  bring_modules "$out/boot$number/modules" "$@"
  "$vm_dir/run.sh" --out "$out/boot$number" --disks "$disks" --timeout 600 "${options[@]}" "${needed[@]}" -- \
    bash "$vm_dir/guest/cases.sh" "$@" || status=$?
  # 0 and 1 are cases.sh's own; anything else means that some checks never ran.
  case $status in
    0 | 1) ;;
    124) fail "boot $number ends" "timed out" ;;
    *) fail "boot $number ends" "the guest died or did not start (status $status)" ;;
  esac
  host_image after "$disks" "$@"
  echo "# boot $number took $((SECONDS - started)) s"
}

# report NUMBER: waits for the boot and prints what it said.
report() {
  local status=0
  wait "${running[$1]}" || status=$?
  add_checks < "$scratch/boot$1"
  [ $status -eq 0 ] || fail "boot $1" "its part of the suite ended with status $status"
}

# QEMU emulates with one thread, so that boots do not share a processor for nothing.
number=0 reported=0 running=()
trap 'kill -TERM 0' INT # background jobs of a script do not hear it
for needs in "${order[@]}"; do
  number=$((number + 1))
  if [ $((number - reported)) -gt "${UPCIE_VM_JOBS:-2}" ]; then report $((++reported)); fi
  mapfile -t cases <<< "${boots[x$needs]%$'\n'}"
  echo "# boot $number: ${needs:-default}"
  run_boot "$number" "$needs" "${cases[@]}" > "$scratch/boot$number" 2>&1 &
  running[number]=$!
done
while [ $reported -lt $number ]; do report $((++reported)); done
finish_checks
