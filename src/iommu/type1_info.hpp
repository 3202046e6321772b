// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include <upcie/iommu/type1.hpp>
#include <upcie/result.hpp>

namespace upcie::iommu {

/// Reads an answer of VFIO_IOMMU_GET_INFO with its capability chain; nothing in it is trusted. `answer` is cut to what
/// the kernel said it filled. Errors: EPROTO (truncated, a chain that loops or leaves the answer, no page size),
/// EOPNOTSUPP (no aperture told: Linux below 5.4).
[[nodiscard]] Result<Type1Info> parse_type1_info(std::span<const std::byte> answer);

} // namespace upcie::iommu
