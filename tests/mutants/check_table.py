#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Keeps the table of tests/README.md true: each test it names is one of a built program, each mutant a file, each mutant
file has a row, and a mutant's own header names tests that exist.

In the table a test stands as `unit_nvme QueuePairTest.Name` or `script tests/NAME.sh`, and a mutant as `room-name`, each
in backquotes.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent


def tests_of(program):
    text = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = set(), ""
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.add(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    known = {}
    troubles = []

    def look_for(program, pattern, where):
        if program == "script":
            if not (here.parent.parent / pattern).is_file():
                troubles.append(f"{where}: there is no script {pattern}")
            return
        if program not in known:
            path = next((arguments.build / folder / program for folder in ("tests/unit", "tests/conformance")
                         if (arguments.build / folder / program).exists()), None)
            known[program] = tests_of(path) if path else None
        if known[program] is None:
            troubles.append(f"{where}: there is no test program {program}")
            return
        for part in pattern.split(":"):
            if not any(fnmatch.fnmatchcase(name, part) for name in known[program]):
                troubles.append(f"{where}: {program} has no test {part}")

    rows = [line for line in (here.parent / "README.md").read_text().splitlines() if line.startswith("|")]
    in_table = set()
    tests = 0
    for row in rows:
        for program, pattern in re.findall(r"`((?:unit|conformance|script)\w*) ([\w./*:-]+)`", row):
            look_for(program, pattern, "tests/README.md")
            tests += 1
        in_table |= set(re.findall(r"`([a-z]+-[a-z0-9-]+)`", row))
    files = {path.stem for path in here.glob("*.patch")}
    troubles += [f"tests/README.md names the mutant {name}; there is no such file" for name in sorted(in_table - files)]
    troubles += [f"{name}.patch has no row in tests/README.md" for name in sorted(files - in_table)]
    for path in sorted(here.glob("*.patch")):
        for program, pattern in re.findall(r"^test: (\S+) (\S+)$", path.read_text().split("\n--- ")[0], re.M):
            look_for(program, pattern, path.name)
    if tests == 0:
        troubles.append("tests/README.md names no test")
    print("\n".join(troubles) or f"{tests} tests and {len(files)} mutants, all there")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
