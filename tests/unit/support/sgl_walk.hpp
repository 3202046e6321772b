// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/nvme/sgl.hpp>

#include "support/prp_lists.hpp"

namespace upcie::test {

/// What a controller finds by following an SGL.
struct SglWalk {
    std::vector<iommu::Extent> data;
    std::size_t pages_used = 0;
};

/// Follows an SGL as a controller does (Base Specification 2.0, section 4.1.2); nothing when it breaks a rule or leads
/// to a page that is none.
[[nodiscard]] inline std::optional<SglWalk> walk_sgl(const nvme::SglDescriptor& first, const PrpLists& lists) {
    using nvme::SglKind;
    const auto kind = [](const nvme::SglDescriptor& descriptor) { return static_cast<SglKind>(descriptor.kind); };
    SglWalk walk;
    if (kind(first) == SglKind::data_block) {
        walk.data.push_back({DmaAddress{first.address}, ByteCount{first.length}});
        return walk;
    }
    const std::uint64_t page = lists.per_page * 8;
    nvme::SglDescriptor link = first;
    while (true) {
        const auto found = std::find(lists.addresses.begin(), lists.addresses.end(), link.address);
        const bool last = kind(link) == SglKind::last_segment;
        if (found == lists.addresses.end() || (!last && kind(link) != SglKind::segment) || link.length == 0 ||
            link.length % 16 != 0 || link.length > page) {
            return std::nullopt;
        }
        ++walk.pages_used;
        std::vector<nvme::SglDescriptor> segment(link.length / 16);
        std::memcpy(static_cast<void*>(segment.data()),
                    lists.cpu.data() + static_cast<std::size_t>(found - lists.addresses.begin()) * lists.per_page,
                    link.length);
        const std::size_t blocks = last ? segment.size() : segment.size() - 1;
        for (std::size_t i = 0; i < blocks; ++i) {
            if (kind(segment[i]) != SglKind::data_block) {
                return std::nullopt;
            }
            walk.data.push_back({DmaAddress{segment[i].address}, ByteCount{segment[i].length}});
        }
        if (last) {
            return walk;
        }
        link = segment.back();
    }
}

/// Extents with those that meet made one, as a list of them describes the same bytes.
[[nodiscard]] inline std::vector<iommu::Extent> joined(const std::vector<iommu::Extent>& extents) {
    std::vector<iommu::Extent> result;
    for (const auto& extent : extents) {
        if (!result.empty() && result.back().address.value() + result.back().length.value() == extent.address.value()) {
            result.back().length += extent.length;
        } else if (extent.length != ByteCount{}) {
            result.push_back(extent);
        }
    }
    return result;
}

} // namespace upcie::test
