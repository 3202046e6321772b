// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include <upcie/rm/trace.hpp>

/// The fields of every record, once for writing and reading: describe(archive, record) names each with its member, how
/// it is spelled, and the value that may be left out. docs/rm-trace.md is the same list in words.
namespace upcie::rm {

/// A record that is written (const) or read into.
template <class T, class Of>
concept RecordOf = std::same_as<std::remove_const_t<T>, Of>;

template <class Archive, RecordOf<IoctlRecord> R>
void describe(Archive& archive, R& record) {
    archive.node(record.node);
    archive.number("fd", record.fd, -1);
    archive.hexadecimal("request", record.request);
    archive.hexadecimal("argument", record.argument);
    archive.number("restarts", record.restarts, 0U);
    archive.outcome(record.outcome);
    archive.blocks("blocks", record.blocks, record.outcome);
}

template <class Archive, RecordOf<OpenRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("call", record.call);
    archive.text("path", record.path);
    archive.text("resolved", record.resolved);
    archive.hexadecimal("flags", record.flags);
    archive.hexadecimal("mode", record.mode);
    archive.optional_node(record.is_node, record.node);
    archive.number("major", record.device_major, 0U);
    archive.number("minor", record.device_minor, 0U);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<StatRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("call", record.call);
    archive.text("path", record.path);
    archive.number("fd", record.fd, -1);
    archive.hexadecimal("flags", record.flags);
    archive.hexadecimal("mode", record.mode);
    archive.number("major", record.device_major, 0U);
    archive.number("minor", record.device_minor, 0U);
    archive.text("target", record.target);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<ReadRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("call", record.call);
    archive.number("fd", record.fd, -1);
    archive.text("path", record.path);
    archive.number("size", record.size, std::uint64_t{0});
    archive.number("offset", record.offset, std::uint64_t{0});
    archive.outcome(record.outcome);
    archive.block("content", record.content, record.outcome);
}

template <class Archive, RecordOf<CloseRecord> R>
void describe(Archive& archive, R& record) {
    archive.number("fd", record.fd, -1);
    archive.optional_node(record.is_node, record.node);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<DuplicateRecord> R>
void describe(Archive& archive, R& record) {
    archive.node(record.node);
    archive.number("fd", record.fd, -1);
    archive.truth("close_on_exec", record.close_on_exec);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<PassRecord> R>
void describe(Archive& archive, R& record) {
    archive.truth("received", record.received);
    archive.number("socket", record.socket, -1);
    archive.number("fd", record.fd, -1);
    archive.node(record.node);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<MapRecord> R>
void describe(Archive& archive, R& record) {
    archive.node(record.node);
    archive.number("fd", record.fd, -1);
    archive.hexadecimal("address", record.address);
    archive.hexadecimal("length", record.length);
    archive.hexadecimal("offset", record.offset);
    archive.hexadecimal("protection", record.protection);
    archive.hexadecimal("flags", record.flags);
    archive.address_outcome(record.outcome);
}

template <class Archive, RecordOf<UnmapRecord> R>
void describe(Archive& archive, R& record) {
    archive.truth("moved", record.moved);
    archive.hexadecimal("address", record.address);
    archive.hexadecimal("length", record.length);
    archive.hexadecimal("new_length", record.new_length);
    archive.hexadecimal("new_address", record.new_address);
    archive.hexadecimal("flags", record.flags);
    archive.address_outcome(record.outcome);
}

template <class Archive, RecordOf<PollRecord::Entry> R>
void describe(Archive& archive, R& record) {
    archive.number("fd", record.fd, -1);
    archive.node(record.node);
    archive.hexadecimal("events", record.events);
    archive.hexadecimal("answered", record.answered);
}

template <class Archive, RecordOf<PollRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("call", record.call);
    archive.number("entries", record.entries, std::uint64_t{0});
    archive.list("nodes", record.nodes);
    archive.number("timeout_ns", record.timeout_ns, std::int64_t{-1});
    archive.number("operation", record.operation, 0);
    archive.number("epoll", record.epoll, -1);
    archive.outcome(record.outcome);
}

template <class Archive, RecordOf<HeldNode> R>
void describe(Archive& archive, R& record) {
    archive.number("fd", record.fd, -1);
    archive.node(record.node);
}

template <class Archive, RecordOf<BirthRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("how", record.how);
    archive.number("parent", record.parent, 0);
    archive.list("nodes", record.nodes);
}

template <class Archive, RecordOf<ExecRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("program", record.program);
    archive.texts("arguments", record.arguments);
    archive.number("former_tid", record.former_tid, 0);
    archive.list("nodes", record.nodes);
}

template <class Archive, RecordOf<ExitRecord> R>
void describe(Archive& archive, R& record) {
    archive.truth("by_signal", record.by_signal);
    archive.number("status", record.status, 0);
    archive.truth("process", record.process);
}

template <class Archive, RecordOf<LibraryRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("path", record.path);
    archive.text("version", record.version);
}

template <class Archive, RecordOf<MemoryRecord> R>
void describe(Archive& archive, R& record) {
    archive.node(record.node);
    archive.hexadecimal("mapping", record.mapping);
    archive.hexadecimal("address", record.address);
    archive.number("occasion", record.occasion, std::uint64_t{0});
    archive.capture("bytes", record.bytes);
}

template <class Archive, RecordOf<NoteRecord> R>
void describe(Archive& archive, R& record) {
    archive.text("subject", record.subject);
    archive.text("text", record.text);
}

template <class Archive, RecordOf<SummaryRecord> R>
void describe(Archive& archive, R& record) {
    archive.counts("stops", record.stops);
    archive.number("tracer_ns", record.tracer_ns, std::uint64_t{0});
    archive.number("elapsed_ns", record.elapsed_ns, std::uint64_t{0});
    archive.number("program_ns", record.program_ns, std::uint64_t{0});
    archive.number("lost", record.lost, std::uint64_t{0});
}

template <class Archive, RecordOf<Block> R>
void describe_block(Archive& archive, R& block) {
    archive.text("path", block.path);
    archive.hexadecimal("address", block.address);
    archive.number("pointer_offset", block.pointer_offset, 0U);
    archive.number("size", block.size, std::uint64_t{0});
    archive.truth("size_known", block.size_known, true);
    archive.truth("cut", block.cut);
}

template <class Archive, RecordOf<Stamp> R>
void describe(Archive& archive, R& stamp) {
    archive.number("run", stamp.run, std::uint64_t{0});
    archive.number("sequence", stamp.sequence, std::uint64_t{0});
    archive.number("entered", stamp.entered, std::uint64_t{0});
    archive.number("pid", stamp.pid, 0);
    archive.number("tid", stamp.tid, 0);
    archive.number("time_in", stamp.time_in, std::uint64_t{0});
    archive.number("time_out", stamp.time_out, std::uint64_t{0});
}

template <class Archive, RecordOf<TraceHeader> R>
void describe(Archive& archive, R& header) {
    // Always there, so that no version passes for another by its absence.
    archive.number("version", header.version, std::numeric_limits<int>::min());
    archive.number("run", header.run, std::uint64_t{0});
    archive.text("tool", header.tool);
    archive.text("mode", header.mode);
    archive.text("kernel", header.kernel);
    archive.text("machine", header.machine);
    archive.text("driver", header.driver);
    archive.texts("gpus", header.gpus);
    archive.texts("command", header.command);
    archive.text("started", header.started);
    archive.number("started_monotonic", header.started_monotonic, std::uint64_t{0});
    archive.truth("memory", header.memory);
}

} // namespace upcie::rm
