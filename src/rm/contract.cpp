// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/contract.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

Point point_of_escape(std::uint64_t number) {
    switch (number) {
    case escape_alloc_object:
    case escape_free:
    case escape_alloc:
    case escape_dup_object:
    case escape_share:
        return Point::objects;
    case escape_alloc_memory:
    case escape_vid_heap_control:
    case escape_map_memory:
    case escape_unmap_memory:
    case 0x54: // ALLOC_CONTEXT_DMA2
    case escape_map_memory_dma:
    case escape_unmap_memory_dma:
    case escape_update_device_mapping_info:
    case escape_export_to_dmabuf_fd:
        return Point::memory;
    case escape_idle_channels:
    case 0x59: // BIND_CONTEXT_DMA
        return Point::channels;
    case escape_get_event_data:
    case 0x56: // ADD_VBLANK_CALLBACK
    case escape_alloc_os_event:
    case escape_free_os_event:
    case 213: // QUERY_DEVICE_INTR
        return Point::events;
    case escape_i2c_access:
    case 215: // NUMA_INFO
    case 216: // SET_NUMA_STATUS
        return Point::topology;
    default:
        return Point::control_device;
    }
}

Point point_of_role(ClassRole role) {
    switch (role) {
    case ClassRole::memory:
    case ClassRole::virtual_memory:
    case ClassRole::address_space:
    case ClassRole::peer_to_peer:
        return Point::memory;
    case ClassRole::channel_group:
    case ClassRole::context_share:
    case ClassRole::channel:
    case ClassRole::usermode:
        return Point::channels;
    case ClassRole::compute:
    case ClassRole::copy:
    case ClassRole::graphics:
    case ClassRole::video:
        return Point::execution;
    case ClassRole::event:
        return Point::events;
    default:
        return Point::objects;
    }
}

Point point_of_allocation(std::uint64_t id) {
    const Class* known = id <= 0xffffffff ? find_class(static_cast<std::uint32_t>(id)) : nullptr;
    return known != nullptr ? point_of_role(known->role) : Point::objects;
}

/// A control's category is bits 14:8 of its command; bit 15 says legacy.
Point point_of_control(std::uint32_t command) {
    const std::uint32_t category = (command >> 8) & 0x7f;
    switch (control_class(command)) {
    case 0x0000: // the root: 1 system, 2 GPUs, 0xd client, 0x3d what is the system's own: objects as descriptors
        return category == 2      ? Point::topology
               : category == 0x0d ? Point::objects
               : category == 0x3d ? Point::memory
                                  : Point::control_device;
    case 0x0080: // the device: 0x13 framebuffer, 0x17 FIFO, 0x18 DMA
        return category == 0x17                       ? Point::channels
               : category == 0x13 || category == 0x18 ? Point::memory
                                                      : Point::topology;
    case 0x2080: // the subdevice: 3 events, 0x11 FIFO, 0x13 framebuffer, 0x22 robust channels, 0x25 DMA
        return category == 0x03 || category == 0x22   ? Point::events
               : category == 0x11                     ? Point::channels
               : category == 0x13 || category == 0x25 ? Point::memory
                                                      : Point::topology;
    default:
        break;
    }
    const Class* owner = find_class(control_class(command));
    return owner != nullptr && point_of_role(owner->role) != Point::objects ? point_of_role(owner->role)
                                                                            : Point::topology;
}

Point point_of_uvm(std::uint64_t number) {
    constexpr std::uint32_t unregister_channel = 28;
    constexpr std::uint32_t first_tool = 56;
    constexpr std::uint32_t last_tool = 64;
    if (number == uvm_register_channel || number == unregister_channel) {
        return Point::channels;
    }
    return number >= first_tool && number <= last_tool ? Point::events : Point::memory;
}

bool is_unknown(const Ask& ask) {
    const auto number = static_cast<std::uint32_t>(ask.number);
    switch (ask.kind) {
    case Ask::Kind::escape:
        return find_escape(number) == nullptr;
    case Ask::Kind::control:
        return find_control(number) == nullptr;
    case Ask::Kind::allocation:
        return find_class(number) == nullptr;
    case Ask::Kind::uvm:
        return find_uvm_command(number) == nullptr;
    case Ask::Kind::other:
        break;
    }
    return true;
}

