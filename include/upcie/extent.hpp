// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <upcie/units.hpp>

namespace upcie {

/// A piece of memory as a device sees it: `length` bytes contiguous from `address`. Standard-layout: the hot path
/// passes it in registers.
struct Extent {
    DmaAddress address;
    ByteCount length;
    friend constexpr bool operator==(const Extent&, const Extent&) noexcept = default;
};

} // namespace upcie
