// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <upcie/nvme/sgl.hpp>

#include <support/sgl_walk.hpp>

namespace upcie::nvme::sgl_test {
namespace {

using iommu::Extent;
using Lists = test::PrpLists;

constexpr unsigned shift = 12;
constexpr std::uint64_t per_page = 256; // descriptors

Extent extent(std::uint64_t address, std::uint64_t length) {
    return {DmaAddress{address}, ByteCount{length}};
}

std::uint64_t total(const std::vector<Extent>& extents) {
    std::uint64_t sum = 0;
    for (const auto& one : extents) {
        sum += one.length.value();
    }
    return sum;
}

SglPointer build(const std::vector<Extent>& extents, std::uint64_t bytes, Lists& lists,
                 SglSupport support = SglSupport::bytes) {
    return build_sgl_from(walk_extents(extents), bytes, lists.pages(), shift, support);
}

/// `count` extents of 512 bytes that do not meet.
std::vector<Extent> apart(std::size_t count) {
    std::vector<Extent> extents;
    for (std::size_t i = 0; i < count; ++i) {
        extents.push_back(extent(0x10000 + i * 1024, 512));
    }
    return extents;
}

TEST(Sgl, OneBlockGoesIntoTheCommand) {
    Lists lists{1};
    const auto pointer = build({extent(0x12345, 700)}, 700, lists);
    ASSERT_EQ(pointer.refusal, Refusal::none);
    EXPECT_EQ(pointer.first.address, 0x12345U);
    EXPECT_EQ(pointer.first.length, 700U);
    EXPECT_EQ(pointer.first.kind, 0U);
    EXPECT_EQ(lists.cpu[0], Lists::mark) << "no list is written for a transfer that needs none";
    Lists none{0};
    EXPECT_EQ(build({extent(0x12345, 700)}, 700, none).refusal, Refusal::none);
    EXPECT_EQ(build({extent(0, 512)}, 512, none).first.address, 0U) << "0 is an address like any other";
}

TEST(Sgl, ExtentsThatMeetAreOneBlock) {
    Lists lists{1};
    const auto pointer = build({extent(0x1001, 511), extent(0x1200, 512), extent(0x1400, 1)}, 1024, lists);
    ASSERT_EQ(pointer.refusal, Refusal::none);
    EXPECT_EQ(pointer.first.kind, 0U);
    EXPECT_EQ(pointer.first.length, 1024U);
}

TEST(Sgl, AFullPageEndsWithDataWhenNothingFollows) {
    for (const std::size_t count :
         {per_page - 1, per_page, per_page + 1, 2 * per_page - 1, 2 * per_page, 3 * per_page - 2, 3 * per_page - 1}) {
        SCOPED_TRACE(count);
        Lists lists{3};
        const auto extents = apart(count);
        const auto pointer = build(extents, total(extents), lists);
        const bool fits = count <= sgl_capacity(3, shift);
        EXPECT_EQ(fits, count <= 3 * (per_page - 1) + 1);
        ASSERT_EQ(pointer.refusal, fits ? Refusal::none : Refusal::too_many_segments);
        if (!fits) {
            EXPECT_EQ(pointer.segment, count - 1);
            continue;
        }
        const auto walked = test::walk_sgl(pointer.first, lists);
        ASSERT_TRUE(walked);
        EXPECT_EQ(walked->data, extents);
        EXPECT_EQ(walked->pages_used, count <= per_page ? 1U : count <= 2 * per_page - 1 ? 2U : 3U);
    }
}

TEST(Sgl, RefusalsNameTheSegment) {
    Lists lists{1};
    EXPECT_EQ(build({}, 512, lists).refusal, Refusal::empty);
    EXPECT_EQ(build({extent(0x1000, 512)}, 1024, lists).refusal, Refusal::length_mismatch);
    const auto longer = build({extent(0x1000, 512), extent(0x3000, 513)}, 1024, lists);
    EXPECT_EQ(longer.refusal, Refusal::length_mismatch);
    EXPECT_EQ(longer.segment, 1U);
    EXPECT_EQ(build({extent(0x1000, std::uint64_t{1} << 32)}, std::uint64_t{1} << 32, lists).refusal, Refusal::too_long)
        << "a length of 2^32 is 0 in a descriptor";
    EXPECT_EQ(build({extent(0x1002, 512)}, 512, lists, SglSupport::dwords).refusal, Refusal::misaligned);
    const auto odd = build({extent(0x1000, 510), extent(0x3000, 514)}, 1024, lists, SglSupport::dwords);
    EXPECT_EQ(odd.refusal, Refusal::misaligned) << "a length counts as an address does";
    const auto second = build({extent(0x1000, 512), extent(0x3001, 512)}, 1024, lists, SglSupport::dwords);
    EXPECT_EQ(second.refusal, Refusal::segment_misaligned);
    EXPECT_EQ(second.segment, 1U);
    EXPECT_EQ(build({extent(0x1004, 508), extent(0x3004, 516)}, 1024, lists, SglSupport::dwords).refusal,
              Refusal::none);
    Lists none{0};
    const auto full = build({extent(0x1000, 512), extent(0x3000, 512)}, 1024, none);
    EXPECT_EQ(full.refusal, Refusal::too_many_segments);
    EXPECT_EQ(full.segment, 1U);
}

TEST(Sgl, NothingGoesOnBehindTheLastAddress) {
    Lists lists{1};
    const std::uint64_t last = ~std::uint64_t{0};
    const auto two = build({extent(last - 511, 512), extent(0, 512)}, 1024, lists);
    ASSERT_EQ(two.refusal, Refusal::none);
    const auto walked = test::walk_sgl(two.first, lists);
    ASSERT_TRUE(walked);
    EXPECT_EQ(walked->data.size(), 2U) << "address 0 is no neighbour of the last one";
    EXPECT_EQ(build({extent(last - 510, 1024)}, 1024, lists).refusal, Refusal::out_of_bounds);
}

TEST(Sgl, ThereIsRoomForEveryPageOfATransfer) {
    for (const std::uint64_t bytes : {std::uint64_t{512}, std::uint64_t{1} << 20, std::uint64_t{2} << 20}) {
        EXPECT_GE(sgl_capacity(sgl_pages_for(bytes, shift), shift), bytes / 4096 + 2);
    }
    EXPECT_EQ(sgl_pages_for(512, shift), 1U);
}

TEST(Sgl, AnyListDescribesExactlyItsBytes) {
    std::mt19937_64 random{20261130};
    std::size_t built = 0;
    std::size_t refused = 0;
    for (int round = 0; round < 20'000; ++round) {
        Lists lists{static_cast<std::uint32_t>(random() % 4)};
        std::vector<Extent> extents;
        std::uint64_t at = random() % 100'000;
        const std::size_t count = 1 + random() % (random() % 8 == 0 ? 900 : 6);
        for (std::size_t i = 0; i < count; ++i) {
            at += random() % 3 == 0 ? 0 : random() % 10'000;
            extents.push_back(extent(at, 1 + random() % 5000));
            at += extents.back().length.value();
        }
        const auto expected = test::joined(extents);
        const auto pointer = build(extents, total(extents), lists);
        if (pointer.refusal == Refusal::none) {
            ++built;
            const auto walked = test::walk_sgl(pointer.first, lists);
            ASSERT_TRUE(walked);
            ASSERT_EQ(walked->data, expected);
        } else {
            ++refused;
            ASSERT_EQ(pointer.refusal, Refusal::too_many_segments);
            ASSERT_GT(expected.size(), sgl_capacity(static_cast<std::uint32_t>(lists.addresses.size()), shift));
        }
    }
    EXPECT_GT(built, 1000U);
    EXPECT_GT(refused, 1000U);
}

} // namespace
} // namespace upcie::nvme::sgl_test
