// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <upcie/rm/parameter_size.hpp>

namespace upcie::rm {

/// A command of /dev/nvidia-uvm or /dev/nvidia-uvm-tools: the raw request, which carries no size (uvm_ioctl.h,
/// uvm_linux_ioctl.h).
struct UvmCommand {
    std::uint32_t number = 0;
    std::string_view name; ///< without the prefix UVM_: "MAP_EXTERNAL_ALLOCATION"
    ParameterSize size;
    std::uint16_t status_from_end =
        0; ///< the RM status lies that many bytes before the argument\'s end; 0: it has none
    std::string_view note;
};

inline constexpr std::uint32_t uvm_register_gpu_vaspace = 25;
inline constexpr std::uint32_t uvm_register_channel = 27;
inline constexpr std::uint32_t uvm_map_external_allocation = 33;
inline constexpr std::uint32_t uvm_free = 34;
inline constexpr std::uint32_t uvm_register_gpu = 37;
inline constexpr std::uint32_t uvm_create_external_range = 73;
inline constexpr std::uint32_t uvm_initialize = 0x30000001;
inline constexpr std::uint32_t uvm_deinitialize = 0x30000002;

/// The command of this number, or nullptr for one that no public header has. Threads: any.
[[nodiscard]] const UvmCommand* find_uvm_command(std::uint32_t number) noexcept;
/// All, ascending by number.
[[nodiscard]] std::span<const UvmCommand> uvm_commands() noexcept;

} // namespace upcie::rm
