#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the definitions of gpu/cuda/kernels.hpp: embed.py SOURCE PTX [FATBIN NVCC_VERSION]"""
import sys


def array(name: str, content: bytes) -> list[str]:
    numbers = [str(byte) for byte in content + b"\0"]  # ends as a string does: PTX is one
    rows = [",".join(numbers[i : i + 40]) + "," for i in range(0, len(numbers), 40)]
    return [f"alignas(8) const unsigned char {name}[] = {{", *rows, "};"]


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def main() -> None:
    source, ptx, *built = sys.argv[1:]
    fatbin, version = built if built else (None, "")
    lines = ['#include "gpu/cuda/kernels.hpp"', "namespace upcie::gpu::cuda {"]
    lines.append(f'const char* const nvcc_version = "{version}";')
    lines += array("kernels_ptx", read(ptx))
    lines += array("kernels_by_nvcc", read(fatbin) if fatbin else b"")
    lines.append("} // namespace upcie::gpu::cuda")
    with open(source, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


main()
