// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/nvme/prp.hpp>

namespace upcie::test {

/// List pages at made-up device addresses, filled with a mark so that every entry written shows.
struct PrpLists {
    static constexpr std::uint64_t mark = 0xdead'dead'dead'dead;

    explicit PrpLists(std::uint32_t count, unsigned page_shift = 12)
        : per_page{std::size_t{1} << (page_shift - 3)}, cpu(count * per_page, mark) {
        for (std::uint32_t i = 0; i < count; ++i) {
            addresses.push_back((std::uint64_t{0x5000} + i * 2) << page_shift); // not adjacent
        }
    }
    [[nodiscard]] nvme::PrpListPages pages() {
        return {cpu.data(), addresses.data(), static_cast<std::uint32_t>(addresses.size())};
    }

    std::size_t per_page; ///< entries
    std::vector<std::uint64_t> cpu;
    std::vector<std::uint64_t> addresses;
};

/// The addresses at which a controller finds the data of a command, page by page.
struct PrpWalk {
    std::vector<std::uint64_t> data;
    std::size_t lists_used = 0;
};

/// Reads PRPs as a controller does (Base Specification 2.0, section 4.1.1); nothing when it is sent to a list page that
/// is none.
[[nodiscard]] inline std::optional<PrpWalk> walk_prps(const nvme::PrpPair& pair, std::uint64_t bytes,
                                                      const PrpLists& lists) {
    const std::uint64_t page = lists.per_page * 8;
    const std::uint64_t first = page - pair.prp1 % page;
    std::uint64_t left = bytes <= first ? 0 : (bytes - first + page - 1) / page;
    PrpWalk walk{{pair.prp1}, 0};
    if (left == 1) {
        walk.data.push_back(pair.prp2);
    }
    if (left <= 1) {
        return walk;
    }
    for (std::uint64_t list = pair.prp2;;) {
        const auto found = std::find(lists.addresses.begin(), lists.addresses.end(), list);
        if (found == lists.addresses.end()) {
            return std::nullopt;
        }
        ++walk.lists_used;
        const std::uint64_t* const entries =
            lists.cpu.data() + static_cast<std::size_t>(found - lists.addresses.begin()) * lists.per_page;
        const std::uint64_t here = left > lists.per_page ? lists.per_page - 1 : left;
        walk.data.insert(walk.data.end(), entries, entries + here);
        left -= here;
        if (left == 0) {
            return walk;
        }
        list = entries[lists.per_page - 1];
    }
}

/// The same by arithmetic on the extents.
[[nodiscard]] inline std::vector<std::uint64_t> pages_of(const std::vector<iommu::Extent>& extents,
                                                         std::uint64_t page = 4096) {
    std::vector<std::uint64_t> data;
    for (const auto& extent : extents) {
        const std::uint64_t start = extent.address.value();
        const std::uint64_t end = start + extent.length.value();
        for (std::uint64_t at = start; at < end; at = at / page * page + page) {
            data.push_back(at);
        }
    }
    return data;
}

} // namespace upcie::test
