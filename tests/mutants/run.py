#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Takes each guarded check out, one at a time, and requires that the test named for it then fails.

A mutant is a patch, tests/mutants/ROOM-NAME.patch, that starts with a header:

    pitfall: the line of the table in tests/README.md that the check is for
    test: unit_nvme QueuePairTest.LateCompletion*:QueuePairTest.Other

`test` names a test program and a GoogleTest filter, or `script` and a script of the tree; it may come several times, and
each must fail. A failed assertion, a crash, an endless wait all count; a mutant that does not compile, or a filter that
selects nothing, proves nothing and is an error. So is a patch that no longer applies: repair it together with the code.

A third kind of line is for mutants of a header that half the library includes: `alone: tests/unit/nvme/prp_test.cpp` says
that this one file of the test, compiled with the mutant and linked before the library as it was, shows it.

    tests/mutants/run.py [--work DIR] [NAME...]
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

here = pathlib.Path(__file__).resolve().parent
top = here.parent.parent
time_limit = 8  # seconds for one run of the named tests; unmutated they take well under one


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        self.path = path
        text = path.read_text()
        header = text.split("\n--- ")[0]
        self.pitfall = "".join(re.findall(r"^pitfall: (.+)$", header, re.M))
        self.tests = [tuple(line.split(None, 1)) for line in re.findall(r"^test: (.+)$", header, re.M)]
        self.alone = "".join(re.findall(r"^alone: (.+)$", header, re.M))
        self.changed = sorted(re.findall(r"^\+\+\+ b/(\S+)", text, re.M))
        if self.alone and not all(name.endswith(".hpp") for name in self.changed):
            sys.exit(f"{path}: 'alone' is for mutants of headers: a source would stay as it was")
        if not self.pitfall or not self.tests or any(len(test) != 2 for test in self.tests):
            sys.exit(f"{path}: the header must have 'pitfall:' and 'test: PROGRAM FILTER'")

    def programs(self):
        return sorted({program for program, _ in self.tests if program != "script"})


