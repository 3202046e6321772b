// SPDX-License-Identifier: BSD-3-Clause
// The vocabulary of one driver version, in the lines of extract.py: KIND, NUMBER, NAME, SIZE and whether it was looked
// at.
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <upcie/rm/vocabulary.hpp>

namespace {

using namespace upcie::rm;

void line(const char* kind, std::uint32_t number, std::string_view name, const ParameterSize& size,
          DriverVersion version) {
    const auto at = size.at(version);
    fmt::print("{}\t0x{:x}\t{}\t{}\t{}\n", kind, number, name, at ? fmt::format("{}", at->bytes) : "-",
               size.known() && size.certain_at(version.branch) ? "seen" : "assumed");
}

} // namespace

int main(int argument_count, char** arguments) {
    const auto version = parse_driver_version(argument_count == 2 ? arguments[1] : "");
    if (!version) {
        fmt::print(stderr, "usage: rm_vocabulary_dump VERSION: {}\n", version.error().message());
        return 2;
    }
    for (const Escape& escape : escapes()) {
        line("escape", escape.number, escape.name, escape.size, *version);
        fmt::print("status_from_end\t0x{:x}\tescape\t{}\tseen\n", escape.number, escape.status_from_end);
    }
    for (const Class& known : classes()) {
        line("class", known.id, known.name, known.allocation, *version);
    }
    for (const Control& control : controls()) {
        if (find_control(control.command, *version) == &control) {
            line("control", control.command, control.name, control.size, *version);
        }
    }
    for (const UvmCommand& command : uvm_commands()) {
        line("uvm", command.number, command.name, command.size, *version);
    }
    for (const Status& status : statuses()) {
        fmt::print("status\t0x{:x}\t{}\t-\tseen\n", status.number, status.name);
    }
    for (const EmbeddedPointer& pointer : embedded_pointers()) {
        const bool holds = pointer.since <= version->branch && version->branch <= pointer.until;
        if (pointer.where.type == BlockKind::Type::control && holds) {
            fmt::print("pointer\t0x{:x}\t{}\t{}\tseen\n", pointer.where.number, pointer.name, pointer.offset);
        }
    }
    return 0;
}
