// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/call.hpp>

#include <algorithm>

#include <rm/little_endian.hpp>
#include <upcie/result.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/statuses.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

using Bytes = std::span<const std::byte>;

/// Where the handles of an escape's argument lie; `none` where it has no such handle.
struct HandleLayout {
    std::uint32_t escape;
    std::uint8_t client, parent, object;
};
constexpr std::uint8_t none = 0xff;
// nvos.h, nv-ioctl.h. NVOS02, 05, 21 and 64 begin alike: root, parent, new object.
constexpr HandleLayout handle_layouts[] = {
    {escape_alloc_memory, 0, 4, 8},
    {escape_alloc_object, 0, 4, 8},
    {escape_free, 0, 4, 8},
    {escape_control, 0, none, 4},
    {escape_alloc, 0, 4, 8},
    {escape_dup_object, 0, 4, 8},
    {escape_share, 0, none, 4},
    {escape_i2c_access, 0, none, 4},
    {escape_idle_channels, 0, 4, 8},
    {escape_vid_heap_control, 0, 4, none},
    {escape_access_registry, 0, none, 4},
    {escape_map_memory, 0, 4, 8},
    {escape_unmap_memory, 0, 4, 8},
    {escape_map_memory_dma, 0, 4, 12},
    {escape_unmap_memory_dma, 0, 4, 12},
    {escape_update_device_mapping_info, 0, 4, 8},
    {escape_alloc_os_event, 0, none, 4},
    {escape_free_os_event, 0, none, 4},
    {escape_export_to_dmabuf_fd, 4, none, none},
};

std::uint32_t handle_at(Bytes bytes, std::uint8_t offset) {
    return offset == none ? 0 : load_u32(bytes, offset).value_or(0);
}

void find_handles(Call& call) {
    for (const HandleLayout& layout : handle_layouts) {
        if (layout.escape == call.what.number) {
            call.client = handle_at(call.argument_before, layout.client);
            call.parent = handle_at(call.argument_before, layout.parent);
            call.object = handle_at(call.argument_before, layout.object);
        }
    }
    switch (call.what.number) {
    case escape_alloc:
    case escape_alloc_object:
    case escape_alloc_memory: {
        call.class_id = load_u32(call.argument_before, 12);
        // The caller may leave the handle to the driver; that of a root is then its client too.
        if (const auto answered = load_u32(call.argument_after, 8)) {
            call.object = *answered;
        }
        const std::uint32_t id = call.class_id.value_or(none);
        if (id == class_root || id == class_root_non_privileged || id == class_root_client) {
            call.client = call.object;
        }
        break;
    }
    case escape_dup_object:
        if (const auto answered = load_u32(call.argument_after, 8)) {
            call.object = *answered;
        }
        break;
    case escape_vid_heap_control:
        // hMemory of the function's own part, which begins at 40 with owner, hMemory; NVOS32_FUNCTION_ALLOC_SIZE.
        if (load_u32(call.argument_before, 8) == 2U) {
            call.object = load_u32(call.argument_after, 44).value_or(0);
        }
        break;
    default:
        break;
    }
}

/// How far before the end of a UVM argument its status lies.
std::uint16_t uvm_status_from_end(const UvmCommand& command, std::size_t bytes, DriverVersion version) {
    // Commands that got a member without growing, or one behind the status.
    constexpr std::uint32_t set_preferred_location = 42;
    constexpr std::uint32_t tools_init_event_tracker = 56;
    constexpr std::uint32_t tools_get_processor_uuid_table = 64;
    if (command.number == set_preferred_location && version.known() && version.branch < 550) {
        return 8;
    }
    if (command.number == tools_init_event_tracker && bytes == 56) {
        return 8;
    }
    if (command.number == tools_get_processor_uuid_table && bytes == 16) {
        return 4;
    }
    return command.status_from_end;
}

