#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads the facts of the RM contract (names, numbers, sizes) out of a tree of NVIDIA's open kernel modules.

usage: extract.py TREE

Prints lines of tab-separated KIND, NUMBER, NAME, SIZE, where KIND is branch, escape, class, control, uvm, status, pointer
or status_from_end (how far before the end of an argument its status lies), and SIZE is '-' where the headers name no
structure of parameters. Names and numbers come from the text of the
headers; every size and offset from the compiler (CC, default cc), which sees the headers themselves.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import os

SDK = "src/common/sdk/nvidia/inc"
INCLUDES = [SDK, "src/common/inc", "src/nvidia/generated", "src/nvidia/arch/nvalloc/unix/include", "src/nvidia/inc",
            "kernel-open/common/inc"]

# Arguments of the escapes: the headers do not pair them.
ESCAPE_TYPES = {
    "RM_ALLOC_MEMORY": "nv_ioctl_nvos02_parameters_with_fd", "RM_ALLOC_OBJECT": "NVOS05_PARAMETERS",
    "RM_FREE": "NVOS00_PARAMETERS", "RM_CONTROL": "NVOS54_PARAMETERS", "RM_ALLOC": "NVOS64_PARAMETERS",
    "RM_DUP_OBJECT": "NVOS55_PARAMETERS", "RM_SHARE": "NVOS57_PARAMETERS", "RM_I2C_ACCESS": "NVOS_I2C_ACCESS_PARAMS",
    "RM_IDLE_CHANNELS": "NVOS30_PARAMETERS", "RM_VID_HEAP_CONTROL": "NVOS32_PARAMETERS",
    "RM_ACCESS_REGISTRY": "NVOS38_PARAMETERS", "RM_MAP_MEMORY": "nv_ioctl_nvos33_parameters_with_fd",
    "RM_UNMAP_MEMORY": "NVOS34_PARAMETERS", "RM_GET_EVENT_DATA": "NVOS41_PARAMETERS",
    "RM_ALLOC_CONTEXT_DMA2": "NVOS39_PARAMETERS", "RM_ADD_VBLANK_CALLBACK": "NVOS61_PARAMETERS",
    "RM_MAP_MEMORY_DMA": "NVOS46_PARAMETERS", "RM_UNMAP_MEMORY_DMA": "NVOS47_PARAMETERS",
    "RM_BIND_CONTEXT_DMA": "NVOS49_PARAMETERS", "RM_UPDATE_DEVICE_MAPPING_INFO": "NVOS56_PARAMETERS",
    "RM_EXPORT_OBJECT_TO_FD": "nv_ioctl_export_object_to_fd_t",
    "REGISTER_FD": "nv_ioctl_register_fd_t", "ALLOC_OS_EVENT": "nv_ioctl_alloc_os_event_t",
    "FREE_OS_EVENT": "nv_ioctl_free_os_event_t", "STATUS_CODE": "nv_ioctl_status_code_t",
    "CHECK_VERSION_STR": "nv_ioctl_rm_api_version_t", "IOCTL_XFER_CMD": "nv_ioctl_xfer_t",
    "QUERY_DEVICE_INTR": "nv_ioctl_query_device_intr", "SYS_PARAMS": "nv_ioctl_sys_params_t",
    "EXPORT_TO_DMABUF_FD": "nv_ioctl_export_to_dma_buf_fd_t", "WAIT_OPEN_COMPLETE": "nv_ioctl_wait_open_complete_t",
    "NUMA_INFO": "nv_ioctl_numa_info_t", "SET_NUMA_STATUS": "nv_ioctl_set_numa_info_t",
}
STATUS_MEMBERS = ("status", "Status", "rmStatus", "params.status")
CARDS = 32  # CARD_INFO's argument is an array, one for each


