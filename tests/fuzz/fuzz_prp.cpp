// SPDX-License-Identifier: BSD-3-Clause
// PRP entries and SGLs for any extents, any page size and any number of list pages: either they describe exactly these
// bytes, or the builder says why not. The list pages end where the sanitizer watches.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include <upcie/nvme/prp.hpp>
#include <upcie/nvme/sgl.hpp>

#include "support/prp_lists.hpp"
#include "support/sgl_walk.hpp"

namespace {

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

/// Only the first may start inside a page, only the last may end inside one, PRP entry 1 is a multiple of 4.
bool describable(const std::vector<upcie::iommu::Extent>& extents, std::uint64_t page) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
        const std::uint64_t start = extents[i].address.value();
        if ((i == 0 ? start % 4 : start % page) != 0) {
            return false;
        }
        if (i + 1 != extents.size() && (start + extents[i].length.value()) % page != 0) {
            return false;
        }
    }
    return !extents.empty();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input{data, size};
    const unsigned shift = input.ConsumeIntegralInRange<unsigned>(12, 14);
    const std::uint64_t page = std::uint64_t{1} << shift;
    upcie::test::PrpLists lists{input.ConsumeIntegralInRange<std::uint32_t>(0, 3), shift};
    std::vector<upcie::iommu::Extent> extents;
    std::uint64_t bytes = 0;
    while (input.remaining_bytes() > 0 && extents.size() < 40) {
        // Mostly whole pages, or else nothing but refusals comes out.
        const bool whole = input.ConsumeIntegralInRange(0, 7) != 0;
        const std::uint64_t start = std::uint64_t{input.ConsumeIntegral<std::uint32_t>()} * (whole ? page : 1);
        const std::uint64_t length =
            std::uint64_t{input.ConsumeIntegralInRange<std::uint32_t>(1, 2000)} * (whole ? page : 7);
        extents.push_back({upcie::DmaAddress{start}, upcie::ByteCount{length}});
        bytes += length;
    }
    const bool lying = input.ConsumeIntegralInRange(0, 15) == 1;
    const auto pair = upcie::nvme::build_prps(extents, lying ? bytes + 512 : bytes, lists.pages(), shift);
    const bool sound = describable(extents, page) && !lying;
    const auto expected = upcie::test::pages_of(extents, page);
    // Two pages need no list; with lists, one entry is PRP entry 1 and all lists but the last give one for the link.
    const bool fits = expected.size() <= 2 ||
                      (!lists.addresses.empty() &&
                       expected.size() - 1 <= (lists.addresses.size() - 1) * (lists.per_page - 1) + lists.per_page);
    if (pair.refusal == upcie::Refusal::none) {
        require(sound && fits);
        const auto walked = upcie::test::walk_prps(pair, bytes, lists);
        require(walked && walked->data == expected);
        require(expected.size() > 1 || pair.prp2 == 0);
    } else {
        require(!sound || !fits);
        require(pair.prp1 == 0 && pair.prp2 == 0);
    }
    if (extents.size() == 1) {
        upcie::test::PrpLists short_lists{static_cast<std::uint32_t>(lists.addresses.size()), shift};
        const auto same =
            upcie::nvme::build_contiguous_prps(extents[0].address.value(), bytes, short_lists.pages(), shift);
        if (same.refusal == upcie::Refusal::none) {
            const auto walked = upcie::test::walk_prps(same, bytes, short_lists);
            require(walked && walked->data == expected);
        }
    }
    upcie::test::PrpLists segments{static_cast<std::uint32_t>(lists.addresses.size()), shift};
    const auto sgl = upcie::nvme::build_sgl_from(upcie::nvme::walk_extents(extents), lying ? bytes + 512 : bytes,
                                                 segments.pages(), shift, upcie::nvme::SglSupport::bytes);
    const auto blocks = upcie::test::joined(extents);
    const bool has_room =
        blocks.size() <= upcie::nvme::sgl_capacity(static_cast<std::uint32_t>(lists.addresses.size()), shift);
    if (sgl.refusal == upcie::Refusal::none) {
        require(!lying && has_room);
        const auto walked = upcie::test::walk_sgl(sgl.first, segments);
        require(walked && walked->data == blocks);
    } else {
        require(lying || !has_room || extents.empty() || bytes >> 32 != 0);
    }
    return 0;
}
