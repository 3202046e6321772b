// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace upcie::rm {

/// What kind of device node a call went to. The meaning of an ioctl request follows from it.
enum class Node : std::uint8_t {
    control,      ///< /dev/nvidiactl: everything that is an RM object
    gpu,          ///< /dev/nvidia0, /dev/nvidia1 ...: one GPU
    uvm,          ///< /dev/nvidia-uvm: unified memory, raw command numbers
    uvm_tools,    ///< /dev/nvidia-uvm-tools: the same commands, for debuggers and profilers
    modeset,      ///< /dev/nvidia-modeset: displays
    capabilities, ///< /dev/nvidia-caps/...: the right to use something, shown by an open fd
    other,        ///< another node of the driver (/dev/nvidia-nvswitchctl ...), or none
};

/// The kind of node that a path under /dev names; nothing for a path that is no NVIDIA node. Threads: any.
[[nodiscard]] std::optional<Node> node_of_path(std::string_view path) noexcept;
/// "nvidiactl", "nvidiaN", "nvidia-uvm" ...
[[nodiscard]] std::string_view node_name(Node node) noexcept;

} // namespace upcie::rm
