#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# docs/findings: every page and the table of all are what upcie makes of the report.json files that are there. With
# --update they are written instead of compared:
#   tests/cli/findings.sh build/tools/upcie --update
set -u
upcie=${1:?path of upcie}
update=${2:-}
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
# The columns of the table, in this order.
machines=(a6000-580.173.02 rx7800xt-rocm h200-580.159.04 h200-580.159.04-uid-1000)
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# held FILE: what $work/new has, FILE has.
held() {
    if [ "$update" = --update ]; then
        cp "$work/new" "$1"
    elif ! diff -u "$1" "$work/new"; then
        echo "FAIL: $1 is not what upcie makes of the reports: tests/cli/findings.sh build/tools/upcie --update"
        failed=1
    fi
}

# A GPU's report that has no column is missed in every row: what was found as another user stands nowhere else.
for report in "$docs"/findings/*/report.json; do
    machine=$(basename "$(dirname "$report")")
    if grep -q "^| GPU's driver |" "${report%.json}.md" && [[ " ${machines[*]} " != *" $machine "* ]]; then
        echo "FAIL: $machine has a GPU and no column in docs/gpu-comparison.md: add it to machines=() here"
        failed=1
    fi
done
reports=()
for machine in "${machines[@]}"; do
    reports+=("$docs/findings/$machine/report.json")
done
pages=0
for report in "$docs"/findings/*/report.json; do
    "$upcie" report --render "$report" >"$work/new" || { echo "FAIL: $report cannot be read"; failed=1; }
    held "$(dirname "$report")/report.md"
    pages=$((pages + 1))
done
"$upcie" report --compare "${reports[@]}" >"$work/new" || { echo "FAIL: no table"; failed=1; }
held "$docs/gpu-comparison.md"
# A page that no report stands behind was written by hand.
for page in "$docs"/findings/*/*.md; do
    if [ ! -f "$(dirname "$page")/report.json" ] || [ "$(basename "$page")" != report.md ]; then
        echo "FAIL: $page has no report.json beside it"
        failed=1
    fi
done
[ "$failed" -eq 0 ] && echo "$pages pages and the table are as upcie makes them"
exit "$failed"
