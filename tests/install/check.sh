#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/install/check.sh BUILD STAGE: installs into an empty staging folder, looks at what is there, and builds and runs
# example.cpp with nothing but what pkg-config says, shared and static.
set -uo pipefail
build=$(realpath "$1")
stage=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failed=0

check() {
    local name=$1
    shift
    if "$@"; then
        echo "PASS: $name"
    else
        echo "FAIL: $name"
        failed=1
    fi
}

option() {
    meson introspect --buildoptions "$build" | python3 -c '
import json, sys
print(next(option["value"] for option in json.load(sys.stdin) if option["name"] == sys.argv[1]))' "$1"
}

rm -rf "$stage"
mkdir -p "$stage"
stage=$(realpath "$stage")
prefix=$(option prefix)
libdir=$stage$prefix/$(option libdir)
if ! meson install -C "$build" --no-rebuild --quiet --destdir "$stage" >"$stage.log" 2>&1; then
    cat "$stage.log"
    echo "FAIL: meson install"
    exit 1
fi

nothing_outside_prefix() {
    local foreign
    foreign=$(find "$stage" -type f -not -path "$stage$prefix/*")
    [[ -z $foreign ]] || {
        echo "$foreign"
        return 1
    }
}
check "nothing is installed outside $prefix" nothing_outside_prefix

every_header_installed() { diff -r "$here/../../include/upcie" "$stage$prefix/include/upcie"; }
check "every public header is installed as it is" every_header_installed

library=$(find "$libdir" -name 'libupcie.so.*.*.*' -type f)
soname=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
soname_versioned() { [[ $soname =~ ^libupcie\.so\.[0-9]+\.[0-9]+$ && -e $libdir/$soname ]]; }
check "the soname carries major and minor version: $soname" soname_versioned

# Whatever the shared library defines for others is upcie's, or an inline of the standard library or of fmt.
only_upcie_symbols() {
    local foreign
    foreign=$(nm -DC --defined-only "$library" | awk '$2 ~ /[TDBR]/' | cut -d' ' -f3- |
        grep -vE '(^|[ *&(])upcie::|^(vtable|typeinfo|typeinfo name|guard variable|VTT|construction vtable) for ' || true)
    [[ -z $foreign ]] || {
        printf 'not in namespace upcie:\n%s\n' "$foreign" | head -20
        return 1
    }
}
check "nothing leaks into the global namespace" only_upcie_symbols

export PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$libdir/pkgconfig
# Only the project's own paths get the staging prefix: fmt is the machine's.
flags() { pkg-config "$@" upcie | sed "s#$stage/usr/\(include\|lib\)\b#/usr/\1#g"; }
version_agrees() { [[ $(pkg-config --modversion upcie) == "$(meson introspect --projectinfo "$build" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')" ]]; }
check "pkg-config knows the version" version_agrees

# A drive whose fourth block somebody else wrote: the example has to answer just that.
image=$stage.img
truncate -s 1M "$image"
head -c 4096 /dev/urandom >"$stage.block"
dd if="$stage.block" of="$image" bs=4096 seek=3 conv=notrunc status=none
reads_the_block() { "$@" "sim:size=1M,lba=4096,file=$image" 3 | cmp - "$stage.block"; }

readme_shows_it() {
    diff <(sed -n '/^```cpp$/,/^```$/p' "$here/../../README.md" | sed '1d;$d') "$here/example.cpp"
}
check "the README's program is the example" readme_shows_it

example_shared() {
    # shellcheck disable=SC2046
    g++ -std=c++20 -Wall -Wextra -Werror "$here/example.cpp" -o "$stage/example-shared" $(flags --cflags --libs) &&
        objdump -p "$stage/example-shared" | grep -q "NEEDED *$soname" &&
        reads_the_block env LD_LIBRARY_PATH="$libdir" "$stage/example-shared"
}
check "the example builds against the shared library and reads a block" example_shared

example_static() {
    # shellcheck disable=SC2046
    g++ -std=c++20 -Wall -Wextra -Werror "$here/example.cpp" -o "$stage/example-static" $(flags --cflags) \
        $(flags --static --libs | sed 's/-lupcie\b/-l:libupcie.a/') &&
        ! objdump -p "$stage/example-static" | grep -q 'NEEDED *libupcie' &&
        reads_the_block "$stage/example-static"
}
check "the example builds against the static library and reads a block" example_static

if [[ -d $stage$prefix/bin ]]; then
    for program in "$stage$prefix"/bin/*; do
        explains_itself() { env -u LD_LIBRARY_PATH "$program" --help >/dev/null; }
        check "installed $(basename "$program") runs and explains itself" explains_itself
        has_manual() { compgen -G "$stage$prefix/share/man/man1/$(basename "$program").1*" >/dev/null; }
        check "installed $(basename "$program") has a manual page" has_manual
    done
fi
exit $failed
