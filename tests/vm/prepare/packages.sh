# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# A private apt: asks the Debian mirror that this machine already uses for packages of a newer Debian, without touching the
# system's own package lists. Sourced by prepare.sh, which works inside one scratch directory.

debian_release=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Mirrors named in this machine's apt settings, likeliest first: the suite of the running Debian, then anything else that is
# not the security archive. `--print-uris` answers even where the package lists have been deleted.
mirror_candidates() {
  local codename uris
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  uris=$(apt-get update --print-uris 2> /dev/null | sed -n "s#^'\(.*\)/dists/\(.*\)/InRelease'.*#\2 \1#p" | grep -v security)
  { grep "^$codename " <<< "$uris" || true; grep -v "^$codename " <<< "$uris" || true; } | cut -d' ' -f2 | awk '!seen[$0]++'
}

# private_apt_setup DIR: finds a mirror that really carries the release, signed by Debian (third-party repositories fail here).
private_apt_setup() {
  local apt=$1 mirror
  [ -f "$keyring" ] || die "$keyring is missing: apt-get install debian-archive-keyring"
  mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,preferences.d,parts,sources.d}
  : > "$apt/status"
  # The machine's own ways to reach a mirror (proxy, credentials, clock tolerance) still hold; its hooks and pins do not.
  {
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets'
    cat <<CONF
Dir::Etc::parts "$apt/parts"; Dir::Etc::main "/dev/null";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "$apt/sources.d";
Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "$apt/preferences.d";
Dir::State "$apt/state"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
APT::Architecture "amd64"; APT::Architectures { "amd64"; }; APT::Sandbox::User "root";
Acquire::Languages "none"; Acquire::Retries "3";
CONF
  } > "$apt/apt.conf"
  private_apt_conf=$apt/apt.conf

  for mirror in $(mirror_candidates); do
    printf "deb [signed-by=$keyring] $mirror %s main\n" "$debian_release" "$debian_release-backports" > "$apt/sources.list"
    # apt-get says 0 even when a suite could not be had, unless told otherwise
    if private_apt apt-get update -qq -o APT::Update::Error-Mode=any 2> "$apt/update.log"; then
      say "mirror: $mirror"
      return
    fi
  done
  cat "$apt/update.log" >&2
  die "no mirror in this machine's apt settings carries $debian_release-backports"
}

private_apt() { APT_CONFIG=$private_apt_conf "$@"; }

# The newest kernel of the wanted series, such as 7.3.4+deb13. A series that has left the archive gives way to the next one:
# the facts in this folder were gathered on 7.3, so say it.
newest_kernel() {
  local series=$1 all found
  all=$(private_apt apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9][0-9.]*+deb[0-9]*\)-amd64$/\1/p' | sort -V)
  found=$(grep "^${series//./\\.}\." <<< "$all" | tail -n 1) || true
  if [ -z "$found" ]; then
    found=$(tail -n 1 <<< "$all")
    if [ -z "$found" ] || ! dpkg --compare-versions "$found" gt "$series"; then
      die "no $series kernel in $debian_release-backports (newest: ${found:-none})"
    fi
    say "note: no $series kernel in the archive any more; taking $found"
  fi
  echo "$found"
}

package_exists() { private_apt apt-cache show "$1" > /dev/null 2>&1; }

# packages_for KERNEL: the packages to download, one a line.
packages_for() {
  local kernel=$1 version series
  # The headers of all flavours carry the source package's version; the signed image has a version of its own.
  version=$(private_apt apt-cache show "linux-headers-$kernel-common" | sed -n 's/^Version: //p' | sort -V | tail -n 1)
  series=$(cut -d. -f1,2 <<< "$kernel")
  # Since 7.0 linux-image is an empty package over linux-binary and linux-modules.
  if package_exists "linux-binary-$kernel-amd64"; then echo "linux-binary-$kernel-amd64"; else echo "linux-image-$kernel-amd64"; fi
  if package_exists "linux-modules-$kernel-amd64"; then echo "linux-modules-$kernel-amd64"; fi
  printf '%s\n' "linux-headers-$kernel-amd64" "linux-headers-$kernel-common" "linux-kbuild-$kernel" \
    "linux-source-$series=$version" "linux-libc-dev=$version"
  # The kernel's build tools want a newer C library than Debian 12 has; they run on these.
  printf '%s\n' libc6 libelf1t64 zlib1g libzstd1
}

# download DIR PACKAGE... : says what comes and how much of it.
download() {
  local dir=$1 uris
  shift
  mkdir -p "$dir"
  uris=$(cd "$dir" && private_apt apt-get download --print-uris "$@")
  say "downloading $(wc -l <<< "$uris") packages, $(awk '{ sum += $3 } END { printf "%.0f MB", sum / 1e6 }' <<< "$uris"):"
  awk '{ printf "vm:   %6.1f MB  %s\n", $3 / 1e6, $2 }' <<< "$uris" >&2
  (cd "$dir" && private_apt apt-get download -qq "$@")
}
