# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# aarch64: the unit tests built for Arm, where memory ordering is weaker, and run by qemu-user. By clang, in half of GCC's
# time; the cross GCC gives headers, libraries and linker, and barriers.sh looks at its code too.

# Debian's arm64 development packages, unpacked in the cache: the machine's own package state stays as it is.
aarch64_sysroot() {
    local sysroot=$cache/aarch64/sysroot work=$cache/aarch64/apt deb
    if [[ ! -f $sysroot/complete-with-lzma ]]; then
        rm -rf "$sysroot" "$work"
        mkdir -p "$sysroot" "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
        : >"$work/status"
        cat >"$work/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$work";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
EOF
        (
            cd "$work/debs"
            export APT_CONFIG=$work/apt.conf
            apt-get -q -o Acquire::Retries=3 update
            apt-get -q -o Acquire::Retries=3 download libfmt-dev libfmt9 libgtest-dev libgmock-dev libexpected-dev \
                libcli11-dev nlohmann-json3-dev liblzma-dev
        ) >"$cache/aarch64/download.log" 2>&1 || {
            cat "$cache/aarch64/download.log"
            return 1
        }
        for deb in "$work"/debs/*.deb; do
            dpkg -x "$deb" "$sysroot"
        done
        # The static libraries where there are any: the programs then need the cross compiler's own libc, and fmt, which
        # Debian has as a shared library alone.
        find "$sysroot" -name '*.so*' ! -name 'libfmt.so*' -delete
        rm -rf "$work"
        : >"$sysroot/complete-with-lzma"
    fi
    say "$sysroot"
}

level_aarch64() {
    setup build clang aarch64
    one "memory barriers are where Arm needs them" "$top/tests/aarch64/barriers.sh"
    local sysroot cross=$top/build-aarch64.ini programs
    sysroot=$(aarch64_sysroot)
    cat >"$cross" <<EOF
[binaries]
cpp = ['ccache', 'clang++-14', '--target=aarch64-linux-gnu']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu', '-E', 'LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu']
[built-in options]
cpp_args = ['-isystem', '$sysroot/usr/include', '-Wno-shadow']
cpp_link_args = ['-fuse-ld=lld', '-L$sysroot/usr/lib/aarch64-linux-gnu']
[properties]
sys_root = '$sysroot'
pkg_config_libdir = '$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig:$sysroot/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'cortex-a72'
endian = 'little'
EOF
    configure build-aarch64 --cross-file "$cross" "${unity[@]}" -Ddefault_library=static -Doptimization=1 -Ddebug=false \
        -Dbenchmarks=false
    programs=$(test_programs build-aarch64 unit conformance)
    # shellcheck disable=SC2086 # one target a word
    compile build-aarch64 $programs
    UPCIE_USER_EMULATION=1 run_programs build-aarch64 unit conformance -- --patience 10 \
        --wrapper "qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu"
}
