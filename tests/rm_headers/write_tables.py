#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/rm/tables/*.inc from what extract.py found in several header trees and from later_branches.tsv.

usage: write_tables.py FACTS.tsv... (one file a tree, oldest branch first; each the output of extract.py)

Run it when a newer tree can be had; the tables are in git, and check.sh compares them with any tree.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "src" / "rm" / "tables"
HEAD = "// SPDX-License-Identifier: BSD-3-Clause\n// {}\n"
MOST_CHANGES = 6

ROLES = [
    ("client", r"^NV01_ROOT"), ("device", r"^NV01_DEVICE_0$"), ("subdevice", r"^NV20_SUBDEVICE_0$"),
    ("usermode", r"_USERMODE_A$"), ("channel_group", r"_CHANNEL_GROUP_"), ("context_share", r"_CONTEXT_SHARE_"),
    ("channel", r"_CHANNEL_GPFIFO"), ("copy", r"_DMA_COPY_"), ("compute", r"_COMPUTE_[A-Z]$"),
    ("video", r"VIDEO_|_SW_SESSION$"), ("event", r"EVENT"), ("address_space", r"VASPACE"),
    ("virtual_memory", r"MEMORY_VIRTUAL$"), ("debugger", r"DEBUGGER|PROFILER|COUNTER_COLLECTION"),
    ("peer_to_peer", r"P2P"),
    ("display", r"DISP|CURSOR|OVERLAY|_CORE_CHANNEL|_BASE_CHANNEL|WINDOW|ANY_CHANNEL_DMA|VBLANK|RG_LINE"),
    ("memory", r"MEMORY|_FB_SEGMENT|SEMAPHORE_SURFACE|USER_SHARED_DATA"),
    ("graphics", r"^(FERMI|KEPLER|MAXWELL|PASCAL|VOLTA|TURING|AMPERE|ADA|HOPPER|BLACKWELL)_"
                 r"(A|B|TWOD_A|INLINE_TO_MEMORY_[AB])$"),
    ("software", r"_SW$|SOFTWARE|BINAPI|TIMER"),
]

NOTES = {
    ("class", 0x40): "video memory; what cuMemAlloc becomes from 550 on, together with UVM 73 and 33",
    ("class", 0x41): "the root that libcuda allocates; handles of its children count up from 0x5c000001",
    ("class", 0x71): "memory of the process itself, pinned: cuMemHostAlloc and cuMemHostRegister, by RM_ALLOC_MEMORY",
    ("class", 0x79): "an eventfd-like file descriptor that the driver signals; it must not poll readable by itself",
    ("class", 0x2081): "takes controls that no header describes",
    ("class", 0x9067): "channels of one group that share an address space",
    ("escape", 0x27): "the path of pinned host memory, class 0x71; sent to /dev/nvidiaN",
    ("escape", 0x2a): "client@0 object@4 cmd@8 flags@12 params@16 size@24 status@28",
    ("escape", 0x2b): "32 bytes in the old form (NVOS21), 48 with rights (NVOS64); libcuda passes size 0: it follows from the class",
    ("escape", 0x32): "defined, but the kernel dispatches it nowhere",
    ("escape", 0x33): "defined, but the kernel dispatches it nowhere",
    ("escape", 0x37): "defined, but the kernel dispatches it nowhere",
    ("escape", 0x38): "defined, but the kernel dispatches it nowhere",
    ("escape", 0x4a): "used by libcuda 535, not by 550 and later",
    ("escape", 0x4e): "the argument ends with the fd of the node that the mapping is then made through",
    ("escape", 0x57): "graphics and video; not the compute path of 550 and later",
    ("escape", 0x58): "graphics and video; not the compute path of 550 and later",
    ("escape", 0x5f): "RM_NVLOG_CTRL at 535",
    ("escape", 0x5c): "defined, but never dispatched: control 0x3d05 exports an object",
    ("escape", 0x5d): "defined, but never dispatched: control 0x3d06 imports an object",
    ("escape", 0xc8): "an array of 32 cards of 72 bytes",
    ("escape", 0xd2): "sent by NVML; libcuda asks control 0x101 instead",
    ("escape", 0xd3): "an indirection for arguments too large for a request's 14 bits of size",
    ("escape", 0xd4): "an array of GPU ids, of the length that the request says",
    ("escape", 0xd9): "what cuMemGetHandleForAddressRange becomes: memory as a dma-buf",
    ("uvm", 0x21): "maps an RM memory object into the range; libcuda 550 and later for all of its memory",
    ("uvm", 0x49): "reserves the addresses that MAP_EXTERNAL_ALLOCATION then fills",
    ("uvm", 0x4b): "gives the fd of another open of /dev/nvidia-uvm, which keeps the mm alive",
}
# Where the kernel takes an escape; all the others on /dev/nvidiactl alone.
NODES = {0x27: "gpu", 0x2b: "either", 0x39: "gpu", 0x52: "either", 0xc9: "gpu", 0xce: "either", 0xcf: "either", 0xd3: "either", 0xd5: "gpu",
         0xd7: "gpu", 0xd8: "gpu", 0xd9: "gpu", 0xda: "gpu"}
