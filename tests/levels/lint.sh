# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# format, scripts, tidy: what a reader would otherwise have to look for.

cpp_files() { git -C "$top" ls-files '*.hpp' '*.cpp' | grep -v '^src/kmod/'; }

level_format() {
    setup lint
    local files unformatted=() file
    mapfile -t files < <(cpp_files)
    mapfile -t unformatted < <(clang-format-14 --dry-run --Werror "${files[@]}" 2>&1 |
        sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1/p' | sort -u)
    for file in "${unformatted[@]}"; do
        say "FAIL: $file is not formatted: clang-format-14 -i $file"
    done
    count $((${#files[@]} - ${#unformatted[@]})) ${#unformatted[@]} 0
}

level_scripts() {
    setup lint
    local bad=0 all=0 file
    while read -r file; do
        all=$((all + 1))
        # 1091, 2034, 2154: files sourced share names; 2046: where words are meant to part.
        if ! shellcheck -x -e SC1091,SC2034,SC2046,SC2154 -S warning "$file"; then
            say "FAIL: $file"
            bad=$((bad + 1))
        fi
    done < <(git -C "$top" ls-files '*.sh' .ci/run)
    count $((all - bad)) $bad 0
}

# The library's sources; a header is seen through the sources that include it. One count a source.
level_tidy() {
    setup build tests lint clang
    configure_native
    local log=$results/tidy.log sources bad
    mapfile -t sources < <(git -C "$top" ls-files 'src/*.cpp' | grep -v '^src/kmod/')
    printf '%s\n' "${sources[@]}" |
        xargs -P "$jobs" -n 1 "$top/tests/tidy_one.sh" "$top/build" >"$log" 2>&1 || true
    grep -v '^PASS' "$log" || true
    bad=$(grep -c '^FAIL' "$log" || true)
    count $((${#sources[@]} - bad)) "$bad" 0
}