std::optional<std::uint32_t> find_status(const Call& call, DriverVersion version) {
    const Bytes bytes = call.argument_after;
    std::uint16_t from_end = 0;
    if (call.what.type == BlockKind::Type::uvm) {
        const UvmCommand* command = find_uvm_command(call.what.number);
        from_end = command != nullptr ? uvm_status_from_end(*command, bytes.size(), version) : std::uint16_t{0};
    } else if (call.what.type == BlockKind::Type::escape) {
        const Escape* escape = find_escape(call.what.number);
        from_end = escape != nullptr ? escape->status_from_end : std::uint16_t{0};
        constexpr std::size_t nvos21_bytes = 32;
        if (call.what.number == escape_alloc && bytes.size() == nvos21_bytes) {
            from_end = 4;
        }
    }
    return from_end != 0 && from_end <= bytes.size() ? load_u32(bytes, bytes.size() - from_end) : std::nullopt;
}

void take_argument(Call& call, std::string_view path) {
    if (const Block* block = find_block(*call.ioctl, path)) {
        call.argument_before = block->before.bytes;
        call.argument_after = bytes_after(*block, call.ioctl->outcome);
    }
}

void take_parameters(Call& call, std::string_view path) {
    if (const Block* block = find_block(*call.ioctl, path)) {
        call.parameters_before = block->before.bytes;
        call.parameters_after = bytes_after(*block, call.ioctl->outcome);
        call.parameter_bytes = block->size;
    }
}

} // namespace

bool Call::succeeded() const noexcept {
    return ioctl->outcome.succeeded() && status.value_or(status_ok) == status_ok;
}

const Block* find_block(const IoctlRecord& ioctl, std::string_view path) noexcept {
    const auto found = std::ranges::find(ioctl.blocks, path, &Block::path);
    return found != ioctl.blocks.end() ? &*found : nullptr;
}

std::span<const std::byte> bytes_after(const Block& block, const Outcome& outcome) noexcept {
    const bool unchanged = block.after.bytes.empty() && block.after.error == 0;
    if (unchanged && outcome.kind == Outcome::Kind::returned) {
        return block.before.bytes;
    }
    return block.after.bytes;
}

std::optional<Call> understand(const Record& record, DriverVersion version) {
    const auto* ioctl = std::get_if<IoctlRecord>(&record.body);
    if (ioctl == nullptr) {
        return std::nullopt;
    }
    Call call;
    call.record = &record;
    call.ioctl = ioctl;
    call.what = argument_kind(ioctl->node.kind, ioctl->request);
    take_argument(call, "argument");
    if (call.what.type == BlockKind::Type::escape) {
        std::string parameters = "params";
        if (call.what.number == escape_xfer) {
            // What it wraps is what it is; an XFER whose argument was not read stays one.
            if (const auto inner = load_u32(call.argument_before, 0); inner && *inner != escape_xfer) {
                call.through_xfer = true;
                call.what.number = *inner;
                call.argument_before = {};
                call.argument_after = {};
                take_argument(call, "xfer");
                parameters = "xfer/params";
            }
        }
        find_handles(call);
        if (call.what.number == escape_control) {
            call.control = load_u32(call.argument_before, 8);
            call.parameter_bytes = load_u32(call.argument_before, 24).value_or(0);
        }
        take_parameters(call, parameters);
    }
    call.status = find_status(call, version);
    return call;
}

DriverVersion driver_version(const Trace& trace) {
    for (const TraceHeader& header : trace.headers) {
        if (const auto version = parse_driver_version(header.driver)) {
            return *version;
        }
    }
    const auto text_of = [](Bytes bytes, std::size_t offset) {
        std::string text;
        for (std::size_t i = offset; i < bytes.size() && bytes[i] != std::byte{0}; ++i) {
            text += std::to_integer<char>(bytes[i]);
        }
        return text;
    };
    for (const Record& record : trace.records) {
        const auto call = understand(record, {});
        if (!call || call->what.type != BlockKind::Type::escape) {
            continue;
        }
        std::string text;
        constexpr std::uint32_t check_version = 210;
        if (call->what.number == check_version) {
            text = text_of(call->argument_after, 8);
        } else if (call->control == 0x101U) {
            if (const Block* block = find_block(*call->ioctl, call->through_xfer ? "xfer/params/driver_version"
                                                                                 : "params/driver_version")) {
                text = text_of(bytes_after(*block, call->ioctl->outcome), 0);
            }
        }
        if (const auto version = parse_driver_version(text)) {
            return *version;
        }
    }
    return {};
}

} // namespace upcie::rm
