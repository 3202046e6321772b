// SPDX-License-Identifier: BSD-3-Clause
// Pointers into the calling process inside blocks of parameters: those that the public kernel driver follows when it
// copies a control's parameters (rmapi/embedded_param_copy.c, client_resource.c) or an escape's (escape.c), with the
// offsets that the compiler gives for the structures of 535 and 555. Pointers that name a place to map at, pinned user
// memory, a file descriptor or a kernel callback are no blocks of parameters and are not here.
#include <upcie/rm/nested.hpp>

#include <array>

#include <rm/block_kinds.hpp>
#include <upcie/rm/escapes.hpp>

namespace upcie::rm {

namespace {

constexpr std::uint16_t fixed = EmbeddedPointer::none;

/// `bytes` of one element, `count` of them: most lists are {u32 count @0, pointer @8}.
constexpr EmbeddedPointer list(std::uint32_t command, std::string_view name, std::uint32_t bytes,
                               std::uint16_t pointer = 8, std::uint16_t count = 0) {
    return {control_block(command), pointer, name, count, 4, bytes};
}

constexpr std::array embedded_pointer_table{
    EmbeddedPointer{escape_block(escape_i2c_access), 16, "params", 8, 4, 1},
    EmbeddedPointer{escape_block(escape_idle_channels), 16, "clients", 12, 4, 4},
    EmbeddedPointer{escape_block(escape_idle_channels), 24, "devices", 12, 4, 4},
    EmbeddedPointer{escape_block(escape_idle_channels), 32, "channels", 12, 4, 4},
    EmbeddedPointer{escape_block(escape_access_registry), 16, "device_node", 12, 4, 1},
    EmbeddedPointer{escape_block(escape_access_registry), 32, "parameter", 24, 4, 1},
    EmbeddedPointer{escape_block(escape_access_registry), 48, "binary_data", 40, 4, 1},
    EmbeddedPointer{escape_block(escape_get_event_data), 0, "event", fixed, 4, 16},

    // NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: one length for three strings.
    list(0x101, "driver_version", 1, 8),
    list(0x101, "version", 1, 16),
    list(0x101, "title", 1, 24),
    // NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS: a matrix of all the GPUs named.
    EmbeddedPointer{control_block(0x127), 160, "bus_peer_ids", 128, 4, 4, true},
    EmbeddedPointer{control_block(0x127), 168, "bus_egm_peer_ids", 128, 4, 4, true, 550},
    // NV0000_CTRL_CMD_SYSTEM_EXECUTE_ACPI_METHOD, and its successor of class 0073.
    EmbeddedPointer{control_block(0x130), 8, "in_data", 16, 2, 1},
    EmbeddedPointer{control_block(0x130), 24, "out_data", 32, 2, 1},
    EmbeddedPointer{control_block(0x730120), 8, "in_data", 16, 2, 1, false, 555},
    EmbeddedPointer{control_block(0x730120), 24, "out_data", 32, 2, 1, false, 555},
    // NV0000_CTRL_CMD_GPU_GET_ID_INFO: a name of at most 128 characters.
    EmbeddedPointer{control_block(0x202), 16, "name", fixed, 4, 128},
    list(0x283, "clients", 4, 16, 8),
    list(0x283, "devices", 4, 24, 8),
    list(0x283, "channels", 4, 32, 8),
    list(0x602, "buffer", 1, 0, 12),
    list(0x410110, "surface_info", 8),
    list(0x800201, "classes", 4),
    list(0x801102, "capabilities", 1),
    list(0x801104, "graphics_info", 8),
    list(0x801301, "capabilities", 1),
    list(0x801401, "capabilities", 1),
    list(0x801701, "capabilities", 1),
    list(0x801705, "channels", 4, 40),
    list(0x80170d, "channel_handles", 4, 8),
    list(0x80170d, "channels", 4, 16),
    EmbeddedPointer{control_block(0x80180f), 48, "page_directory_entry", fixed, 4, 16},
    list(0x801b01, "capabilities", 1),
    list(0x801c01, "capabilities", 1),
    list(0x20800101, "gpu_info", 8),
    list(0x20800122, "register_operations", 32, 24, 20),
    list(0x20800123, "engines", 4),
    list(0x20800124, "classes", 4, 8, 4),
    list(0x2080016e, "sessions", 32),
    list(0x20800610, "data", 1, 16, 28),
    list(0x20800802, "bios_info", 8),
    list(0x20800803, "data", 1, 1048, 1056),
    list(0x20800806, "data", 1, 16, 24),
    list(0x20801201, "graphics_info", 8),
    list(0x20801301, "framebuffer_info", 8),
    list(0x20801802, "bus_info", 8),
    list(0x20802204, "data", 1, 16, 24),
    list(0x20802402, "buffer", 1, 0, 12),
    list(0x20802a01, "capabilities", 1, 8, 4),
    list(0x402c0102, "message", 1, 24, 16),
    list(0x83de0315, "data", 1, 16, 4),
    list(0x83de0316, "data", 1, 16, 4),
    list(0x83de0326, "data", 1, 0, 8),
    list(0x83de0327, "data", 1, 0, 8),
    EmbeddedPointer{control_block(0xa0bc0101), 24, "timestamps", 16, 4, 16, false, 550},
    list(0xb06f010c, "context", 1, 8, 4),
    list(0xb06f010d, "context", 1, 8, 4),

    // /dev/nvidia-uvm-tools alone. INIT_EVENT_TRACKER's buffers are shared memory, not parameters.
    EmbeddedPointer{uvm_block(62), 0, "data", 8, 8, 1},
    EmbeddedPointer{uvm_block(63), 0, "data", 8, 8, 1},
    EmbeddedPointer{uvm_block(64), 0, "processors", 8, 4, 16},
};

} // namespace

std::span<const EmbeddedPointer> embedded_pointers() noexcept {
    return embedded_pointer_table;
}

} // namespace upcie::rm
