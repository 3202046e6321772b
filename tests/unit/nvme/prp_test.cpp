// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <upcie/nvme/prp.hpp>

#include <support/prp_lists.hpp>

namespace upcie::nvme {
namespace {

using iommu::Extent;

constexpr unsigned shift = 12;
constexpr std::uint64_t page = 4096;

using test::pages_of;
using Lists = test::PrpLists;

/// The pages of the data as a controller finds them.
std::vector<std::uint64_t> walk(const PrpPair& pair, std::uint64_t bytes, const Lists& lists, std::size_t& used) {
    const auto walked = test::walk_prps(pair, bytes, lists);
    EXPECT_TRUE(walked) << "the controller is sent to a list page that is none";
    used = walked ? walked->lists_used : 0;
    return walked ? walked->data : std::vector<std::uint64_t>{};
}

TEST(Prp, UnusedEntryTwoIsZero) {
    Lists lists{1};
    const PrpPair one = build_contiguous_prps(0x10000, page, lists.pages(), shift);
    EXPECT_EQ(one.prp1, 0x10000U);
    EXPECT_EQ(one.prp2, 0U);
    const Extent extent{DmaAddress{0x10e00}, ByteCount{512}};
    const PrpPair general = build_prps(std::span{&extent, 1}, 512, lists.pages(), shift);
    EXPECT_EQ(general.prp1, 0x10e00U);
    EXPECT_EQ(general.prp2, 0U);
    EXPECT_EQ(lists.cpu[0], Lists::mark) << "no list is written for a transfer that needs none";
}

TEST(Prp, TheOffsetCountsInTheNumberOfPages) {
    Lists lists{1};
    const PrpPair pair = build_contiguous_prps(0x10e00, page, lists.pages(), shift);
    EXPECT_EQ(pair.prp1, 0x10e00U);
    EXPECT_EQ(pair.prp2, 0x11000U) << "512 bytes in the first page, the rest in a second";
    const PrpPair three = build_contiguous_prps(0x10e00, page + 3585, lists.pages(), shift);
    EXPECT_EQ(three.prp2, lists.addresses[0]);
    EXPECT_EQ(lists.cpu[0], 0x11000U);
    EXPECT_EQ(lists.cpu[1], 0x12000U);
    EXPECT_EQ(lists.cpu[2], Lists::mark);
}

TEST(Prp, AFullListPageEndsWithDataWhenNothingFollows) {
    // 513 pages: one in PRP entry 1, 512 in the list: exactly a page of it.
    Lists lists{2};
    const std::uint64_t bytes = 513 * page;
    for (const std::uint64_t start : {std::uint64_t{0x100000}, std::uint64_t{0}}) {
        const Extent extent{DmaAddress{start}, ByteCount{bytes}};
        std::size_t used = 0;
        const PrpPair pair = build_prps(std::span{&extent, 1}, bytes, lists.pages(), shift);
        ASSERT_EQ(pair.refusal, Refusal::none);
        EXPECT_EQ(walk(pair, bytes, lists, used), pages_of({extent}));
        EXPECT_EQ(used, 1U);
        EXPECT_EQ(lists.cpu[512], Lists::mark) << "the second list page stays untouched";
    }
    // 2047 KiB at an offset of 512 bytes ends inside its 512th page: one list page of 511 entries.
    Lists more{2};
    const Extent odd{DmaAddress{0x100200}, ByteCount{2047 << 10}};
    std::size_t used = 0;
    const PrpPair pair = build_prps(std::span{&odd, 1}, 2047 << 10, more.pages(), shift);
    EXPECT_EQ(walk(pair, 2047 << 10, more, used), pages_of({odd}));
    EXPECT_EQ(used, 1U);
}

TEST(Prp, LongListsChain) {
    Lists lists{3};
    for (const std::uint64_t pages : {514U, 1023U, 1024U, 1025U, 1535U}) {
        const std::uint64_t bytes = pages * page;
        const Extent extent{DmaAddress{0x4000'0000}, ByteCount{bytes}};
        std::size_t used = 0;
        const PrpPair pair = build_prps(std::span{&extent, 1}, bytes, lists.pages(), shift);
        ASSERT_EQ(pair.refusal, Refusal::none) << pages;
        EXPECT_EQ(walk(pair, bytes, lists, used), pages_of({extent})) << pages;
    }
    EXPECT_EQ(build_contiguous_prps(0x4000'0000, 514 * page, lists.pages(), shift).refusal, Refusal::too_long)
        << "the short way leaves chains to the general one";
}

TEST(Prp, CapacityIsWhatTheListPagesHoldAtAnyOffset) {
    EXPECT_EQ(prp_capacity(0, shift), page);
    EXPECT_EQ(prp_capacity(1, shift), 512 * page);
    EXPECT_EQ(prp_capacity(2, shift), (511 + 512) * page);
    EXPECT_EQ(prp_pages_for(page, shift), 0U);
    EXPECT_EQ(prp_pages_for(page + 1, shift), 1U);
    EXPECT_EQ(prp_pages_for(2 << 20, shift), 1U);
    EXPECT_EQ(prp_pages_for((2 << 20) + 1, shift), 2U);
    // At the worst offset the capacity fits exactly, and a page more does not.
    for (const std::uint32_t count : {1U, 2U, 3U}) {
        Lists lists{count};
        const std::uint64_t bytes = prp_capacity(count, shift);
        const Extent worst{DmaAddress{0x1000'0ffc}, ByteCount{bytes}};
        EXPECT_EQ(build_prps(std::span{&worst, 1}, bytes, lists.pages(), shift).refusal, Refusal::none);
        const Extent more{DmaAddress{0x1000'0ffc}, ByteCount{bytes + page}};
        EXPECT_EQ(build_prps(std::span{&more, 1}, bytes + page, lists.pages(), shift).refusal, Refusal::too_long);
    }
}

TEST(Prp, SegmentsMustMeetAtPagesAndTheCulpritIsNamed) {
    Lists lists{1};
    const auto build = [&](const std::vector<Extent>& extents, std::uint64_t bytes) {
        return build_prps(std::span{extents}, bytes, lists.pages(), shift);
    };
    const auto extent = [](std::uint64_t address, std::uint64_t length) {
        return Extent{DmaAddress{address}, ByteCount{length}};
    };
    EXPECT_EQ(build({extent(0x10200, 0xe00), extent(0x20000, 0x1000), extent(0x30000, 0x10)}, 0x1e10).refusal,
              Refusal::none);
    const PrpPair ends = build({extent(0x10000, 0x1000), extent(0x20000, 0x800), extent(0x30000, 0x800)}, 0x2000);
    EXPECT_EQ(ends.refusal, Refusal::segment_misaligned);
    EXPECT_EQ(ends.segment, 1U) << "it ends inside a page";
    const PrpPair starts = build({extent(0x10000, 0x1000), extent(0x20000, 0x1000), extent(0x30800, 0x800)}, 0x2800);
    EXPECT_EQ(starts.refusal, Refusal::segment_misaligned);
    EXPECT_EQ(starts.segment, 2U) << "it starts inside a page";
    EXPECT_EQ(build({extent(0x10002, 0x200)}, 0x200).refusal, Refusal::misaligned);
    EXPECT_EQ(build_contiguous_prps(0x10002, 0x200, lists.pages(), shift).refusal, Refusal::misaligned);
    EXPECT_EQ(build({}, 0x200).refusal, Refusal::empty);
    EXPECT_EQ(build({extent(0x10000, 0)}, 0x200).refusal, Refusal::empty);
    EXPECT_EQ(build({extent(0x10000, 0x100)}, 0x200).refusal, Refusal::length_mismatch);
    EXPECT_EQ(build({extent(0x10000, 0x1000)}, 0x200).refusal, Refusal::length_mismatch);
    EXPECT_NE(to_error(ends.refusal, "read", "queue 1", ends.segment).message().find("Segment 1"), std::string::npos);
}

TEST(Prp, LengthsAreSixtyFourBit) {
    Lists lists{1};
    const Extent huge{DmaAddress{0x10000}, ByteCount{(std::uint64_t{1} << 32) + 512}};
    EXPECT_EQ(build_prps(std::span{&huge, 1}, 512, lists.pages(), shift).refusal, Refusal::length_mismatch)
        << "4 GiB + 512 must not look like 512";
}

TEST(Prp, AgreesWithANaiveModel) {
    std::mt19937_64 random{7};
    for (int round = 0; round < 3000; ++round) {
        Lists lists{3};
        std::vector<Extent> extents;
        std::uint64_t bytes = 0;
        const std::uint64_t segments = 1 + random() % 6;
        for (std::uint64_t i = 0; i < segments; ++i) {
            const std::uint64_t offset = i == 0 ? random() % page & ~std::uint64_t{3} : 0;
            std::uint64_t length = (1 + random() % 200) * page - offset;
            if (i + 1 == segments) {
                length -= random() % std::min(length, page);
            }
            extents.push_back({DmaAddress{((random() % 0xffff) << 28) + offset}, ByteCount{length}});
            bytes += length;
        }
        std::size_t used = 0;
        const PrpPair pair = build_prps(std::span{extents}, bytes, lists.pages(), shift);
        ASSERT_EQ(pair.refusal, Refusal::none);
        ASSERT_EQ(walk(pair, bytes, lists, used), pages_of(extents)) << "round " << round;
        if (segments == 1 && used <= 1) {
            Lists short_way{3};
            const PrpPair same = build_contiguous_prps(extents[0].address.value(), bytes, short_way.pages(), shift);
            ASSERT_EQ(same.refusal, Refusal::none);
            ASSERT_EQ(same.prp1, pair.prp1);
            ASSERT_EQ(same.prp2, pair.prp2);
            ASSERT_EQ(short_way.cpu, lists.cpu) << "round " << round;
        }
    }
}

} // namespace
} // namespace upcie::nvme
