// SPDX-License-Identifier: BSD-3-Clause
#include "stamps.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace upcie::cli {
namespace {

constexpr Stamp expected{0x1234, 1, 512, 17, 3};

std::vector<std::byte> block_of(const Stamp& stamp) {
    std::vector<std::byte> block(stamp.block_size);
    write_stamp(block, stamp);
    return block;
}

Stamp with(std::uint64_t Stamp::*field, std::uint64_t value) {
    Stamp stamp = expected;
    stamp.*field = value;
    return stamp;
}

// The numbers of the worked example in docs/stamps.md, which a separate program computed.
TEST(Stamps, LayoutIsThatOfTheDocument) {
    const auto block = block_of({1, 1, 512, 17, 1});
    const auto word = [&](std::size_t offset) {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            value |= std::to_integer<std::uint64_t>(block[offset + i]) << (8 * i);
        }
        return value;
    };
    EXPECT_EQ(std::memcmp(block.data(), "UPCIEST1", 8), 0);
    EXPECT_EQ(word(8), 1U);
    EXPECT_EQ(word(16), 0x0000020000000001U);
    EXPECT_EQ(word(24), 17U);
    EXPECT_EQ(word(32), 1U);
    EXPECT_EQ(word(40), 0xdfaf641e27ef4704U);
    EXPECT_EQ(word(48), 0xb6d4827a9886294eU);
    EXPECT_EQ(word(56), 0x7bf33681970f36e9U);
    EXPECT_EQ(word(504), 0x352bfbe1f279ae7bU);
}

TEST(Stamps, AStampComesBackAsWritten) {
    const auto block = block_of(expected);
    EXPECT_EQ(read_stamp(block), expected);
    const auto finding = judge_block(block, expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::good);
    EXPECT_EQ(finding.bad_bytes, 0U);
}

TEST(Stamps, ABlockAtTheWrongPlaceIsNamed) {
    const auto finding = judge_block(block_of(with(&Stamp::lba, 18)), expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::misplaced);
    EXPECT_EQ(finding.describe(expected), "LBA 17 holds the block written for LBA 18");
}

TEST(Stamps, AMisplacedBlockOfAnotherRunSaysBoth) {
    auto other = with(&Stamp::lba, 18);
    other.seed = 0x99;
    const auto finding = judge_block(block_of(other), expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::misplaced);
    EXPECT_EQ(finding.describe(expected), "LBA 17 holds the block written for LBA 18 by another run (seed 0x99)");
}

TEST(Stamps, AnEarlierPassIsStale) {
    const auto finding = judge_block(block_of(with(&Stamp::pass, 2)), expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::stale);
    EXPECT_EQ(finding.describe(expected), "LBA 17 is stale: it holds pass 2 of this run where pass 3 was expected");
}

TEST(Stamps, AnotherRunIsNamedByItsSeed) {
    const auto finding = judge_block(block_of(with(&Stamp::seed, 0x99)), expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::other_run);
    EXPECT_EQ(finding.describe(expected), "LBA 17 holds the block of another run: seed 0x99, expected 0x1234");
}

TEST(Stamps, AnotherNamespaceIsNamed) {
    Stamp other = expected;
    other.nsid = 2;
    EXPECT_EQ(judge_block(block_of(other), expected).verdict, BlockVerdict::other_namespace);
}

TEST(Stamps, ZeroesAndPoisonAreTold) {
    std::vector<std::byte> block(512);
    EXPECT_EQ(judge_block(block, expected).verdict, BlockVerdict::zero);
    poison(block);
    EXPECT_EQ(judge_block(block, expected).verdict, BlockVerdict::untouched);
}

TEST(Stamps, ASingleFlippedBitAnywhereIsFound) {
    const auto good = block_of(expected);
    for (std::size_t byte = 0; byte < good.size(); ++byte) {
        auto block = good;
        block[byte] ^= std::byte{0x10};
        const auto finding = judge_block(block, expected);
        ASSERT_EQ(finding.verdict, BlockVerdict::corrupt) << "byte " << byte;
        ASSERT_EQ(finding.first_bad_byte, byte);
        ASSERT_EQ(finding.bad_bytes, 1U);
        ASSERT_NE(finding.describe(expected).find("a single bit"), std::string::npos);
    }
}

TEST(Stamps, ATornBlockIsCorruptFromTheTear) {
    auto block = block_of(expected);
    const auto old = block_of(with(&Stamp::pass, 2));
    std::copy(old.begin() + 256, old.end(), block.begin() + 256);
    const auto finding = judge_block(block, expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::corrupt);
    EXPECT_GE(finding.first_bad_byte, 256U);
    EXPECT_LE(finding.first_bad_byte, 264U);
    EXPECT_EQ(finding.found, expected);
}

TEST(Stamps, ADamagedBlockOfAnotherPlaceKeepsItsName) {
    auto block = block_of(with(&Stamp::lba, 18));
    block[100] ^= std::byte{1};
    const auto finding = judge_block(block, expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::corrupt);
    EXPECT_EQ(finding.first_bad_byte, 100U);
    EXPECT_NE(finding.describe(expected).find("its stamp is that of LBA 18"), std::string::npos);
}

TEST(Stamps, OtherDataIsForeign) {
    std::vector<std::byte> block(512, std::byte{0x42});
    const auto finding = judge_block(block, expected);
    EXPECT_EQ(finding.verdict, BlockVerdict::foreign);
    EXPECT_FALSE(finding.found.has_value());
}

TEST(Stamps, NeighboursShareNoWord) {
    const auto first = block_of(expected);
    const auto second = block_of(with(&Stamp::lba, 18));
    for (std::size_t offset = 40; offset < 512; offset += 8) {
        ASSERT_NE(std::memcmp(first.data() + offset, second.data() + offset, 8), 0) << "byte " << offset;
    }
}

} // namespace
} // namespace upcie::cli