void take_call(Contract& contract, const Call& call) {
    const Ask ask = ask_of(call);
    AskFacts& facts = contract.asks[ask];
    ++facts.calls;
    facts.outcomes.insert(outcome_text(call));
    const bool has_parameters = ask.kind == Ask::Kind::control || ask.kind == Ask::Kind::allocation;
    facts.sizes.insert(has_parameters ? call.parameter_bytes : call.argument_before.size());
    facts.unknown = is_unknown(ask);
    if (call.what.type == BlockKind::Type::escape) {
        facts.escapes.insert(call.what.number);
    }
    if (ask.kind == Ask::Kind::control) {
        const auto command = static_cast<std::uint32_t>(ask.number);
        facts.legacy = is_legacy_control(command);
        const ConsumedControl* consumed = find_consumed_control(command);
        facts.consumed = consumed != nullptr ? std::string{consumed->zeros_lead_to} : std::string{};
    }
    if (call.succeeded()) {
        ++facts.succeeded;
        contract.smallest.insert(ask);
        if (call.what.type == BlockKind::Type::escape) {
            contract.smallest.insert({Ask::Kind::escape, call.what.number});
        }
        if (call.class_id) {
            const Class* known = find_class(*call.class_id);
            contract.channels += known != nullptr && known->role == ClassRole::channel ? 1U : 0U;
            contract.events += known != nullptr && known->role == ClassRole::event ? 1U : 0U;
        }
    }
}

} // namespace

std::string_view point_name(Point point) noexcept {
    switch (point) {
    case Point::control_device:
        return "control device";
    case Point::objects:
        return "objects and handles";
    case Point::topology:
        return "device and engine topology";
    case Point::memory:
        return "memory";
    case Point::channels:
        return "channels";
    case Point::events:
        return "events and interrupts";
    case Point::replies:
        return "values of consumed replies";
    case Point::execution:
        return "push-buffer execution";
    }
    return "?";
}

Ask ask_of(const Call& call) noexcept {
    switch (call.what.type) {
    case BlockKind::Type::uvm:
        return {Ask::Kind::uvm, call.what.number};
    case BlockKind::Type::escape:
        if (call.control) {
            return {Ask::Kind::control, *call.control};
        }
        if (call.class_id) {
            return {Ask::Kind::allocation, *call.class_id};
        }
        return {Ask::Kind::escape, call.what.number};
    default:
        return {Ask::Kind::other, call.ioctl->request};
    }
}

std::string ask_name(const Ask& ask, DriverVersion version) {
    const auto number = static_cast<std::uint32_t>(ask.number);
    switch (ask.kind) {
    case Ask::Kind::escape:
        return find_escape(number) != nullptr ? fmt::format("{} (0x{:x})", escape_name(number), number)
                                              : escape_name(number);
    case Ask::Kind::control:
        return control_name(number, version);
    case Ask::Kind::allocation:
        return class_name(number);
    case Ask::Kind::uvm:
        // Most are small decimal numbers in their header; two are not.
        return find_uvm_command(number) == nullptr ? uvm_name(number)
               : number < 0x1000                   ? fmt::format("{} ({})", uvm_name(number), number)
                                                   : fmt::format("{} (0x{:x})", uvm_name(number), number);
    case Ask::Kind::other:
        break;
    }
    return fmt::format("ioctl 0x{:x}", ask.number);
}

Point point_of(const Ask& ask) noexcept {
    switch (ask.kind) {
    case Ask::Kind::escape:
        return point_of_escape(ask.number);
    case Ask::Kind::control:
        return point_of_control(static_cast<std::uint32_t>(ask.number));
    case Ask::Kind::allocation:
        return point_of_allocation(ask.number);
    case Ask::Kind::uvm:
        return point_of_uvm(ask.number);
    case Ask::Kind::other:
        break;
    }
    return Point::control_device;
}

Contract contract_of(const std::vector<const Trace*>& traces) {
    Contract contract;
    for (const Trace* trace : traces) {
        const DriverVersion version = driver_version(*trace);
        if (!contract.version.known()) {
            contract.version = version;
        }
        for (const Record& record : trace->records) {
            if (const auto call = understand(record, version)) {
                take_call(contract, *call);
            } else if (const auto* opened = std::get_if<OpenRecord>(&record.body)) {
                contract.node_opens += opened->is_node ? 1U : 0U;
                if (!opened->is_node) {
                    contract.files.insert(opened->path);
                }
            } else if (const auto* examined = std::get_if<StatRecord>(&record.body)) {
                if (!examined->path.empty()) {
                    contract.files.insert(examined->path);
                }
            } else if (std::holds_alternative<PollRecord>(record.body)) {
                ++contract.polls;
            } else if (std::holds_alternative<MapRecord>(record.body)) {
                ++contract.mappings;
            } else if (std::holds_alternative<MemoryRecord>(record.body)) {
                ++contract.memory_records;
            }
        }
    }
    contract.consumed_measured_here = contract.version.branch == consumed_controls_measured_on;
    return contract;
}

std::vector<Ask> refused_by(const Contract& contract, const AllowList& list) {
    std::vector<Ask> refused;
    for (const auto& [ask, facts] : contract.asks) {
        const bool carried = std::ranges::all_of(facts.escapes, [&](std::uint32_t number) {
            return list.allows({Ask::Kind::escape, number});
        });
        if (!carried || !list.allows(ask)) {
            refused.push_back(ask);
        }
    }
    return refused;
}

} // namespace upcie::rm
