# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# install: the library as a packager sees it, and a program of someone else's built against it.

level_install() {
    setup build tests
    configure_native
    # What is installed, and no test program: this level is quick on its own too.
    compile build $(python3 "$top/tests/install/installed_targets.py" "$top/build")
    "$top/tests/install/check.sh" "$top/build" "$top/build/stage" | tee "$results/install.log" || true
    count "$(grep -c '^PASS' "$results/install.log" || true)" "$(grep -c '^FAIL' "$results/install.log" || true)" 0
}
