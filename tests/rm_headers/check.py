#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the vocabulary of the library with the public headers: every name, number and size of a tree.

usage: UPCIE_RM_HEADERS=TREE[:TREE...] check.py DUMP

TREE is the top of NVIDIA's open kernel modules of some version (Debian: `apt-get source
nvidia-open-gpu-kernel-modules`); DUMP the program rm_vocabulary_dump. Exit status 77, "skipped", without a tree. A size that
the library only assumes, since nobody had looked at that branch, may be wrong: that is reported and is no failure.
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def facts(lines):
    """{kind: {number: [fields behind the number]}}; pointers keep all their offsets."""
    found = {}
    for line in lines:
        kind, number, *rest = line.split("\t")
        found.setdefault(kind, {}).setdefault(int(number, 16), []).append(rest)
    return found


def compare(tree, dump):
    """Prints what differs; (checked, wrong, wrongly assumed)."""
    extracted = subprocess.run([sys.executable, HERE / "extract.py", tree], capture_output=True, text=True, check=False)
    if extracted.returncode != 0:
        sys.exit(extracted.stderr)
    theirs = facts(extracted.stdout.splitlines())
    version = theirs.pop("branch")[0][0][0]
    if re.fullmatch(r"\d+(\.\d+){0,2}", version) is None:
        sys.exit(f"check.py: {tree} does not say its version; name the folder after it, like 550.163.01")
    printed = subprocess.run([dump, version], capture_output=True, text=True, check=True)
    ours = facts(printed.stdout.splitlines())
    checked = wrong = assumed = 0
    for kind in ("escape", "class", "control", "uvm", "status"):
        for number, [(name, size), *_] in sorted(theirs[kind].items()):
            checked += 1
            row = ours[kind].get(number)
            if row is None:
                new = version.split(".")[0] not in ("535", "555")
                print(f"{'new' if new else 'WRONG'}: {version} {kind} 0x{number:x} {name} is not in the vocabulary")
                wrong += not new
                continue
            own_name, own_size, looked_at = row[0]
            renamed = own_name != name and not (kind == "escape" and number == 0x5f)
            if renamed and looked_at == "seen":
                print(f"WRONG: {version} {kind} 0x{number:x} is {name}, not {own_name}")
                wrong += 1
            elif size not in ("-", own_size):
                print(f"{'WRONG' if looked_at == 'seen' else 'assumed wrongly'}: {version} {kind} 0x{number:x} {name} has "
                      f"{size} bytes, not {own_size}")
                wrong += looked_at == "seen"
                assumed += looked_at != "seen"
    for number, rows in ours["pointer"].items():
        offsets = {row[1] for row in theirs["pointer"].get(number, []) if row[0].startswith("control:")}
        for name, offset, _ in rows:
            checked += 1
            if number in theirs["control"] and offset not in offsets:
                print(f"WRONG: {version} control 0x{number:x} has no pointer at {offset} ({name})")
                wrong += 1
    print(f"{version}: {checked} facts compared, {wrong} wrong, {assumed} sizes wrongly assumed")
    return wrong


def main():
    """Compares with each tree."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trees = [tree for tree in os.environ.get("UPCIE_RM_HEADERS", "").split(":") if tree]
    if not trees:
        print("SKIP: UPCIE_RM_HEADERS names no header tree of NVIDIA's open kernel modules (apt-get source "
              "nvidia-open-gpu-kernel-modules)")
        sys.exit(77)
    # A list and not any() at once: every tree is to be compared.
    sys.exit(1 if any([compare(tree, sys.argv[1]) for tree in trees]) else 0)


if __name__ == "__main__":
    main()
