#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the test programs that Meson knows of and counts what they report.

GoogleTest programs are counted test by test from their XML report, so that a skipped test is seen with its reason; any
other program counts as one test by its exit status. A program that dies before it could report is a failure.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml


def introspect(build, what):
    text = subprocess.run(["meson", "introspect", what, build], check=True, capture_output=True, text=True).stdout
    return json.loads(text)


def load_tests(build, suites):
    tests = []
    for test in introspect(build, "--tests"):
        names = {suite.split(":")[-1] for suite in test["suite"]}
        if names & set(suites):
            tests.append(test)
    return tests


class Outcome:
    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.lines = []


def end_of(text, lines=60):
    return "\n".join("    " + line for line in text.splitlines()[-lines:])


def read_report(report, outcome):
    for case in xml.parse(report).getroot().iter("testcase"):
        full_name = f'{case.get("classname")}.{case.get("name")}'
        failures = case.findall("failure")
        skipped = case.find("skipped")
        if failures:
            outcome.failed += 1
            outcome.lines.append(f"  FAIL: {full_name}")
            outcome.lines += [end_of(failure.get("message", "")) for failure in failures]
        elif skipped is not None:
            outcome.skipped += 1
            reason = " ".join(skipped.get("message", "").split("\n")[1:]).strip()
            outcome.lines.append(f"  SKIP: {full_name}: {reason or 'gives no reason'}")
        elif case.get("status") == "run":
            outcome.passed += 1


def run_test(test, arguments):
    outcome = Outcome(test["name"])
    report = pathlib.Path(arguments.build) / "results" / (test["name"].replace("/", "_") + ".xml")
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = arguments.wrapper + test["cmd"]
    is_gtest = test.get("protocol") == "gtest"
    if is_gtest:
        command = command + [f"--gtest_output=xml:{report}", "--gtest_brief=1"]
        if arguments.filter:
            command.append(f"--gtest_filter={arguments.filter}")
    environment = {**os.environ, **test["env"]}
    begin = time.monotonic()
    limit = (test.get("timeout") or 120) * arguments.patience
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env=environment, cwd=test.get("workdir") or arguments.build, start_new_session=True, text=True,
                          errors="replace") as process:
        try:
            output, _ = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = f"none within {limit} s"
    if is_gtest and report.exists():
        read_report(report, outcome)
        if status != 0 and outcome.failed == 0:
            outcome.failed += 1
            outcome.lines.append(f"  FAIL: {outcome.name}: exit status {status} though no test failed\n{end_of(output)}")
    elif not is_gtest and status == 0:
        outcome.passed = 1
    elif not is_gtest and status == 77:
        outcome.skipped = 1
        outcome.lines.append(f"  SKIP: {outcome.name}:\n{end_of(output, 3)}")
    else:
        outcome.failed += 1
        outcome.lines.append(f"  FAIL: {outcome.name}: exit status {status}\n{end_of(output)}")
    outcome.seconds = time.monotonic() - begin
    return outcome


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--build", required=True)
    parser.add_argument("--list", action="store_true", help="print the programs' build targets and run nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--wrapper", type=str.split, default=[], help="what runs a program of another architecture")
    parser.add_argument("--patience", type=int, default=1, help="multiplies every time limit")
    parser.add_argument("--filter", help="a GoogleTest filter for all programs")
    parser.add_argument("--totals", help="file for 'passed failed skipped'")
    arguments = parser.parse_args()
    tests = load_tests(arguments.build, arguments.suites)
    if arguments.list:
        root = pathlib.Path(arguments.build).resolve()
        parts = [pathlib.Path(part) for test in tests for part in test["cmd"]]
        # What a program opens at run time is no part of it, and has to be built too.
        files = {target["id"]: target["filename"] for target in introspect(arguments.build, "--targets")}
        parts += [pathlib.Path(file) for test in tests for needed in test["depends"] for file in files.get(needed, [])]
        programs = {part.relative_to(root) for part in parts if part.is_absolute() and root in part.parents}
        print(*sorted(programs), sep="\n")
        return 0

    passed = failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(lambda test: run_test(test, arguments), tests):
            passed += outcome.passed
            failed += outcome.failed
            skipped += outcome.skipped
            print(f"{outcome.name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
                  f" ({outcome.seconds:.1f} s)", *outcome.lines, sep="\n", flush=True)
    if not tests:
        print(f"FAIL: no test program belongs to {' '.join(arguments.suites)}")
        failed = 1
    if arguments.totals:
        pathlib.Path(arguments.totals).write_text(f"{passed} {failed} {skipped}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
