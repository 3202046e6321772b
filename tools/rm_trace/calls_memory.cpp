// SPDX-License-Identifier: BSD-3-Clause
// Mappings of nodes, and with --memory what lies in them.
#include <algorithm>

#include <fmt/format.h>
#include <sys/mman.h>

#include "calls.hpp"

namespace upcie::rm {

namespace {

/// Larger mappings are not looked at: rings, notifiers and push buffers are smaller.
constexpr std::uint64_t most_of_a_mapping = std::uint64_t{64} << 20;
constexpr std::size_t step = 4096;
/// Of one record; a longer run of changed pages gives several.
constexpr std::size_t most_of_a_record = 1U << 20;

bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b, std::size_t at) {
    const std::size_t end = std::min(at + step, a.size());
    return end <= b.size() &&
           std::equal(a.begin() + static_cast<std::ptrdiff_t>(at), a.begin() + static_cast<std::ptrdiff_t>(end),
                      b.begin() + static_cast<std::ptrdiff_t>(at));
}

} // namespace

bool Calls::enter_mapping(Task& task, PendingCall& call) {
    AddressSpace& space = *task.process->space;
    const auto& arguments = call.arguments;
    if (call.call->kind == CallKind::map) {
        MapRecord record;
        record.address = arguments[0];
        record.length = arguments[1];
        record.protection = static_cast<std::uint32_t>(arguments[2]);
        record.flags = static_cast<std::uint32_t>(arguments[3]);
        const bool of_file = (record.flags & MAP_ANONYMOUS) == 0;
        record.fd = of_file ? static_cast<int>(arguments[4]) : -1;
        record.offset = of_file ? arguments[5] : 0;
        auto node = of_file ? nodes_.of_descriptor(task.tid, record.fd) : std::nullopt;
        const bool replaces = (record.flags & MAP_FIXED) != 0 && space.touches(record.address, record.length);
        if (!node && !replaces) {
            return false;
        }
        record.node = node ? std::move(*node) : NodeName{};
        call.bodies.emplace_back(std::move(record));
        return true;
    }
    UnmapRecord record;
    record.address = arguments[0];
    record.length = arguments[1];
    bool wanted = space.touches(record.address, record.length);
    if (call.call->kind == CallKind::remap) {
        record.moved = true;
        record.new_length = arguments[2];
        record.flags = static_cast<std::uint32_t>(arguments[3]);
        record.new_address = (record.flags & MREMAP_FIXED) != 0 ? arguments[4] : 0;
        wanted = wanted || ((record.flags & MREMAP_FIXED) != 0 && space.touches(arguments[4], record.new_length));
    }
    if (wanted) {
        record_memory(task, 0); // the last occasion to see it
        call.entered = sink_.next_sequence();
        call.bodies.emplace_back(std::move(record));
    }
    return wanted;
}

void Calls::leave_mapping(Task& task, PendingCall& call) {
    if (!call.outcome.succeeded()) {
        return;
    }
    AddressSpace& space = *task.process->space;
    const auto place = static_cast<std::uint64_t>(call.outcome.value);
    if (const auto* map = std::get_if<MapRecord>(&call.bodies.front())) {
        space.remove(place, map->length);
        if (!map->node.path.empty()) {
            space.add(place, {map->length, map->node, map->offset, map->protection, {}, false});
        }
        return;
    }
    const auto& unmap = std::get<UnmapRecord>(call.bodies.front());
    if (!unmap.moved) {
        space.remove(unmap.address, unmap.length);
        return;
    }
    const auto old = space.mappings.find(unmap.address);
    const bool was_node = old != space.mappings.end();
    const NodeMapping mapping = was_node ? old->second : NodeMapping{};
    space.remove(unmap.address, unmap.length);
    space.remove(place, unmap.new_length);
    if (was_node) {
        space.add(place, {unmap.new_length, mapping.node, mapping.offset, mapping.protection, {}, false});
    }
}

void Calls::record_memory(const Task& task, std::uint64_t occasion) {
    if (!with_memory_) {
        return;
    }
    const ProcessMemory memory{task.tid};
    for (auto& [start, mapping] : task.process->space->mappings) {
        // Reading a managed range of UVM would move its pages to the host.
        const bool of_uvm = mapping.node.kind == Node::uvm || mapping.node.kind == Node::uvm_tools;
        if (of_uvm || mapping.not_readable || (mapping.protection & PROT_READ) == 0) {
            continue;
        }
        if (mapping.length > most_of_a_mapping) {
            mapping.not_readable = true;
            note(task, "memory-limit",
                 fmt::format("the mapping of {} bytes of {} at 0x{:x} is too large to be recorded", mapping.length,
                             mapping.node.path, start));
            continue;
        }
        Capture now = memory.read_mapping(start, mapping.length);
        if (now.bytes.empty()) {
            mapping.not_readable = true;
            emit_now(task, MemoryRecord{mapping.node, start, start, occasion, std::move(now)});
            continue;
        }
        for (std::size_t at = 0; at < now.bytes.size();) {
            if (same(now.bytes, mapping.last, at)) {
                at += step;
                continue;
            }
            std::size_t end = at + step;
            while (end < now.bytes.size() && end - at < most_of_a_record && !same(now.bytes, mapping.last, end)) {
                end += step;
            }
            end = std::min(end, now.bytes.size());
            MemoryRecord record;
            record.node = mapping.node;
            record.mapping = start;
            record.address = start + at;
            record.occasion = occasion;
            record.bytes.bytes.assign(now.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                      now.bytes.begin() + static_cast<std::ptrdiff_t>(end));
            record.bytes.error = end == now.bytes.size() ? now.error : 0;
            emit_now(task, std::move(record));
            at = end;
        }
        mapping.last = std::move(now.bytes);
    }
}

} // namespace upcie::rm
