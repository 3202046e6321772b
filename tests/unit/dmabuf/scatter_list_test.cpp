// SPDX-License-Identifier: BSD-3-Clause
// Scatter lists against a model that knows the address of every page.
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/dmabuf/scatter_list.hpp>

namespace upcie::dmabuf {
namespace {

using namespace upcie::literals;
using testing::HasSubstr;

Segment segment(std::uint64_t address, std::uint64_t length, SegmentKind kind = SegmentKind::bar) {
    return {DmaAddress{address}, ByteCount{length}, kind};
}

ScatterList list_of(const std::vector<Segment>& segments) {
    auto made = ScatterList::from_segments(segments, "test");
    EXPECT_TRUE(made) << made.error().message();
    return made ? std::move(*made) : ScatterList{};
}

Error refusal_of(const std::vector<Segment>& segments) {
    const auto made = ScatterList::from_segments(segments, "dma-buf 7");
    EXPECT_FALSE(made);
    return made ? Error{} : made.error();
}

TEST(ScatterListTest, AdjacentSegmentsAreOneRun) {
    const auto list = list_of({segment(0x10000, 0x10000), segment(0x20000, 0x10000), segment(0x40000, 0x1000)});
    ASSERT_EQ(list.runs().size(), 2U);
    EXPECT_EQ(list.runs()[0], (ScatterList::Run{0_B, {DmaAddress{0x10000}, ByteCount{0x20000}}, SegmentKind::bar}));
    EXPECT_EQ(list.runs()[1], (ScatterList::Run{ByteCount{0x20000}, {DmaAddress{0x40000}, 4_KiB}, SegmentKind::bar}));
    EXPECT_EQ(list.segment_count(), 3U);
    EXPECT_EQ(list.total(), ByteCount{0x21000});
    EXPECT_EQ(list.shortest_segment(), 4_KiB);
    EXPECT_EQ(list.granule(), 4_KiB);
}

TEST(ScatterListTest, NeighboursInTheOtherOrderOrOfAnotherKindAreNoRun) {
    EXPECT_EQ(list_of({segment(0x20000, 0x1000), segment(0x1f000, 0x1000)}).runs().size(), 2U);
    const auto mixed = list_of({segment(0x20000, 0x1000), segment(0x21000, 0x1000, SegmentKind::ram)});
    EXPECT_EQ(mixed.runs().size(), 2U);
    EXPECT_EQ(mixed.kind(), SegmentKind::unknown) << "part of it has moved to system memory";
    EXPECT_EQ(list_of({segment(0, 4096), segment(0, 4096)}).runs().size(), 2U) << "the same page twice";
    EXPECT_EQ(list_of({segment(0, 4096)}).kind(), SegmentKind::bar);
}

TEST(ScatterListTest, AddressZeroAndTheLastAddressAreLegal) {
    const auto zero = list_of({segment(0, 0x1000), segment(0x1000, 0x1000)});
    EXPECT_EQ(zero.first(0_B, 1_B), (Extent{DmaAddress{0}, 1_B}));
    EXPECT_EQ(zero.granule(), 8_KiB);
    const std::uint64_t top = std::numeric_limits<std::uint64_t>::max() - 0xfff;
    const auto last = list_of({segment(top, 0x1000), segment(0, 0x1000)});
    EXPECT_EQ(last.runs().size(), 2U) << "a run does not wrap";
    EXPECT_EQ(last.first(ByteCount{0xfff}, 2_B), (Extent{DmaAddress{top + 0xfff}, 1_B}));
}

TEST(ScatterListTest, ListsThatNoKernelGivesAreRefused) {
    EXPECT_TRUE(refusal_of({}).is(EINVAL));
    const auto empty = refusal_of({segment(0, 4096), segment(8192, 0)});
    EXPECT_TRUE(empty.is(EINVAL));
    EXPECT_THAT(empty.message(), HasSubstr("Segment 1"));
    EXPECT_THAT(empty.message(), HasSubstr("dma-buf 7"));
    EXPECT_TRUE(refusal_of({segment(~std::uint64_t{0}, 2)}).is(EOVERFLOW));
    EXPECT_TRUE(refusal_of({segment(0, ~std::uint64_t{0}), segment(0, 4096)}).is(EOVERFLOW)) << "the sum";
}

TEST(ScatterListTest, LengthsAreSixtyFourBit) {
    const std::uint64_t four_gib = std::uint64_t{1} << 32;
    const auto list = list_of({segment(0x1'0000'0000, four_gib), segment(0x8'0000'0000, four_gib + 4096)});
    EXPECT_EQ(list.total(), ByteCount{2 * four_gib + 4096});
    ASSERT_EQ(list.runs().size(), 2U);
    EXPECT_EQ(list.runs()[0].extent.length, ByteCount{four_gib});
    EXPECT_EQ(list.runs()[1].extent.length, ByteCount{four_gib + 4096});
    EXPECT_EQ(list.first(ByteCount{four_gib}, ByteCount{four_gib}).address, DmaAddress{0x8'0000'0000});
    EXPECT_EQ(list.first(ByteCount{4096}, ByteCount{four_gib - 4096}).length, ByteCount{four_gib - 4096});
}

TEST(ScatterListTest, NothingOutsideItIsAnswered) {
    const auto list = list_of({segment(0x10000, 0x2000), segment(0x40000, 0x1000)});
    EXPECT_EQ(list.first(0x3000_B, 1_B).length, 0_B);
    EXPECT_EQ(list.first(0x2000_B, 0x1001_B).length, 0_B);
    EXPECT_EQ(list.first(1_B, ByteCount{~std::uint64_t{0}}).length, 0_B);
    EXPECT_EQ(list.first(ByteCount{~std::uint64_t{0}}, 2_B).length, 0_B);
    EXPECT_EQ(list.first(0_B, 0_B).length, 0_B);
    EXPECT_EQ(ScatterList{}.first(0_B, 1_B).length, 0_B);
    EXPECT_TRUE(list.extents(0_B, 0_B).error().is(EINVAL));
    EXPECT_TRUE(list.extents(0x2000_B, 0x1001_B).error().is(ERANGE));
    EXPECT_FALSE(list.contiguous(0x1fff_B, 2_B));
    EXPECT_TRUE(list.contiguous(0x1000_B, 0x1000_B));
}

TEST(ScatterListTest, LessThanAskedIsAnErrorThatSaysWhereTheyPart) {
    const auto list = list_of({segment(0x10000, 0x10000)});
    EXPECT_TRUE(list.check_describes(0_B, 64_KiB, "a"));
    EXPECT_TRUE(list.check_describes(64_KiB, 0_B, "a"));
    const auto less = list.check_describes(4_KiB, 64_KiB, "allocation at 0x7000");
    ASSERT_FALSE(less);
    EXPECT_TRUE(less.error().is(ERANGE));
    for (const char* word : {"65536 bytes from offset 4096", "describes 65536 bytes", "allocation at 0x7000"}) {
        EXPECT_THAT(less.error().message(), HasSubstr(word));
    }
}

// ---- against the model

constexpr std::uint64_t page = 4096;

/// Address and kind of every page of the buffer.
struct Model {
    std::vector<std::uint64_t> address;
    std::vector<SegmentKind> kind;
    std::vector<Segment> segments;
    std::size_t runs = 0;

