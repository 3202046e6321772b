// SPDX-License-Identifier: BSD-3-Clause
// Scatter lists as an importer hands them over: any addresses, any lengths. Either refused, or every byte is where its
// segment says.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include <upcie/dmabuf/scatter_list.hpp>

namespace {

using upcie::ByteCount;
using upcie::DmaAddress;
using upcie::dmabuf::ScatterList;
using upcie::dmabuf::Segment;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

/// A segment's end passes the last address, or the sum of lengths what 64 bits count.
bool countable(const std::vector<Segment>& segments) {
    unsigned __int128 total = 0;
    for (const Segment& one : segments) {
        const unsigned __int128 end = static_cast<unsigned __int128>(one.address.value()) + one.length.value();
        total += one.length.value();
        if (one.length.value() == 0 || end > (static_cast<unsigned __int128>(1) << 64) || (total >> 64) != 0) {
            return false;
        }
    }
    return !segments.empty();
}

/// Where byte `offset` is, by going through the segments.
std::uint64_t address_of(const std::vector<Segment>& segments, std::uint64_t offset) {
    for (const Segment& one : segments) {
        if (offset < one.length.value()) {
            return one.address.value() + offset;
        }
        offset -= one.length.value();
    }
    std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input{data, size};
    const std::size_t questions = input.ConsumeIntegralInRange<std::size_t>(1, 16);
    std::vector<std::uint64_t> asked;
    for (std::size_t i = 0; i < 2 * questions; ++i) {
        asked.push_back(input.ConsumeIntegral<std::uint64_t>());
    }
    std::vector<Segment> segments;
    while (input.remaining_bytes() > 0 && segments.size() < 200) {
        Segment one;
        one.kind = static_cast<upcie::dmabuf::SegmentKind>(input.ConsumeIntegralInRange(0, 2));
        const bool adjacent = !segments.empty() && input.ConsumeBool();
        one.address = adjacent ? segments.back().address + segments.back().length
                               : DmaAddress{input.ConsumeIntegral<std::uint64_t>()};
        one.length = ByteCount{input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, 65536)
                                                   : input.ConsumeIntegral<std::uint64_t>()};
        segments.push_back(one);
    }
    const auto list = ScatterList::from_segments(segments, "fuzz");
    require(static_cast<bool>(list) == countable(segments));
    if (!list) {
        return 0;
    }
    const std::uint64_t total = list->total().value();
    require(list->runs().size() <= segments.size() && list->segment_count() == segments.size());
    for (std::size_t i = 0; i < questions; ++i) {
        // Mostly inside.
        const std::uint64_t offset = i % 4 == 0 ? asked[2 * i] : asked[2 * i] % total;
        const std::uint64_t bytes = i % 4 == 1 ? asked[2 * i + 1] : asked[2 * i + 1] % 131072;
        const auto first = list->first(ByteCount{offset}, ByteCount{bytes});
        const bool inside = bytes != 0 && offset < total && bytes <= total - offset;
        require((first.length.value() != 0) == inside);
        const auto all = list->extents(ByteCount{offset}, ByteCount{bytes});
        require(static_cast<bool>(all) == inside);
        require(!inside || list->contiguous(ByteCount{offset}, ByteCount{bytes}) == (all->size() == 1));
        std::uint64_t at = offset;
        for (std::size_t k = 0; inside && k < all->size(); ++k) {
            const auto& one = (*all)[k];
            require(k != 0 || one == first);
            require(one.address.value() == address_of(segments, at));
            require(one.address.value() + (one.length.value() - 1) ==
                    address_of(segments, at + (one.length.value() - 1)));
            at += one.length.value();
        }
        require(!inside || at == offset + bytes);
    }
    return 0;
}
