// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "block_order.hpp"
#include "hexdump.hpp"
#include "histogram.hpp"
#include "output.hpp"
#include "progress.hpp"

namespace upcie::cli {
namespace {

TEST(Histogram, PercentilesAreWithinABucket) {
    Histogram histogram;
    for (std::uint64_t i = 1; i <= 100000; ++i) {
        histogram.add(i);
    }
    EXPECT_EQ(histogram.count(), 100000U);
    EXPECT_EQ(histogram.least(), 1U);
    EXPECT_EQ(histogram.most(), 100000U);
    EXPECT_DOUBLE_EQ(histogram.mean(), 50000.5);
    for (const double fraction : {0.01, 0.5, 0.9, 0.99, 0.999}) {
        const double exact = fraction * 100000;
        const auto found = static_cast<double>(histogram.percentile(fraction));
        EXPECT_GE(found, exact) << fraction;
        EXPECT_LE(found, exact * 1.033) << fraction;
    }
    EXPECT_EQ(histogram.percentile(1.0), 100000U);
}

TEST(Histogram, SmallAndHugeValuesHaveTheirPlace) {
    Histogram histogram;
    histogram.add(0);
    histogram.add(31);
    histogram.add(~std::uint64_t{0});
    EXPECT_EQ(histogram.percentile(0.3), 0U);
    EXPECT_EQ(histogram.percentile(0.6), 31U);
    EXPECT_EQ(histogram.percentile(1.0), ~std::uint64_t{0});
}

TEST(Histogram, AnEmptyOneAnswersNought) {
    const Histogram histogram;
    EXPECT_EQ(histogram.percentile(0.5), 0U);
    EXPECT_EQ(histogram.least(), 0U);
    EXPECT_EQ(histogram.mean(), 0.0);
}

TEST(Histogram, MergingIsAddingAll) {
    Histogram a;
    Histogram b;
    a.add(10);
    b.add(1000);
    a.merge(b);
    EXPECT_EQ(a.count(), 2U);
    EXPECT_EQ(a.least(), 10U);
    EXPECT_EQ(a.most(), 1000U);
    EXPECT_EQ(a.percentile(0.5), 10U);
}

TEST(BlockOrder, VisitsEachOnceWhateverTheCountAndSeed) {
    for (const std::uint64_t count : {0U, 1U, 2U, 3U, 7U, 8U, 1000U, 1024U, 4097U}) {
        for (const std::uint64_t seed : {0ULL, 1ULL, 0xdeadbeefcafef00dULL}) {
            BlockOrder order{count, true, seed};
            std::set<std::uint64_t> seen;
            while (const auto index = order.next()) {
                ASSERT_LT(*index, count);
                ASSERT_TRUE(seen.insert(*index).second) << *index << " twice, count " << count << " seed " << seed;
            }
            ASSERT_EQ(seen.size(), count) << "seed " << seed;
        }
    }
}

TEST(BlockOrder, RandomIsNotAscendingAndSeedsDiffer) {
    const auto take = [](bool random, std::uint64_t seed) {
        BlockOrder order{1000, random, seed};
        std::vector<std::uint64_t> taken;
        while (const auto index = order.next()) {
            taken.push_back(*index);
        }
        return taken;
    };
    const auto ascending = take(false, 1);
    EXPECT_TRUE(std::is_sorted(ascending.begin(), ascending.end()));
    EXPECT_NE(take(true, 1), ascending);
    EXPECT_NE(take(true, 1), take(true, 2));
    EXPECT_EQ(take(true, 1), take(true, 1));
}

TEST(Progress, SaysNothingInTheFirstSecondsAndIsPacedAfter) {
    const Progress::Clock::time_point start{};
    using std::chrono::milliseconds;
    std::ostringstream err;
    Progress screen{err, true, start};
    EXPECT_FALSE(screen.due(start + milliseconds{1999}));
    EXPECT_TRUE(screen.due(start + milliseconds{2000}));
    EXPECT_FALSE(screen.due(start + milliseconds{2500}));
    EXPECT_TRUE(screen.due(start + milliseconds{3000}));
    Progress log{err, false, start};
    EXPECT_TRUE(log.due(start + milliseconds{2000}));
    EXPECT_FALSE(log.due(start + milliseconds{11000}));
    EXPECT_TRUE(log.due(start + milliseconds{12000}));
}

TEST(Progress, ALogHasLinesAndATerminalOneLine) {
    std::ostringstream log_text;
    Progress log{log_text, false};
    log.show("half");
    log.finish();
    EXPECT_EQ(log_text.str(), "half\n");
    std::ostringstream screen_text;
    Progress screen{screen_text, true};
    screen.show("half");
    screen.finish();
    EXPECT_EQ(screen_text.str(), "\r\x1b[Khalf\n");
}

TEST(Hexdump, RepeatedLinesAreOneStarAndTheLastIsShown) {
    std::vector<std::byte> data(64);
    data[0] = std::byte{'U'};
    data[63] = std::byte{0xff};
    std::ostringstream out;
    hexdump(out, data, 512);
    EXPECT_EQ(out.str(), "0000000200  55 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |U...............|\n"
                         "0000000210  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n"
                         "*\n"
                         "0000000230  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 ff  |................|\n");
}

TEST(HumanSize, CutsAndNamesTheUnit) {
    EXPECT_EQ(human_size(0), "0 B");
    EXPECT_EQ(human_size(1023), "1023 B");
    EXPECT_EQ(human_size(4096), "4 KiB");
    EXPECT_EQ(human_size(1536), "1.5 KiB");
    EXPECT_EQ(human_size(std::uint64_t{1} << 63), "8 EiB");
    EXPECT_EQ(human_size((std::uint64_t{1} << 30) + (std::uint64_t{64} << 20)), "1.06 GiB");
}

} // namespace
} // namespace upcie::cli
