#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The independent witness of what is on a drive: works on the image file, on the host, and shares no code with the library.

  fill IMAGE --seed N --size 64M            write a pattern that depends on the seed and the block's number
  check FILE --seed N [--range FIRST:COUNT] verify it; --first N where FILE is a piece that begins with block N
  fill-stamps, check-stamps                 the same with the stamps of `upcie verify` (docs/stamps.md): --block-size, --nsid,
                                            --pass; blocks are then the namespace's
  self-test                                 check this program itself

Ends with 0: as expected, 1: not (the bad blocks are named), 2: usage or no such file. Needs only Python's standard library.
"""
import argparse
import hashlib
import os
import struct
import sys

SHOWN = 10  # bad blocks named one by one
MASK = (1 << 64) - 1


class Pattern:
    """512 bytes that only this seed and block number give; they begin with both, so that a misplaced block can be named."""

    block_size = 512
    header = struct.Struct("<8sQQ")

    def __init__(self, seed):
        self.seed = seed

    def expected(self, number):
        head = self.header.pack(b"upcieVM0", self.seed, number)
        return head + hashlib.shake_128(head).digest(self.block_size - len(head))

    def explain(self, data):
        magic, seed, number = self.header.unpack_from(data)
        if magic == b"upcieVM0" and data == Pattern(seed).expected(number):
            return f"holds block {number} of seed {seed:#x}"
        return None


class Stamps:
    """Blocks as docs/stamps.md defines them; written from that page alone."""

    magic = 0x3154534549435055
    header = struct.Struct("<QQIIQQ")

    def __init__(self, seed, nsid, block_size, passes):
        self.seed, self.nsid, self.block_size, self.passes = seed, nsid, block_size, passes

    def expected(self, number):
        head = self.header.pack(self.magic, self.seed, self.nsid, self.block_size, number, self.passes)
        check = 0
        for word in struct.unpack("<5Q", head):
            check = self.mix(check ^ word)
        count = (self.block_size - 48) // 8
        words = (self.mix(check + (i + 1) * 0x9E3779B97F4A7C15 & MASK) for i in range(count))
        return head + struct.pack(f"<{count + 1}Q", check, *words)

    def explain(self, data):
        magic, seed, nsid, block_size, number, passes = self.header.unpack_from(data)
        if magic != self.magic:
            return None
        found = f"LBA {number}, pass {passes}, seed {seed:#x}, nsid {nsid}, block size {block_size}"
        intact = block_size == self.block_size and data == Stamps(seed, nsid, block_size, passes).expected(number)
        return f"holds the stamp of {found}" if intact else f"is damaged; its stamp says {found}"

    @staticmethod
    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31


def describe(content, number, data):
    """What is wrong with a block, in words."""
    expected = content.expected(number)
    if len(data) < len(expected):
        return f"is cut short: {len(data)} of {len(expected)} bytes"
    if not any(data):
        return "is all zero"
    known = content.explain(data)
    if known:
        return known
    wrong = [i for i, (have, want) in enumerate(zip(data, expected)) if have != want]
    first = wrong[0]
    return f"differs in {len(wrong)} bytes, the first at {first}: {data[first]:#04x}, expected {expected[first]:#04x}"


def fill(path, content, blocks, size):
    # Never truncated: a drive may have the image open. Only made longer where it is too short.
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as image:
        if size and size > os.fstat(image.fileno()).st_size:
            image.truncate(size)
        for first, count in blocks:
            image.seek(first * content.block_size)
            for number in range(first, first + count):
                image.write(content.expected(number))
    return 0


def check(path, content, blocks, file_begins_with):
    checked = bad = 0
    with open(path, "rb") as image:
        for first, count in blocks:
            image.seek((first - file_begins_with) * content.block_size)
            for number in range(first, first + count):
                data = image.read(content.block_size)
                checked += 1
                if data != content.expected(number):
                    bad += 1
                    if bad <= SHOWN:
                        print(f"{path}: block {number} {describe(content, number, data)}")
    print(f"{path}: {checked - bad} of {checked} blocks as expected")
    return 0 if checked and not bad else 1


def self_test():
    block = Stamps(1, 1, 512, 1).expected(17)
    example = {0: 0x3154534549435055, 16: 0x20000000001, 24: 17, 40: 0xDFAF641E27EF4704,
               48: 0xB6D4827A9886294E, 56: 0x7BF33681970F36E9, 504: 0x352BFBE1F279AE7B}  # docs/stamps.md
    for offset, value in example.items():
        assert struct.unpack_from("<Q", block, offset)[0] == value, f"stamp, byte {offset}"
    pattern = Pattern(7)
    assert len(pattern.expected(3)) == 512 and pattern.expected(3) != pattern.expected(4) != Pattern(8).expected(4)
    assert "block 4 of seed 0x7" in describe(pattern, 3, pattern.expected(4))
    assert "differs in 1 bytes, the first at 100" in describe(
        pattern, 3, bytes(b ^ (i == 100) for i, b in enumerate(pattern.expected(3))))
    assert "all zero" in describe(pattern, 3, bytes(512)) and "cut short" in describe(pattern, 3, b"")
    print("self-test: ok")
    return 0


def number(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1], 0) << units[text[-1]] if text[-1:] in units else int(text, 0)


def block_range(text):
    first, _, count = text.partition(":")
    return number(first), number(count or "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fill", "check", "fill-stamps", "check-stamps"):
        command = commands.add_parser(name)
        command.add_argument("file")
        command.add_argument("--seed", type=number, required=True)
        command.add_argument("--range", type=block_range, action="append", metavar="FIRST:COUNT", help="blocks; repeatable")
        if name.startswith("fill"):
            command.add_argument("--size", type=number, default=0, help="bytes; default: the file's")
        else:
            command.add_argument("--first", type=number, default=0, help="the block that the file begins with")
        if name.endswith("stamps"):
            command.add_argument("--block-size", type=number, default=512)
            command.add_argument("--nsid", type=number, default=1)
            command.add_argument("--pass", type=number, default=1, dest="passes")
    commands.add_parser("self-test")
    arguments = parser.parse_args()
    if arguments.command == "self-test":
        return self_test()

    content = Pattern(arguments.seed)
    if arguments.command.endswith("stamps"):
        content = Stamps(arguments.seed, arguments.nsid, arguments.block_size, arguments.passes)
    filling = arguments.command.startswith("fill")
    size = (filling and arguments.size) or (os.path.getsize(arguments.file) if os.path.exists(arguments.file) else 0)
    first = 0 if filling else arguments.first
    blocks = arguments.range or [(first, size // content.block_size)]
    if any(begin < first for begin, _ in blocks):
        parser.error(f"--range begins before --first {first}")
    if filling:
        return fill(arguments.file, content, blocks, size)
    return check(arguments.file, content, blocks, first)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"disk_image.py: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
