// SPDX-License-Identifier: BSD-3-Clause
#include <string_view>

#include <fmt/format.h>

#include "timeline_lines.hpp"

namespace upcie::rm::tool {

namespace {

template <class... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::string result_text(const Outcome& outcome) {
    switch (outcome.kind) {
    case Outcome::Kind::unfinished:
        return "unfinished";
    case Outcome::Kind::interrupted:
        return "interrupted";
    case Outcome::Kind::returned:
        break;
    }
    return outcome.error != 0 ? errno_name(outcome.error) : fmt::format("{}", outcome.value);
}

std::string map_text(const MapRecord& map) {
    const std::string where = map.outcome.succeeded()
                                  ? fmt::format("0x{:x}", static_cast<std::uint64_t>(map.outcome.value))
                                  : result_text(map.outcome);
    if (map.node.path.empty()) {
        return fmt::format("mmap over a mapping of a node: {} at {}", bytes_text(map.length), where);
    }
    return fmt::format("mmap {} fd {}, {} at offset 0x{:x}: {}", map.node.path, map.fd, bytes_text(map.length),
                       map.offset, where);
}

std::string poll_text(const PollRecord& poll) {
    std::string text = poll.call;
    for (const PollRecord::Entry& entry : poll.nodes) {
        text += fmt::format(" {} fd {} for 0x{:x} answered 0x{:x}", entry.node.path, entry.fd, entry.events,
                            entry.answered);
    }
    return text + ": " + result_text(poll.outcome);
}

std::string exec_text(const ExecRecord& started) {
    std::string text = "exec " + started.program;
    for (const std::string& argument : started.arguments) {
        text += " " + argument;
    }
    return text;
}

std::string summary_record_text(const SummaryRecord& summary) {
    std::string text = "the tracer's stops:";
    for (const SummaryRecord::Count& count : summary.stops) {
        text += fmt::format(" {} {}", count.stops, count.kind);
    }
    return text + (summary.lost != 0 ? fmt::format("; {} records were lost", summary.lost) : "");
}

} // namespace

std::string record_text(const Record& record) {
    return std::visit(
        Overloaded{[](const IoctlRecord&) { return std::string{"ioctl"}; },
                   [](const OpenRecord& opened) {
                       return fmt::format("{} {}: {}", opened.call, opened.path, result_text(opened.outcome));
                   },
                   [](const StatRecord& examined) {
                       const std::string device =
                           examined.device_major != 0
                               ? fmt::format(", device {}:{}", examined.device_major, examined.device_minor)
                               : std::string{};
                       return fmt::format("{} {}: {}{}", examined.call,
                                          examined.path.empty() ? fmt::format("fd {}", examined.fd) : examined.path,
                                          result_text(examined.outcome), device);
                   },
                   [](const ReadRecord& read) {
                       return fmt::format("{} {}: {} bytes", read.call, read.path, result_text(read.outcome));
                   },
                   [](const CloseRecord& closed) {
                       return fmt::format("close fd {}{}: {}", closed.fd,
                                          closed.is_node ? " of " + closed.node.path : "", result_text(closed.outcome));
                   },
                   [](const DuplicateRecord& made) {
                       return fmt::format("dup fd {} of {}: {}", made.fd, made.node.path, result_text(made.outcome));
                   },
                   [](const PassRecord& passed) {
                       return fmt::format("fd {} of {} {} over socket {}", passed.fd, passed.node.path,
                                          passed.received ? "received" : "sent", passed.socket);
                   },
                   [](const MapRecord& map) { return map_text(map); },
                   [](const UnmapRecord& unmap) {
                       return fmt::format("{} 0x{:x}, {}: {}", unmap.moved ? "mremap" : "munmap", unmap.address,
                                          bytes_text(unmap.length), result_text(unmap.outcome));
                   },
                   [](const PollRecord& poll) { return poll_text(poll); },
                   [](const BirthRecord& born) { return fmt::format("born by {}, parent {}", born.how, born.parent); },
                   [](const ExecRecord& started) { return exec_text(started); },
                   [](const ExitRecord& left) {
                       return fmt::format("{} ends, {} {}", left.process ? "process" : "thread",
                                          left.by_signal ? "signal" : "status", left.status);
                   },
                   [](const LibraryRecord& library) {
                       return fmt::format("library {}{}", library.path,
                                          library.version.empty() ? "" : ", version " + library.version);
                   },
                   [](const MemoryRecord& memory) {
                       return fmt::format("memory at 0x{:x}: {} changed", memory.address,
                                          bytes_text(memory.bytes.bytes.size()));
                   },
                   [](const NoteRecord& note) { return fmt::format("note, {}: {}", note.subject, note.text); },
                   [](const SummaryRecord& summary) { return summary_record_text(summary); },
                   [](const UnknownRecord& unknown) {
                       return fmt::format("a record of a type that this version does not know: {}", unknown.type);
                   }},
        record.body);
}

std::string objects_of_call(const Call& call, const ObjectTree& tree) {
    if (call.what.type != BlockKind::Type::escape || call.object == 0) {
        return {};
    }
    const bool known = tree.find(call.client, call.object) != nullptr || call.object == call.client;
    return " on " + tree.name(call.client, call.object) + (known ? "" : fmt::format(" of client 0x{:x}", call.client));
}

} // namespace upcie::rm::tool
