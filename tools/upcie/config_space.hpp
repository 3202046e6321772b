// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <upcie/pci/bdf.hpp>

#include "output.hpp"

namespace upcie::cli {

/// A bridge's Access Control Services (PCI Express Base Specification 5.0, 7.7.8), read through sysfs.
struct AcsControl {
    bool present = false;
    bool unreadable = false; ///< without privilege sysfs shows the first 64 bytes only
    std::uint16_t control = 0;

    /// P2P Request Redirect or Completion Redirect: traffic between devices takes the way over the root complex.
    [[nodiscard]] bool redirects() const noexcept { return (control & 0x000c) != 0; }
};

[[nodiscard]] AcsControl read_acs_control(Context& context, const pci::Bdf& bridge);

} // namespace upcie::cli