class Tree:
    """What the text of one tree says, and what the compiler makes of it."""

    def __init__(self, top):
        self.top = pathlib.Path(top).resolve()
        self.sdk = self.top / SDK
        if not (self.sdk / "nvos.h").is_file():
            sys.exit(f"extract.py: {top} has no {SDK}/nvos.h: give the top of the open kernel modules' source")
        self.headers = sorted(path for part in ("ctrl", "class", "alloc") for path in (self.sdk / part).rglob("*.h"))
        self.texts = {path: path.read_text(errors="replace") for path in self.headers}
        self.types = set()
        for text in [*self.texts.values(), (self.sdk / "nvos.h").read_text(errors="replace")]:
            self.types.update(re.findall(r"typedef\s+(?:struct|union)\s+(\w+)\s*\{", text))
            self.types.update(re.findall(r"\}\s*(\w+)\s*;", text))
            self.types.update(re.findall(r"typedef\s+\w+\s+(\w+)\s*;", text))

    def read(self, *names):
        """The first of these files that the tree has."""
        for name in names:
            path = self.top / name
            if path.is_file():
                return path.read_text(errors="replace")
        return ""

    def branch(self):
        """The driver version, from version.mk or the header that carries it."""
        text = self.read("version.mk", "src/common/inc/nvUnixVersion.h")
        found = re.search(r"NVIDIA_VERSION\s*=\s*(\S+)|NV_VERSION_STRING\s+\"(\S+?)\"", text)
        return (found[1] or found[2]) if found else self.top.name

    def classes(self):
        """Every class id of g_allclasses.h, of the class headers and of the table of what the driver offers."""
        found = {}
        text = self.read("src/nvidia/generated/g_allclasses.h")
        for name, number, alias in re.findall(r"#define\s+(\w+)\s+\((0x[0-9a-fA-F]+)U?\)([^\n]*)", text):
            if "alias" not in alias:
                found.setdefault(int(number, 16), name)
        for path in self.headers:
            own = re.fullmatch(r"cl([0-9a-f]{4})(?:\w*)?\.h", path.name)
            if own is None or path.parent.name != "class":
                continue
            for name, number in re.findall(r"#define\s+([A-Z][A-Z0-9_]+)\s+\(?(0x[0-9a-fA-F]+)U?\)?\s*(?:/\*|//|\n)",
                                           self.texts[path]):
                if int(number, 16) == int(own[1], 16) and not re.search(r"_(ID|SIZE|OFFSET)$", name):
                    found.setdefault(int(number, 16), name)
                    break
        return found

    def allocations(self):
        """Class name to the type of its allocation parameters ('' for none)."""
        text = self.read("src/nvidia/src/kernel/rmapi/resource_list.h")
        pairs = {}
        for entry in re.findall(r"RS_ENTRY\((.*?)\n\)", text, re.S):
            name = re.search(r"External Class\s*\*/\s*(\w+)", entry)[1]
            kind = re.search(r"Alloc Param Info\s*\*/\s*(\w+)(?:\((\w+)\))?", entry)
            pairs[name] = kind[2] or ""
        return pairs

    def exported(self):
        """Control number to parameter type, as the driver's own tables pair them."""
        pairs = {}
        for path in (self.top / "src/nvidia/generated").glob("g_*_nvoc.c"):
            for number, kind in re.findall(r"methodId=\*/\s*(0x[0-9a-fA-F]+)u?,\s*/\*paramSize=\*/\s*(sizeof\(\w+\)|0)",
                                           path.read_text(errors="replace")):
                pairs[int(number, 16)] = "" if kind == "0" else kind[len("sizeof("):-1]
        return pairs

    def controls(self):
        """Number to (name, type of the parameters, '' for none, None where no header says)."""
        found, exported = {}, self.exported()
        pattern = re.compile(r"#define\s+(NV\w*_CTRL_\w+)\s+\(?(0x[0-9a-fA-F]{3,8})U?\)?(?:\s*/\*\s*finn: Evaluated from "
                             r"\"([^\"]*)\"\s*\*/)?")
        for path in self.headers:
            if path.parent.name == "class" or path.parent.name == "alloc":
                continue
            for name, text, origin in pattern.findall(self.texts[path]):
                number = int(text, 16)
                command = "_CTRL_CMD_" in name or number in exported or "INTERFACE_ID" in origin
                if not command or name.endswith("_MESSAGE_ID") or not self.is_command(path, name, number, origin, exported):
                    continue
                message = re.search(r"(\w+)_MESSAGE_ID", origin or "")
                guess = name.replace("_CTRL_CMD_", "_CTRL_") + "_PARAMS"
                if number in exported:
                    kind = exported[number]
                elif message:
                    kind = message[1]
                else:
                    kind = guess if guess in self.types else None
                # Two names for one number: the one that has parameters, else the first.
                if number not in found or (not found[number][1] and kind):
                    found[number] = (name, kind)
        return found

    @staticmethod
    def is_command(path, name, number, origin, exported):
        """A header also has values, masks and numbers of other tables under names like a command's. A command carries
        its class; those of class 0 can be told apart by where their number comes from alone."""
        if number in exported:
            return True
        own = re.match(r"NV([0-9A-F]{4})_CTRL_", name) or re.match(r"ctrl([0-9a-f]{4})", path.name)
        if own is None or number >> 16 != int(own[1], 16):
            return False
        if "INTERFACE_ID" in origin:
            return True
        return number >> 16 != 0 and re.search(r"_(MASK|FLAGS?|VALUE|SIZE)(_|$)", name) is None

    def uvm(self):
        """Number to (name, type)."""
        found = {}
        text = self.read("kernel-open/nvidia-uvm/uvm_ioctl.h") + self.read("kernel-open/nvidia-uvm/uvm_linux_ioctl.h")
        for name, base, plain in re.findall(r"#define\s+UVM_(\w+)\s+(?:UVM_IOCTL_BASE\((\d+)\)|(0x3000000\d))", text):
            kind = f"UVM_{name}_PARAMS"
            found[int(plain, 16) if plain else int(base)] = (name, kind if kind in text else None)
        return found

    def statuses(self):
        """Number to name."""
        text = (self.sdk / "nvstatuscodes.h").read_text(errors="replace")
        return {int(number, 16): name
                for name, number in re.findall(r"NV_STATUS_CODE\((\w+),\s*(0x[0-9a-fA-F]+)", text)}

    def escapes(self):
        """Number to name without NV_ESC_."""
        text = (self.read("src/nvidia/arch/nvalloc/unix/include/nv_escape.h") +
                self.read("src/nvidia/arch/nvalloc/unix/include/nv-ioctl-numbers.h",
                          "kernel-open/common/inc/nv-ioctl-numbers.h") +
                self.read("kernel-open/common/inc/nv-ioctl-numa.h"))
        found = {}
        for name, base, plain in re.findall(r"#define\s+NV_ESC_(\w+)\s+(?:\(NV_IOCTL_BASE \+ (\d+)\)|(0x[0-9a-fA-F]+))",
                                            text):
            found[int(plain, 16) if plain else 200 + int(base)] = name
        return found

    def pointers(self):
        """(type, member) of each NvP64 right inside a structure."""
        for text in [*self.texts.values(), (self.sdk / "nvos.h").read_text(errors="replace")]:
            for body, name in re.findall(r"typedef\s+struct(?:\s+\w+)?\s*\{([^{}]*)\}\s*(\w+)\s*;", text):
                body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
                names = [name, *re.findall(r"typedef\s+" + name + r"\s+(\w+)\s*;", text)]
                for a, b in re.findall(r"NV_DECLARE_ALIGNED\(NvP64\s+(\w+),\s*8\)|NvP64\s+(\w+)\s+NV_ALIGN", body):
                    yield from ((one, a or b) for one in names)

    def compile(self, sizes, offsets):
        """sizeof of each type and offsetof of each (type, member), asked of the compiler. What it does not know is left
        out: the probe is bisected until only known ones remain."""
        sources = [path for path in self.headers if self.compiles_alone(path)]
        return Probe(self, sources).ask(sorted(sizes), sorted(offsets))

    def compiles_alone(self, path):
        """Some headers are for display drivers or other systems and need what is not there."""
        return not re.search(r"(_callback|cl84a0_deprecated|nvk)", path.name)


