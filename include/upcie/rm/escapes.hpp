// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <upcie/rm/node.hpp>
#include <upcie/rm/parameter_size.hpp>

namespace upcie::rm {

/// Which node the kernel takes an escape on; on the wrong one it answers EINVAL.
enum class EscapeNode : std::uint8_t {
    control, ///< /dev/nvidiactl
    gpu,     ///< /dev/nvidiaN
    either,
};

/// An ioctl of /dev/nvidiactl and /dev/nvidiaN, `_IOWR('F', number, size)` (nv_escape.h, nv-ioctl-numbers.h). A value
/// of the table; its text lives as long as the program.
struct Escape {
    std::uint8_t number = 0;
    std::string_view name; ///< without the prefix NV_ESC_: "RM_ALLOC"
    EscapeNode node = EscapeNode::control;
    ParameterSize size; ///< of the argument; 0 bytes for none
    std::uint16_t status_from_end =
        0;                 ///< the RM status lies that many bytes before the argument\'s end; 0: it has none
    std::string_view note; ///< what is known besides, a sentence or nothing
};

// The escapes that this library itself has to tell apart.
inline constexpr std::uint8_t escape_alloc_memory = 0x27;
inline constexpr std::uint8_t escape_alloc_object = 0x28;
inline constexpr std::uint8_t escape_free = 0x29;
inline constexpr std::uint8_t escape_control = 0x2a;
inline constexpr std::uint8_t escape_alloc = 0x2b;
inline constexpr std::uint8_t escape_dup_object = 0x34;
inline constexpr std::uint8_t escape_share = 0x35;
inline constexpr std::uint8_t escape_i2c_access = 0x39;
inline constexpr std::uint8_t escape_idle_channels = 0x41;
inline constexpr std::uint8_t escape_vid_heap_control = 0x4a;
inline constexpr std::uint8_t escape_access_registry = 0x4d;
inline constexpr std::uint8_t escape_map_memory = 0x4e;
inline constexpr std::uint8_t escape_unmap_memory = 0x4f;
inline constexpr std::uint8_t escape_get_event_data = 0x52;
inline constexpr std::uint8_t escape_map_memory_dma = 0x57;
inline constexpr std::uint8_t escape_unmap_memory_dma = 0x58;
inline constexpr std::uint8_t escape_update_device_mapping_info = 0x5e;
inline constexpr std::uint8_t escape_card_info = 200;
inline constexpr std::uint8_t escape_register_fd = 201;
inline constexpr std::uint8_t escape_alloc_os_event = 206;
inline constexpr std::uint8_t escape_free_os_event = 207;
inline constexpr std::uint8_t escape_xfer = 211;
inline constexpr std::uint8_t escape_export_to_dmabuf_fd = 217;

/// The parts of an `_IOC` request, as the kernel splits it (asm-generic/ioctl.h).
[[nodiscard]] constexpr std::uint8_t request_number(std::uint64_t request) noexcept {
    return static_cast<std::uint8_t>(request & 0xff);
}
[[nodiscard]] constexpr char request_type(std::uint64_t request) noexcept {
    return static_cast<char>((request >> 8) & 0xff);
}
/// Bytes of the argument; at most 16383, which is why XFER exists.
[[nodiscard]] constexpr std::uint32_t request_size(std::uint64_t request) noexcept {
    return static_cast<std::uint32_t>((request >> 16) & 0x3fff);
}
/// Whether `request` has the shape of an escape: type 'F', both directions.
[[nodiscard]] constexpr bool is_escape_request(std::uint64_t request) noexcept {
    return request_type(request) == 'F' && ((request >> 30) & 3) == 3 && request >> 32 == 0;
}

/// "/dev/nvidiactl", "/dev/nvidiaN", or both.
[[nodiscard]] std::string_view escape_node_name(EscapeNode node) noexcept;
/// The escape of this number, or nullptr for one that no public header has. Threads: any.
[[nodiscard]] const Escape* find_escape(std::uint32_t number) noexcept;
/// All, ascending by number.
[[nodiscard]] std::span<const Escape> escapes() noexcept;

} // namespace upcie::rm
