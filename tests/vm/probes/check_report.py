#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares a probe's JSON report with what is expected of it.

    check_report.py REPORT EXPECTED

EXPECTED has one line for each thing expected; '#' begins a comment:

    [PROCESS:]NAME = VALUE        an observation's value ('!=', '>=' and '<=' too); NAME may use * for any part
    control NAME = held           or failed
    verdict TOPIC = ANSWER        'inconclusive' included
    field PATH = VALUE            a field of the report itself, dots between levels

A line that nothing in the report matches is a failure: what was not looked at was not as expected. Prints every line that
does not hold with what there was instead; the exit status is 1 then, 2 for a report or line that cannot be read.
"""
import fnmatch
import json
import re
import sys

SCHEMA = 1
LINE = re.compile(r"^(?:(control|verdict|field)\s+)?(?:(\w+):)?(\S+)\s*(!=|>=|<=|=)\s*(.+)$")


def plain(value):
    """As the expectation files write values."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(plain(one) for one in value)
    return str(value)


def holds(value, relation, expected):
    if relation == "=":
        return plain(value) == expected
    if relation == "!=":
        return plain(value) != expected
    try:
        number, bound = float(value), float(expected)
    except (TypeError, ValueError):
        return False
    return number >= bound if relation == ">=" else number <= bound


def field(report, path):
    for part in path.split("."):
        report = report.get(part) if isinstance(report, dict) else None
    return report


def matches(report, kind, process, name):
    """The (label, value) pairs that a line is about."""
    if kind == "field":
        return [(name, field(report, name))]
    if kind == "verdict":
        answers = (report.get("verdict") or {}).get("answers", [])
        return [(one["topic"], one["answer"]) for one in answers if fnmatch.fnmatchcase(one["topic"], name)]
    found = []
    for one in report["controls" if kind == "control" else "observations"]:
        if process and one.get("process") != process:
            continue
        if not fnmatch.fnmatchcase(one["name"], name):
            continue
        value = one["value"]
        if kind == "control":
            value = "held" if one["held"] else "failed"
        found.append((one["name"], value))
    return found


def main(report_path, expected_path):
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    if report.get("schema") != {"name": "upcie-probe", "version": SCHEMA}:
        print(f"{report_path}: schema {report.get('schema')}, this script knows version {SCHEMA}")
        return 2
    if not report["asked"]:
        print(f"{report_path}: not asked: {report['reason']} ({report['remedy']})")
    faults = 0
    count = 0
    with open(expected_path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            text = text.split("#", 1)[0].strip()
            if not text:
                continue
            line = LINE.match(text)
            if not line:
                print(f"{expected_path}:{number}: cannot be read: {text}")
                return 2
            kind, process, name, relation, expected = line.groups()
            count += 1
            found = matches(report, kind, process, name)
            if not found:
                print(f"{text}: not in the report")
                faults += 1
            for label, value in found:
                if not holds(value, relation, expected.strip()):
                    print(f"{text}: {label} is {plain(value)}")
                    faults += 1
    if count == 0:
        print(f"{expected_path}: expects nothing")
        return 2
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2]))
