// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <upcie/iommu/address_space.hpp>
#include <upcie/nvme/queue_layout.hpp>
#include <upcie/refusal.hpp>

namespace upcie::nvme {

/// The list pages that one command may use for its PRP entries, or for the segments of its SGL.
struct PrpListPages {
    std::uint64_t* cpu = nullptr;             ///< page 0; the others follow it without a gap
    const std::uint64_t* addresses = nullptr; ///< device address of each page
    std::uint32_t count = 0;
};

/// The two PRP entries of a command (Base Specification 2.0, section 4.1.1). Unused entries are zero.
struct PrpPair {
    std::uint64_t prp1 = 0;
    std::uint64_t prp2 = 0;
    Refusal refusal = Refusal::none;
    std::uint32_t segment = 0; ///< the extent at fault, where the refusal is about one
};

/// Bytes that `pages` list pages can describe at most, whatever the offset of the first byte.
/// All entries of the last page are data, one of every other page is the link.
[[nodiscard]] constexpr std::uint64_t prp_capacity(std::uint32_t pages, unsigned page_shift) noexcept {
    const std::uint64_t per_page = std::uint64_t{1} << (page_shift - 3);
    const std::uint64_t entries = pages == 0 ? 1 : (pages - 1) * (per_page - 1) + per_page;
    return entries << page_shift; // PRP entry 1 takes what the offset costs
}

/// List pages needed for a transfer of `bytes` at the worst offset.
[[nodiscard]] constexpr std::uint32_t prp_pages_for(std::uint64_t bytes, unsigned page_shift) noexcept {
    std::uint32_t pages = 0;
    while (prp_capacity(pages, page_shift) < bytes) {
        ++pages;
    }
    return pages;
}

/// Writes `count` entries that step by one page from `address`. Eight at a time in four lanes that do not wait for each
/// other: this loop is the cost of a large I/O.
inline void fill_contiguous_prps(std::uint64_t* entries, std::uint64_t count, std::uint64_t address,
                                 std::uint64_t page) noexcept {
    typedef std::uint64_t Pair __attribute__((vector_size(16)));
    typedef std::uint64_t StoredPair __attribute__((vector_size(16), aligned(8), may_alias));
    const auto store = [](std::uint64_t* place, Pair pair) { *reinterpret_cast<StoredPair*>(place) = pair; };
    const std::uint64_t two = page * 2;
    const Pair two_pages = {two, two};
    Pair a = {address, address + page};
    Pair b = a + two_pages;
    Pair c = b + two_pages;
    Pair d = c + two_pages;
    const Pair eight_pages = {two * 4, two * 4};
    for (std::uint64_t* const end = entries + (count & ~std::uint64_t{7}); entries != end; entries += 8) {
        store(entries, a);
        store(entries + 2, b);
        store(entries + 4, c);
        store(entries + 6, d);
        a += eight_pages;
        b += eight_pages;
        c += eight_pages;
        d += eight_pages;
    }
    if ((count & 4) != 0) {
        store(entries, a);
        store(entries + 2, b);
        entries += 4;
        a = c;
        b = d;
    }
    if ((count & 2) != 0) {
        store(entries, a);
        entries += 2;
        a = b;
    }
    if ((count & 1) != 0) {
        *entries = a[0];
    }
}

/// Writes entries into list pages, linking to the next page only when an entry follows that needs it.
class PrpListWriter {
  public:
    PrpListWriter(PrpListPages pages, unsigned page_shift) noexcept
        : pages_{pages}, page_shift_{page_shift}, per_page_{std::uint32_t{1} << (page_shift - 3)} {}

    /// `count` entries that step by one page from `address`. False when the pages are used up.
    [[nodiscard]] bool append(std::uint64_t address, std::uint64_t count) noexcept {
        if (pages_.count == 0) {
            return false;
        }
        while (count != 0) {
            if (used_ == per_page_ && !next_page()) {
                return false;
            }
            const std::uint64_t here = std::min<std::uint64_t>(count, per_page_ - used_);
            fill_contiguous_prps(pages_.cpu + std::size_t{page_} * per_page_ + used_, here, address,
                                 std::uint64_t{1} << page_shift_);
            used_ += static_cast<std::uint32_t>(here);
            count -= here;
            address += here << page_shift_;
        }
        return true;
    }

  private:
    /// The last entry of a full page was data as long as nothing followed; now it moves to the next page and makes room
    /// for the link.
    [[nodiscard]] bool next_page() noexcept {
        if (page_ + 1 == pages_.count) {
            return false;
        }
        std::uint64_t* const current = pages_.cpu + std::size_t{page_} * per_page_;
        std::uint64_t* const next = current + per_page_;
        next[0] = current[per_page_ - 1];
        current[per_page_ - 1] = pages_.addresses[page_ + 1];
        ++page_;
        used_ = 1;
        return true;
    }