# Where the status moved with a new member behind or before it: src/rm/call.cpp knows them.
MOVED_STATUS = {("uvm", 0x2a), ("uvm", 0x33), ("uvm", 0x38), ("uvm", 0x40)}
# The controls, cut into files of a few hundred lines: the first number beyond each file.
PIECES = [(0x00730000, "controls_0000"), (0x00800000, "controls_0073"), (0x20800000, "controls_0080"),
          (0x20800a00, "controls_2080_gpu"), (0x20801000, "controls_2080_internal"), (0x20802000, "controls_2080_memory"),
          (0x20810000, "controls_2080_rest"), (0x90000000, "controls_2081"), (1 << 32, "controls_9000")]


def load(path):
    """{(kind, number): (name, size)} and the branch."""
    facts, branch = {}, None
    for line in pathlib.Path(path).read_text().splitlines():
        kind, number, name, size = line.split("\t")
        if kind == "branch":
            branch = int(name.split(".")[0])
        elif kind == "status_from_end":
            facts[(name + "_status", int(number, 16))] = ("", size)
        elif kind != "pointer":
            facts[(kind, int(number, 16))] = (name, size)
    return branch, facts


def load_later():
    """{(kind, number): [(name, branch, size)]}."""
    later = {}
    for line in (HERE / "later_branches.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            kind, number, name, branch, size, _ = line.split("\t")
            later.setdefault((kind, int(number, 16)), []).append((name, int(branch), size))
    return later


def histories(trees, later):
    """[(kind, number, name, [(branch, size)], checked_until)]; a number that changed its name has a line for each."""
    keys = sorted({key for _, facts in trees for key in facts if not key[0].endswith("_status")} | set(later))
    for kind, number in keys:
        seen = []  # (branch, name or None, size)
        for branch, facts in trees:
            name, size = facts.get((kind, number), (None, "absent"))
            seen.append((branch, name, size))
        if all(name is None for _, name, _ in seen):
            seen = []  # in no public header at all: that a tree lacks it says nothing
        for name, branch, size in later.get((kind, number), []):
            at = [entry for entry in seen if entry[0] == branch]
            for entry in at:
                if entry[1] is not None and (entry[1], entry[2]) != (name, size):
                    sys.exit(f"write_tables.py: {kind} 0x{number:x} at {branch}: {entry} and {(name, size)} disagree")
            # A tree that lacks the number says nothing once a later branch has it under this name.
            seen = [entry for entry in seen if entry not in at] + [(branch, name, size)]
        seen.sort(key=lambda entry: entry[0])
        while seen and seen[0][1] is None:
            seen.pop(0)
        names = list(dict.fromkeys(name for _, name, _ in seen if name))
        if kind != "control":
            names = names[-1:]  # renamed: only controls have numbers that were given away again
        for name in names:
            changes, last = [], None
            for branch, own, size in seen:
                size = size if own == name else "absent"
                if not changes and size == "absent":
                    continue
                if size != last:
                    changes.append((branch, size))
                last = size
            checked = max(branch for branch, _, _ in seen)
            # An equal size at a later branch is knowledge too, and stands as checked_until or as an entry of its own.
            explicit = [(branch, size) for own, branch, size in later.get((kind, number), []) if own == name]
            for entry in explicit:
                if entry not in changes and entry[0] != checked:
                    changes.append(entry)
            yield kind, number, name, sorted(changes), checked


def size_text(changes, checked):
    """The C++ of a ParameterSize."""
    if all(size in ("-", "absent") for _, size in changes):
        return "{}"
    entries = [(branch, "absent" if size in ("absent", "-") else size) for branch, size in changes]
    if len(entries) > MOST_CHANGES:
        sys.exit(f"write_tables.py: more than {MOST_CHANGES} changes: {entries}")
    if len(entries) == 1:
        return f"{{{{{entries[0][0]}, {entries[0][1]}}}, {checked}}}"
    return "{{" + ", ".join(f"{{{branch}, {size}}}" for branch, size in entries) + f"}}, {checked}}}"


def role(name):
    """The first pattern that fits; display classes are told apart by their names alone."""
    for text, pattern in ROLES:
        if re.search(pattern, name):
            return text
    return "other"


def main():
    """Writes the tables."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    trees = [load(path) for path in sys.argv[1:]]
    rows = {}

    def status(kind, number):
        """Where the status lies; the same in all trees, or this format of the tables does not do."""
        found = {facts[(kind + "_status", number)][1] for _, facts in trees if (kind + "_status", number) in facts}
        if len(found) > 1 and (kind, number) not in MOVED_STATUS:
            sys.exit(f"write_tables.py: the status of {kind} 0x{number:x} moved: {found}")
        newest = [facts[(kind + "_status", number)][1] for _, facts in trees if (kind + "_status", number) in facts]
        return newest[-1] if newest else "0"

    for kind, number, name, changes, checked in histories(trees, load_later()):
        size = size_text(changes, checked)
        note = NOTES.get((kind, number), "")
        if kind == "escape":
            node = NODES.get(number, "control")
            text = f'{{0x{number:02x}, "{name}", EscapeNode::{node}, {size}, {status(kind, number)}, "{note}"}},'
            rows.setdefault("escapes", []).append(text)
        elif kind == "class":
            rows.setdefault("classes", []).append(f'{{0x{number:04x}, "{name}", ClassRole::{role(name)}, {size}, "{note}"}},')
        elif kind == "control":
            rows.setdefault("control", []).append((number, f'{{0x{number:x}, "{name}", {size}}},'))
        elif kind == "uvm":
            rows.setdefault("uvm", []).append(f'{{0x{number:x}, "{name}", {size}, {status(kind, number)}, "{note}"}},')
        elif kind == "status":
            rows.setdefault("statuses", []).append(f'{{0x{number:x}, "{name}"}},')
    OUT.mkdir(exist_ok=True)
    for old in OUT.glob("*.inc"):
        old.unlink()
    files = {name: rows[name] for name in ("escapes", "classes", "uvm", "statuses")}
    for number, row in rows["control"]:
        files.setdefault(next(name for end, name in PIECES if number < end), []).append(row)
    for name, lines in files.items():
        what = "Written by tests/rm_headers/write_tables.py: facts of the public headers (numbers, names, sizes)."
        (OUT / f"{name}.inc").write_text(HEAD.format(what) + "\n".join(lines) + "\n")
        print(name, len(lines))


if __name__ == "__main__":
    main()