class Probe:
    """One C file over all headers, compiled and run."""

    def __init__(self, tree, headers):
        self.tree = tree
        includes = [f'#include "{path}"' for path in headers]
        wanted = ["src/nvidia/arch/nvalloc/unix/include/nv-unix-nvos-params-wrappers.h",
                  "src/nvidia/arch/nvalloc/unix/include/nv-ioctl.h", "kernel-open/common/inc/nv-ioctl.h",
                  "kernel-open/common/inc/nv-ioctl-numa.h", "kernel-open/nvidia-uvm/uvm_ioctl.h",
                  "kernel-open/nvidia-uvm/uvm_linux_ioctl.h"]
        seen = set()
        for name in wanted:
            path = tree.top / name
            if path.is_file() and path.name not in seen:
                seen.add(path.name)
                includes.append(f'#include "{path}"')
        self.head = "\n".join(["#include <stddef.h>", "#include <stdio.h>", "#include <stdint.h>", '#include "nvtypes.h"',
                               '#include "nvos.h"', '#include "nvstatus.h"', '#include "nvlimits.h"', *includes])

    def run(self, lines):
        """The output of a program of these lines, or None when it does not compile."""
        with tempfile.TemporaryDirectory() as scratch:
            source, program = pathlib.Path(scratch, "probe.c"), pathlib.Path(scratch, "probe")
            source.write_text(self.head + "\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
            include = [argument for name in INCLUDES for argument in ("-I", str(self.tree.top / name))]
            built = subprocess.run([os.environ.get("CC", "cc"), "-w", "-fmax-errors=0", "-DNV_LINUX", "-D__linux__", "-DNV_64_BITS", *include,
                                    "-o", program, source], capture_output=True, text=True, check=False)
            if built.returncode != 0:
                return None, built.stderr
            return subprocess.run([program], capture_output=True, text=True, check=True).stdout, ""

    def ask(self, types, members):
        """Answers for all that compile."""
        lines = [(f"T {name}", f'printf("T {name} %zu\\n", sizeof({name}));') for name in types]
        lines += [(f"M {name}.{member}", f'printf("M {name}.{member} %zu\\n", offsetof({name}, {member}));')
                  for name, member in members]
        answers, refused = {}, []
        for _ in range(20):
            output, errors = self.run([text for _, text in lines])
            if output is not None:
                break
            # Lines that the compiler complains about are left out; the headers come first and have their own lines.
            first = self.head.count("\n") + 3
            bad = {int(number) - first for number in re.findall(r"probe\.c:(\d+):\d+: error", errors)}
            if not bad or min(bad) < 0:
                sys.exit("extract.py: the headers do not compile together:\n" + errors[:4000])
            refused += [lines[index][0] for index in sorted(bad)]
            lines = [line for index, line in enumerate(lines) if index not in bad]
        for line in (output or "").splitlines():
            key, value = line.rsplit(" ", 1)
            answers[key] = int(value)
        missing = [name for name in refused if name.split(".")[-1] not in STATUS_MEMBERS and ".params." not in name]
        if missing:
            print("extract.py: not in these headers: " + ", ".join(missing), file=sys.stderr)
        return answers


def main():
    """Prints the facts."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tree = Tree(sys.argv[1])
    classes, allocations, controls, uvm = tree.classes(), tree.allocations(), tree.controls(), tree.uvm()
    pointers = sorted(set(tree.pointers()))
    types = set(filter(None, allocations.values())) | {kind for _, kind in controls.values() if kind}
    types |= {kind for _, kind in uvm.values() if kind} | {ESCAPE_TYPES[name] for name in tree.escapes().values()
                                                          if name in ESCAPE_TYPES} | {"nv_ioctl_card_info_t"}
    argument_types = {("escape", number): ESCAPE_TYPES[name] for number, name in tree.escapes().items()
                      if name in ESCAPE_TYPES}
    argument_types |= {("uvm", number): kind for number, (_, kind) in uvm.items() if kind}
    status_members = {(kind, member) for kind in argument_types.values() for member in STATUS_MEMBERS}
    answers = tree.compile(types, sorted(set(pointers) | status_members))

    def size(kind):
        if kind is None:
            return "-"
        return 0 if kind == "" else answers.get(f"T {kind}", "-")

    out = sys.stdout
    out.write(f"branch\t0\t{tree.branch()}\t-\n")
    for number, name in sorted(tree.escapes().items()):
        argument = answers["T nv_ioctl_card_info_t"] * CARDS if name == "CARD_INFO" else size(ESCAPE_TYPES.get(name))
        out.write(f"escape\t0x{number:x}\t{name}\t{argument}\n")
    for number, name in sorted(classes.items()):
        out.write(f"class\t0x{number:x}\t{name}\t{size(allocations.get(name))}\n")
    for number, (name, kind) in sorted(controls.items()):
        out.write(f"control\t0x{number:x}\t{name}\t{size(kind)}\n")
    for number, (name, kind) in sorted(uvm.items()):
        out.write(f"uvm\t0x{number:x}\t{name}\t{size(kind)}\n")
    for number, name in sorted(tree.statuses().items()):
        out.write(f"status\t0x{number:x}\t{name}\t-\n")
    for (where, number), kind in sorted(argument_types.items()):
        offsets = [answers[f"M {kind}.{member}"] for member in STATUS_MEMBERS if f"M {kind}.{member}" in answers]
        if offsets and f"T {kind}" in answers:
            out.write(f"status_from_end\t0x{number:x}\t{where}\t{answers[f'T {kind}'] - offsets[0]}\n")
    users = {}
    for number, (name, kind) in controls.items():
        users.setdefault(kind, []).append(("control", number))
    for name, kind in allocations.items():
        users.setdefault(kind, []).append(("class", next((n for n, c in classes.items() if c == name), -1)))
    for kind, member in pointers:
        for where, number in users.get(kind, [("type", 0)]):
            out.write(f"pointer\t0x{number & 0xffffffff:x}\t{where}:{kind}.{member}\t{answers.get(f'M {kind}.{member}', '-')}\n")


if __name__ == "__main__":
    main()
