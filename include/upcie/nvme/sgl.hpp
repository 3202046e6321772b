// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <upcie/iommu/address_space.hpp>
#include <upcie/nvme/prp.hpp>
#include <upcie/refusal.hpp>

namespace upcie::nvme {

/// What a controller's scatter gather lists may describe (Identify Controller, SGLS bits 1:0).
enum class SglSupport : std::uint8_t {
    none = 0,   ///< PRPs only
    bytes = 1,  ///< data blocks at any address, of any length
    dwords = 2, ///< addresses and lengths are multiples of 4
};

/// Kinds of descriptor (Base Specification 2.0, section 4.1.2): bits 7:4 of the last byte; the sub type 3:0 is 0, an
/// address.
enum class SglKind : std::uint8_t { data_block = 0x00, bit_bucket = 0x10, segment = 0x20, last_segment = 0x30 };

/// One descriptor, 16 bytes, little-endian.
struct SglDescriptor {
    std::uint64_t address = 0;
    std::uint32_t length = 0; ///< bytes, of the data or of the segment
    std::uint8_t reserved[3]{};
    std::uint8_t kind = 0;

    [[nodiscard]] static SglDescriptor make(SglKind kind, std::uint64_t address, std::uint64_t length) noexcept {
        return {address, static_cast<std::uint32_t>(length), {}, static_cast<std::uint8_t>(kind)};
    }
};
static_assert(sizeof(SglDescriptor) == 16 && std::is_standard_layout_v<SglDescriptor>);

/// Command::flags of a command whose data pointer is an SGL: PSDT is 01b, metadata by address.
constexpr std::uint8_t psdt_sgl = 0x40;

/// Descriptors that `pages` list pages hold at most: each page but the last gives one to the link.
[[nodiscard]] constexpr std::uint64_t sgl_capacity(std::uint32_t pages, unsigned page_shift) noexcept {
    const std::uint64_t per_page = std::uint64_t{1} << (page_shift - 4);
    return pages == 0 ? 1 : pages * (per_page - 1) + 1;
}

/// List pages for a transfer of `bytes` in pieces of a page, wherever the first begins: what scattered memory comes to.
[[nodiscard]] constexpr std::uint32_t sgl_pages_for(std::uint64_t bytes, unsigned page_shift) noexcept {
    std::uint32_t pages = 0;
    while (sgl_capacity(pages, page_shift) < (bytes >> page_shift) + 2) {
        ++pages;
    }
    return pages;
}

/// The descriptor that goes into the command in the PRP entries' place.
struct SglPointer {
    SglDescriptor first;
    Refusal refusal = Refusal::none;
    std::uint32_t segment = 0; ///< the extent at fault, where the refusal is about one
};

/// Writes descriptors into list pages, each page a segment that leads to the next.
class SglWriter {
  public:
    SglWriter(PrpListPages pages, unsigned page_shift) noexcept
        : pages_{pages}, page_bytes_{std::uint64_t{1} << page_shift}, per_page_{std::uint32_t{1} << (page_shift - 4)} {}

    /// False when the pages are used up.
    [[nodiscard]] bool append(const SglDescriptor& descriptor) noexcept {
        if (count_ == 0) {
            first_ = descriptor; // a single one goes into the command itself
        } else if (count_ == 1) {
            if (pages_.count == 0) {
                return false;
            }
            put(0, first_);
            put(1, descriptor);
            used_ = 2;
            first_ = SglDescriptor::make(SglKind::last_segment, pages_.addresses[0], 0);
        } else {
            if (used_ == per_page_ && !next_page()) {
                return false;
            }
            put(used_++, descriptor);
        }
        ++count_;
        return true;
    }

    /// What goes into the command; the list is complete then.
    [[nodiscard]] SglDescriptor finish() noexcept {
        if (count_ > 1) {
            close_link(SglKind::last_segment, std::uint64_t{used_} * sizeof(SglDescriptor));
        }
        return first_;
    }