def sync_tree(tree):
    """Copies what git tracks or would track, and touches only files that differ: ninja then rebuilds only those."""
    listed = subprocess.run(["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (top / name).is_file()}
    for name in wanted:
        source, target = top / name, tree / name
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for path in list(tree.rglob("*")):
        name = path.relative_to(tree)
        if name.parts[0] != "build" and path.is_file() and str(name) not in wanted:
            path.unlink()


class Bench:
    """The copy of the tree and its build folder, which lies where build/ lies in the tree itself: ccache then has most of
    it from there."""

    def __init__(self, work, jobs, options):
        self.tree = work / "tree"
        self.build = self.tree / "build"
        self.jobs = jobs
        self.tree.mkdir(parents=True, exist_ok=True)
        sync_tree(self.tree)
        if not (self.build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self.build, self.tree, *options], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "CXX": str(here / "compiler.sh")})

    def compile_all(self):
        """The unit tests, and what they open at run time."""
        listed = subprocess.run([sys.executable, top / "tests" / "run_programs.py", "--build", self.build, "--list", "unit"],
                                check=True, capture_output=True, text=True)
        return self.ninja(listed.stdout.split())

    def compile(self, programs):
        return self.ninja([self.target(program) for program in programs]) if programs else (True, "")

    def ninja(self, targets):
        result = subprocess.run(["ninja", "-C", self.build, "-j", str(self.jobs), *targets],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return result.returncode == 0, result.stdout

    def compile_alone(self, source):
        """One test file with the headers as they are now, before everything else as it was built: what it defines wins."""
        commands = json.loads((self.build / "compile_commands.json").read_text())
        path = (self.tree / source).resolve()
        command = next((entry["command"] for entry in commands
                        if (self.build / entry["file"]).resolve() == path), None)
        if command is None:
            return False, f"no program is made of {source}"
        words = shlex.split(command)
        words[words.index("-o") + 1] = str(self.build / "alone.o")
        words = [word for index, word in enumerate(words)
                 if word not in ("-MD", "-MQ", "-MF") and words[index - 1] not in ("-MQ", "-MF")]
        link = [words[0], "-fuse-ld=lld", self.build / "alone.o", self.build / "tests/unit/libunit_support.a",
                self.build / "src/libupcie.a", "-lgtest_main", "-lgtest", "-lgmock", "-lfmt", "-pthread",
                "-o", self.build / "alone"]
        output = ""
        for step in (words, link):
            result = subprocess.run(step, cwd=self.build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output += result.stdout
            if result.returncode != 0:
                return False, output
        return True, output

    def target(self, program):
        return f"tests/unit/{program}"

    def run(self, program, test_filter, alone=False):
        """What became of the tests: 'passed', 'failed ...', 'skipped', or 'none' when the filter selects nothing."""
        if program == "script":
            script = subprocess.run([self.tree / test_filter], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return ("passed" if script.returncode == 0 else "failed"), script.stdout
        command = [self.build / ("alone" if alone else self.target(program)), f"--gtest_filter={test_filter}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              start_new_session=True, text=True, errors="replace") as process:
            try:
                output, _ = process.communicate(timeout=time_limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "failed (endless)", ""
        if process.returncode < 0:
            return f"failed ({signal.Signals(-process.returncode).name})", output
        if not re.search(r"^\[ RUN ", output, re.M):
            return "none", output
        if process.returncode == 0 and "[  SKIPPED ]" in output:
            return "skipped", output
        return ("passed" if process.returncode == 0 else "failed"), output

    def patch(self, mutant, reverse=False):
        result = subprocess.run(["git", "apply", "--whitespace=nowarn", *(["-R"] if reverse else []), mutant.path],
                                cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "GIT_CEILING_DIRECTORIES": str(self.tree.parent)})
        return result.returncode == 0, result.stdout


def check(bench, mutant):
    """None when every named test fails without the check, else what is wrong with the mutant."""
    times = {name: (bench.tree / name).stat() for name in mutant.changed if (bench.tree / name).exists()}
    applies, output = bench.patch(mutant)
    if not applies:
        return f"the patch does not apply any more\n{output}"
    try:
        compiles, output = bench.compile_alone(mutant.alone) if mutant.alone else bench.compile(mutant.programs())
        if not compiles:
            return "does not compile, which proves nothing\n" + "\n".join(output.splitlines()[-15:])
        for program, test_filter in mutant.tests:
            verdict, output = bench.run(program, test_filter, bool(mutant.alone))
            if not verdict.startswith("failed"):
                return f"survived: {program} --gtest_filter={test_filter} {verdict} without the check"
    finally:
        bench.patch(mutant, reverse=True)
        if mutant.alone:  # nothing else was built while the header was changed, so nothing is stale
            for name, before in times.items():
                os.utime(bench.tree / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="mutants to run; all of them when none is named")
    parser.add_argument("--work", type=pathlib.Path, default=top / "build-mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--setup", type=shlex.split, default=["-Doptimization=0", "-Ddebug=false"],
                        help="Meson's options for the build folder; those of build/ make it quick")
    arguments = parser.parse_args()
    mutants = [Mutant(path) for path in sorted(here.glob("*.patch"))]
    if arguments.names:
        wanted = {name.removesuffix(".patch") for name in arguments.names}
        mutants = [mutant for mutant in mutants if mutant.name in wanted]
    if not mutants:
        sys.exit("mutants: there is no such mutant")

    bench = Bench(arguments.work.resolve(), arguments.jobs, arguments.setup)
    begin = time.monotonic()
    compiles, output = bench.compile_all()
    if not compiles:
        sys.exit(output + "\nmutants: the tree does not build as it stands")
    print(f"mutants: the tree as it stands is built ({time.monotonic() - begin:.0f} s)", flush=True)
    passed = failed = 0
    # The named tests must pass with the check in place, or their failing without it says nothing.
    sound = []
    os.environ["UPCIE_MUTANT"] = "1"  # compiler.sh: a mutant may have warnings, and is compiled once
    for mutant in mutants:
        for program, test_filter in mutant.tests:
            verdict, output = bench.run(program, test_filter)
            if verdict != "passed":
                print(f"FAIL: {mutant.name}: {program} --gtest_filter={test_filter}: {verdict} with the check in place")
                print("\n".join("    " + line for line in output.splitlines()[-20:]))
                failed += 1
                break
        else:
            sound.append(mutant)
    # Neighbours change the same file, so that what one made stale the next one changes anyway.
    for mutant in sorted(sound, key=lambda one: (one.alone, one.changed, one.programs(), one.name)):
        begin = time.monotonic()
        trouble = check(bench, mutant)
        took = time.monotonic() - begin
        if trouble:
            failed += 1
            print(f"FAIL: {mutant.name} {trouble} ({took:.0f} s)", flush=True)
        else:
            passed += 1
            caught = " and ".join(" ".join(test) for test in mutant.tests)
            print(f"PASS: {mutant.name} is caught by {caught} ({took:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