    PrpListPages pages_;
    unsigned page_shift_;
    std::uint32_t per_page_;
    std::uint32_t page_ = 0;
    std::uint32_t used_ = 0;
};

/// PRP entries for a sequence of extents: `next()` answers the following extent, or one of length 0 at the end.
/// Only the first may start inside a page, only the last may end inside one.
template <class NextExtent>
[[nodiscard]] PrpPair build_prps_from(NextExtent&& next, std::uint64_t bytes, PrpListPages lists,
                                      unsigned page_shift) noexcept {
    const std::uint64_t page = std::uint64_t{1} << page_shift;
    const std::uint64_t mask = page - 1;
    PrpPair pair;
    PrpListWriter writer{lists, page_shift};
    std::uint64_t second = 0; // held back: it is PRP entry 2 itself unless more follow
    std::uint64_t pages = 0;
    std::uint64_t described = 0;
    bool ends_inside = false;
    if (bytes >> 63 != 0) [[unlikely]] {
        return {0, 0, Refusal::too_long, 0}; // what follows counts on sums of lengths not to wrap
    }
    for (std::uint32_t segment = 0;; ++segment) {
        const iommu::Extent extent = next();
        const std::uint64_t length = extent.length.value();
        if (length == 0) {
            break;
        }
        const std::uint64_t address = extent.address.value();
        if (length > bytes - described) {
            return {0, 0, Refusal::length_mismatch, segment};
        }
        described += length;
        if (segment == 0) {
            if ((address & 3) != 0) {
                return {0, 0, Refusal::misaligned, 0};
            }
        } else if (ends_inside || (address & mask) != 0) {
            return {0, 0, Refusal::segment_misaligned, ends_inside ? segment - 1 : segment};
        }
        ends_inside = ((address + length) & mask) != 0;
        // Entries of this extent: the first has its offset, the others are whole pages.
        const std::uint64_t entries = ((address & mask) + length + mask) >> page_shift;
        const std::uint64_t aligned = address & ~mask;
        std::uint64_t taken = 0;
        if (pages == 0) {
            pair.prp1 = address;
            taken = 1;
        }
        if (pages + taken == 1 && taken < entries) {
            second = aligned + (taken << page_shift);
            ++taken;
        }
        if (taken < entries) {
            const bool opens = pages + taken == 2; // now PRP entry 2 is a list, and begins with what was held back
            if ((opens && !writer.append(second, 1)) ||
                !writer.append(aligned + (taken << page_shift), entries - taken)) {
                return {0, 0, Refusal::too_long, segment};
            }
        }
        pages += entries;
    }
    if (described != bytes || pages == 0) {
        return {0, 0, described == 0 ? Refusal::empty : Refusal::length_mismatch, 0};
    }
    pair.prp2 = pages <= 2 ? second : lists.addresses[0];
    return pair;
}

/// What build_prps_from() asks for, of extents at hand; those of length 0 are passed over.
[[nodiscard]] inline auto walk_extents(std::span<const iommu::Extent> extents) noexcept {
    return [extents, index = std::size_t{0}]() mutable -> iommu::Extent {
        while (index < extents.size() && extents[index].length.value() == 0) {
            ++index;
        }
        return index < extents.size() ? extents[index++] : iommu::Extent{};
    };
}

/// The same for extents at hand.
[[nodiscard]] inline PrpPair build_prps(std::span<const iommu::Extent> extents, std::uint64_t bytes, PrpListPages lists,
                                        unsigned page_shift) noexcept {
    return build_prps_from(walk_extents(extents), bytes, lists, page_shift);
}

/// The common case: one extent of `bytes`, a list of one page at most. Answers too_long when more than one is needed.
[[nodiscard]] inline PrpPair build_contiguous_prps(std::uint64_t address, std::uint64_t bytes, PrpListPages lists,
                                                   unsigned page_shift) noexcept {
    const std::uint64_t page = std::uint64_t{1} << page_shift;
    if ((address & 3) != 0) [[unlikely]] {
        return {0, 0, Refusal::misaligned, 0};
    }
    const std::uint64_t inside = address & (page - 1);
    const std::uint64_t second = address - inside + page;
    const std::uint64_t entries = (inside + bytes - 1) >> page_shift; // after PRP entry 1
    if (entries <= 1) {
        return {address, entries == 0 ? 0 : second, Refusal::none, 0};
    }
    if (entries > (page >> 3) || lists.count == 0) [[unlikely]] {
        return {0, 0, Refusal::too_long, 0};
    }
    fill_contiguous_prps(lists.cpu, entries, second, page);
    return {address, lists.addresses[0], Refusal::none, 0};
}

} // namespace upcie::nvme