    explicit Model(std::mt19937_64& random) {
        const std::uint64_t count = 1 + random() % 20;
        std::uint64_t next = (random() % 64) * page;
        for (std::uint64_t i = 0; i < count; ++i) {
            if (random() % 3 == 0) {
                next = (random() % 64) * page;
            }
            const std::uint64_t pages = 1 + random() % 5;
            const auto what = random() % 8 == 0 ? SegmentKind::ram : SegmentKind::bar;
            segments.push_back(segment(next, pages * page, what));
            for (std::uint64_t k = 0; k < pages; ++k) {
                const bool goes_on = !address.empty() && address.back() + page == next && kind.back() == what;
                runs += goes_on ? 0 : 1;
                address.push_back(next);
                kind.push_back(what);
                next += page;
            }
        }
    }
    [[nodiscard]] std::uint64_t bytes() const { return address.size() * page; }
    /// How many bytes from `offset` are contiguous, `most` at most.
    [[nodiscard]] std::uint64_t reach(std::uint64_t offset, std::uint64_t most) const {
        std::uint64_t index = offset / page;
        std::uint64_t got = page - offset % page;
        while (got < most && index + 1 < address.size() && address[index + 1] == address[index] + page &&
               kind[index + 1] == kind[index]) {
            got += page;
            ++index;
        }
        return std::min(got, most);
    }
};

TEST(ScatterListTest, AgreesWithAModelOfEveryPage) {
    enum Outcome { whole, parted, beyond, wrapping, empty, outcomes };
    std::array<std::uint64_t, outcomes> seen{};
    std::mt19937_64 random{11};
    for (std::uint64_t round = 0; round < 10'000; ++round) {
        const Model model{random};
        const auto list = list_of(model.segments);
        ASSERT_EQ(list.total().value(), model.bytes());
        ASSERT_EQ(list.runs().size(), model.runs) << "round " << round;
        ASSERT_EQ(list.segment_count(), model.segments.size());
        for (int question = 0; question < 100; ++question) {
            const std::uint64_t offset = random() % (model.bytes() + 2 * page);
            const std::uint64_t bytes = random() % 100 == 0 ? 0
                                        : random() % 50 == 0
                                            ? ~std::uint64_t{0} - random() % model.bytes()
                                            : 1 + random() % (random() % 2 == 0 ? page : model.bytes());
            const auto got = list.first(ByteCount{offset}, ByteCount{bytes});
            if (bytes == 0 || offset > model.bytes() || bytes > model.bytes() - offset) {
                ASSERT_EQ(got.length, 0_B);
                ASSERT_FALSE(list.extents(ByteCount{offset}, ByteCount{bytes}));
                ASSERT_FALSE(list.contiguous(ByteCount{offset}, ByteCount{bytes}));
                ++seen[bytes == 0 ? empty : offset + bytes < offset ? wrapping : beyond];
                continue;
            }
            const std::uint64_t reach = model.reach(offset, bytes);
            ASSERT_EQ(got.address.value(), model.address[offset / page] + offset % page);
            ASSERT_EQ(got.length.value(), reach);
            ASSERT_EQ(list.contiguous(ByteCount{offset}, ByteCount{bytes}), reach == bytes);
            ++seen[reach == bytes ? whole : parted];
            const auto all = list.extents(ByteCount{offset}, ByteCount{bytes});
            ASSERT_TRUE(all);
            std::uint64_t at = offset;
            for (const Extent& one : *all) {
                ASSERT_EQ(one.address.value(), model.address[at / page] + at % page);
                ASSERT_EQ(one.length.value(), model.reach(at, offset + bytes - at));
                at += one.length.value();
            }
            ASSERT_EQ(at, offset + bytes);
        }
    }
    std::printf(
        "one million questions: %llu whole, %llu parted, %llu beyond the end, %llu wrapping, %llu of no bytes\n",
        static_cast<unsigned long long>(seen[whole]), static_cast<unsigned long long>(seen[parted]),
        static_cast<unsigned long long>(seen[beyond]), static_cast<unsigned long long>(seen[wrapping]),
        static_cast<unsigned long long>(seen[empty]));
    for (const std::uint64_t count : seen) {
        EXPECT_GE(count, 1000U);
    }
}

} // namespace
} // namespace upcie::dmabuf
