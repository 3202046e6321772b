// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <upcie/result.hpp>

namespace upcie::pci {

/// A PCI function's place: domain, bus, device, function. Domains above 0xffff exist (VMD, Hyper-V: five hex digits).
struct Bdf {
    std::uint32_t domain = 0;
    std::uint8_t bus = 0;
    std::uint8_t device = 0;   ///< 0 to 31
    std::uint8_t function = 0; ///< 0 to 7

    friend constexpr auto operator<=>(const Bdf&, const Bdf&) noexcept = default;

    /// As sysfs writes it: "0000:01:00.0", "10000:e1:00.0".
    [[nodiscard]] std::string to_string() const;
    /// Strict: 4 to 8 hex digits of domain (may be left out together with its colon), then bb:dd.f and nothing else.
    /// Error: EINVAL with the text quoted.
    [[nodiscard]] static Result<Bdf> parse(std::string_view text);
};

} // namespace upcie::pci