  private:
    [[nodiscard]] std::byte* place(std::uint32_t page, std::uint32_t index) const noexcept {
        return reinterpret_cast<std::byte*>(pages_.cpu) + page * page_bytes_ + index * sizeof(SglDescriptor);
    }
    void put(std::uint32_t index, const SglDescriptor& descriptor) const noexcept {
        std::memcpy(place(page_, index), &descriptor, sizeof descriptor);
    }
    /// The link that leads to the present page: in the command, or at the end of the page before.
    void close_link(SglKind kind, std::uint64_t length) noexcept {
        const SglDescriptor link = SglDescriptor::make(kind, pages_.addresses[page_], length);
        if (page_ == 0) {
            first_ = link;
        } else {
            std::memcpy(place(page_ - 1, per_page_ - 1), &link, sizeof link);
        }
    }
    /// A full page ends with data as long as nothing follows; now that moves on and makes room for the link.
    [[nodiscard]] bool next_page() noexcept {
        if (page_ + 1 == pages_.count) {
            return false;
        }
        close_link(SglKind::segment, page_bytes_);
        std::memcpy(place(page_ + 1, 0), place(page_, per_page_ - 1), sizeof(SglDescriptor));
        ++page_;
        used_ = 1;
        return true;
    }

    PrpListPages pages_;
    std::uint64_t page_bytes_;
    std::uint32_t per_page_;
    std::uint32_t page_ = 0;
    std::uint32_t used_ = 0; ///< descriptors in the present page
    std::uint64_t count_ = 0;
    SglDescriptor first_;
};

/// An SGL for a sequence of extents: `next()` answers the following extent, or one of length 0 at the end. Extents that
/// meet are one descriptor. Refuses: empty, length_mismatch, segment_misaligned and misaligned (where the controller
/// wants multiples of 4), out_of_bounds (past the last address), too_many_segments.
template <class NextExtent>
[[nodiscard]] SglPointer build_sgl_from(NextExtent&& next, std::uint64_t bytes, PrpListPages lists, unsigned page_shift,
                                        SglSupport support) noexcept {
    const std::uint64_t odd = support == SglSupport::dwords ? 3 : 0;
    SglWriter writer{lists, page_shift};
    iommu::Extent held; // not written yet: the next may continue it
    std::uint64_t described = 0;
    if (bytes >> 32 != 0) [[unlikely]] {
        return {{}, Refusal::too_long, 0}; // a descriptor's length has 32 bits
    }
    const auto write = [&] {
        return held.length == ByteCount{} ||
               writer.append(SglDescriptor::make(SglKind::data_block, held.address.value(), held.length.value()));
    };
    std::uint32_t segment = 0;
    for (;; ++segment) {
        const iommu::Extent extent = next();
        const std::uint64_t length = extent.length.value();
        if (length == 0) {
            break;
        }
        if (length > bytes - described) {
            return {{}, Refusal::length_mismatch, segment};
        }
        described += length;
        if (length - 1 > ~std::uint64_t{0} - extent.address.value()) {
            return {{}, Refusal::out_of_bounds, segment}; // past the last address there is
        }
        if (((extent.address.value() | length) & odd) != 0) {
            return {{}, segment == 0 ? Refusal::misaligned : Refusal::segment_misaligned, segment};
        }
        const std::uint64_t follows = held.address.value() + held.length.value(); // 0 behind the last address
        if (held.length != ByteCount{} && follows == extent.address.value() && follows != 0) {
            held.length += extent.length;
            continue;
        }
        if (!write()) {
            return {{}, Refusal::too_many_segments, segment - 1}; // what was held is what found no room
        }
        held = extent;
    }
    if (described != bytes || described == 0) {
        return {{}, described == 0 ? Refusal::empty : Refusal::length_mismatch, 0};
    }
    if (!write()) {
        return {{}, Refusal::too_many_segments, segment - 1};
    }
    return {writer.finish(), Refusal::none, 0};
}

} // namespace upcie::nvme
