// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <upcie/result.hpp>

namespace upcie::rm {

/// The version of an NVIDIA kernel driver, as in /proc/driver/nvidia/version: 580.159.04 is {580, 159, 4}.
/// The default value means "not known"; lookups by it answer for the newest version that the tables know.
struct DriverVersion {
    std::uint16_t branch = 0;
    std::uint16_t minor = 0;
    std::uint16_t patch = 0;

    [[nodiscard]] constexpr bool known() const noexcept { return branch != 0; }
    friend constexpr auto operator<=>(const DriverVersion&, const DriverVersion&) noexcept = default;

    /// "580.159.04", "535.54.3" (patches have two digits at NVIDIA: "535.54.03"), or "unknown". Threads: any.
    [[nodiscard]] std::string text() const;
};

/// Reads "580.159.04", "550.163" or "550". Error: EINVAL for anything else. Threads: any.
[[nodiscard]] Result<DriverVersion> parse_driver_version(std::string_view text);

} // namespace upcie::rm
