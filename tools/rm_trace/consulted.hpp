// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace upcie::rm {

/// What the tracer makes of a file by its path.
enum class Interest : std::uint8_t {
    none,
    named,   ///< opens and stats are recorded
    content, ///< what is read from it, too
};

/// Files that NVIDIA's libraries look at: the driver's own under /proc, /sys, /dev and /etc, and of the machine what
/// they are known to read. Threads: any.
[[nodiscard]] Interest interest_in(std::string_view path) noexcept;

/// Whether a file of this path is a library of NVIDIA's, and its version as the file name has it ("580.159.04", or
/// empty). Threads: any.
[[nodiscard]] std::optional<std::string> library_version(std::string_view path);

} // namespace upcie::rm
