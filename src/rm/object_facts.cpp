// SPDX-License-Identifier: BSD-3-Clause
// Offsets are those of the structures of nvos.h, alloc_channel.h and cl*.h, the same in all branches from 535 to 595.
#include <rm/object_facts.hpp>

#include <fmt/format.h>

#include <rm/little_endian.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/objects.hpp>

namespace upcie::rm {

namespace {

ObjectFacts pinned_memory(const Call& call) {
    // NVOS02: flags @16, address @24, limit (the last byte's offset) @32.
    const auto limit = load_u64(call.argument_before, 32);
    ObjectFacts facts;
    if (limit && *limit != ~std::uint64_t{0}) {
        facts.bytes = *limit + 1;
        facts.text = fmt::format("{} of the process at 0x{:x}", bytes_text(facts.bytes),
                                 load_u64(call.argument_before, 24).value_or(0));
    }
    return facts;
}

ObjectFacts memory(const Call& call) {
    // NV_MEMORY_ALLOCATION_PARAMS: size @64, which the driver rounds up.
    const auto parameters = call.parameters_after.empty() ? call.parameters_before : call.parameters_after;
    ObjectFacts facts;
    constexpr std::size_t whole_bytes = 120;
    if (parameters.size() >= whole_bytes) {
        facts.bytes = load_u64(parameters, 64).value_or(0);
        facts.text = bytes_text(facts.bytes);
    }
    return facts;
}

std::string channel(const Call& call) {
    // NV_CHANNEL_ALLOC_PARAMS: ring @8, entries @16, engine type @128.
    const auto ring = load_u64(call.parameters_before, 8);
    const auto entries = load_u32(call.parameters_before, 16);
    const auto engine = load_u32(call.parameters_before, 128);
    return ring && entries && engine
               ? fmt::format("ring of {} entries at 0x{:x}, engine type 0x{:x}", *entries, *ring, *engine)
               : std::string{};
}

std::string event(const Call& call) {
    // NV0005_ALLOC_PARAMETERS: notify index @12 with flags in its upper bits, descriptor @16.
    const auto index = load_u32(call.parameters_before, 12);
    const auto data = load_u64(call.parameters_before, 16);
    if (!index || !data) {
        return {};
    }
    return call.class_id == class_event_os_event ? fmt::format("notification {} by fd {}", *index & 0xffff, *data)
                                                 : fmt::format("notification {}", *index & 0xffff);
}

std::string numbered(const Call& call, std::size_t offset, std::string_view what) {
    const auto number = load_u32(call.parameters_before, offset);
    return number ? fmt::format("{} 0x{:x}", what, *number) : std::string{};
}

} // namespace

ObjectFacts allocation_facts(const Call& call, ClassRole role) {
    if (call.what.number == escape_alloc_memory) {
        return pinned_memory(call);
    }
    switch (role) {
    case ClassRole::memory:
        return call.class_id == class_memory_os_descriptor ? ObjectFacts{} : memory(call);
    case ClassRole::virtual_memory:
        return memory(call);
    case ClassRole::channel:
        return {channel(call), 0};
    case ClassRole::channel_group:
        return {numbered(call, 12, "engine type"), 0};
    case ClassRole::copy:
        return {numbered(call, 4, "engine type"), 0};
    case ClassRole::device:
        return {numbered(call, 0, "device"), 0};
    case ClassRole::subdevice:
        return {numbered(call, 0, "subdevice"), 0};
    case ClassRole::event:
        return {event(call), 0};
    default:
        return {};
    }
}

} // namespace upcie::rm
