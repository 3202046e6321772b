// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace upcie::iommu {

/// What a range of this process's memory is made of, all through.
struct MemoryKind {
    bool mapped = false;                 ///< no hole in it
    bool shared = false;                 ///< MAP_SHARED all through
    std::uint64_t smallest_page_kib = 0; ///< KernelPageSize, the smallest of the areas
};

/// Looks [start, start + length) up in the text of /proc/self/smaps (proc(5)): areas ascending, each a header line
/// "from-to perms ..." with lines "Name: value kB" below. `length` is not 0, the sum does not overflow.
[[nodiscard]] MemoryKind look_up_smaps(std::string_view smaps, std::uint64_t start, std::uint64_t length);

} // namespace upcie::iommu
