# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of the program itself; each is called with the path of the upcie to test.
set -u
upcie=${1:?path of upcie}
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect STATUS TEXT ARGUMENT...: runs upcie; its status has to be STATUS and its output has to hold TEXT.
expect() {
    local status=$1 text=$2 answer=0
    shift 2
    "$upcie" "$@" >"$work/out" 2>"$work/err" || answer=$?
    if [ "$answer" -ne "$status" ] || ! cat "$work/out" "$work/err" | grep -qF -- "$text"; then
        echo "FAIL: upcie $*"
        echo "      status $answer, expected $status; expected text: $text"
        sed 's/^/      | /' "$work/out" "$work/err"
        failed=1
    fi
}

# expect_json PYTHON ARGUMENT...: runs upcie with --json; the expression over `d`, the document, has to hold.
expect_json() {
    local check=$1 answer=0
    shift
    "$upcie" "$@" --json >"$work/out" 2>"$work/err" || answer=$?
    if ! python3 - "$check" "$answer" "$work/out" <<'PYTHON'; then
import json, sys
d = json.load(open(sys.argv[3]))
for field in ("schema", "tool", "version", "kernel", "device", "path", "exit_code", "error", "result"):
    assert field in d, "no field " + field
assert d["exit_code"] == int(sys.argv[2]), "exit_code is %s, the process ended with %s" % (d["exit_code"], sys.argv[2])
assert eval(sys.argv[1]), "does not hold: " + sys.argv[1]
PYTHON
        echo "FAIL: upcie $* --json"
        sed 's/^/      | /' "$work/out" "$work/err"
        failed=1
    fi
}
