// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "noiommu_pa.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using testing::_;

class WalkTest : public testing::Test {
  protected:
    /// Answers GET_PA from these, in turn; the last forever.
    void answer(std::vector<Requests::PhysicalRun> runs) {
        runs_ = std::move(runs);
        ON_CALL(system_, ioctl(_, uapi::iommu_ioas_noiommu_get_pa, _))
            .WillByDefault([this](int, unsigned long, void* argument) {
                auto* const request = static_cast<uapi::IommuIoasNoiommuGetPa*>(argument);
                asked_.push_back({request->iova, request->length});
                if (next_ >= runs_.size()) {
                    errno = ENOENT;
                    return -1;
                }
                request->out_phys = runs_[next_].address;
                request->length = runs_[next_].length;
                ++next_;
                return 0;
            });
    }

    testing::NiceMock<test::MockSystemBase> system_;
    Requests requests_{system_};
    std::vector<Requests::PhysicalRun> runs_;
    std::vector<Requests::PhysicalRun> asked_;
    std::size_t next_ = 0;
};

TEST_F(WalkTest, AsksOnFromWhereEachAnswerEnds) {
    answer({{0x10000, page}, {0x11000, 2 * page}, {0x90000, page}});
    const PhysicalRuns walk = walk_runs(requests_, 3, 1, 0x100000, 4 * page);
    EXPECT_EQ(walk.error, 0);
    ASSERT_EQ(walk.runs.size(), 3U);
    EXPECT_EQ(walk.covered(), 4 * page);
    EXPECT_EQ(walk.shortest(), page);
    EXPECT_EQ(walk.longest(), 2 * page);
    EXPECT_EQ(walk.merged(), 2U) << "the first two abut";
    ASSERT_EQ(asked_.size(), 3U);
    EXPECT_EQ(asked_[1].address, 0x100000 + page);
    EXPECT_EQ(asked_[1].length, 3 * page);
    EXPECT_EQ(asked_[2].address, 0x100000 + 3 * page);
}

TEST_F(WalkTest, AnErrorEndsIt) {
    answer({{0x10000, page}});
    const PhysicalRuns walk = walk_runs(requests_, 3, 1, 0, 4 * page);
    EXPECT_EQ(walk.error, ENOENT);
    EXPECT_EQ(walk.covered(), page);
}

TEST_F(WalkTest, AnAnswerOfNoLengthDoesNotLoop) {
    answer({{0x10000, 0}});
    EXPECT_EQ(walk_runs(requests_, 3, 1, 0, page).error, EPROTO);
}

TEST_F(WalkTest, AnAnswerBeyondWhatWasAskedIsNotTaken) {
    answer({{0x10000, 3 * page}});
    const PhysicalRuns walk = walk_runs(requests_, 3, 1, 0, 2 * page);
    EXPECT_EQ(walk.error, EPROTO);
    EXPECT_TRUE(walk.runs.empty());
}

TEST(Compare, CountsPagesByTheWitness) {
    PhysicalRuns walk;
    walk.runs = {{0x10000, 2 * page}, {0x90000, 2 * page}};
    const Comparison all = compare(
        walk, [](std::uint64_t offset) { return offset < 2 * page ? 0x10000 + offset : 0x90000 + offset - 2 * page; });
    EXPECT_TRUE(all.first_equal);
    EXPECT_EQ(all.pages, 4U);
    EXPECT_EQ(all.equal, 4U);
    EXPECT_EQ(all.unknown, 0U);
    const Comparison first_only = compare(walk, [](std::uint64_t offset) {
        return offset == 0 ? 0x10000 : (offset == page ? ~std::uint64_t{0} : 0x777000);
    });
    EXPECT_TRUE(first_only.first_equal) << "the first being right says nothing about the rest";
    EXPECT_EQ(first_only.equal, 1U);
    EXPECT_EQ(first_only.unknown, 1U);
    EXPECT_EQ(compare({}, [](std::uint64_t) { return std::uint64_t{0}; }).pages, 0U);
}

class PagemapTest : public testing::Test {
  protected:
    std::uint64_t physical_for(std::uint64_t entry, ssize_t got = 8) {
        ON_CALL(system_, pread(_, _, _, _)).WillByDefault([=](int, void* data, std::size_t, off_t) {
            std::memcpy(data, &entry, sizeof(entry));
            return got;
        });
        const Result<Pagemap> pagemap = Pagemap::open(system_);
        EXPECT_TRUE(pagemap);
        return pagemap ? pagemap->physical(this) : 0;
    }
    testing::NiceMock<test::MockSystemBase> system_;
};

TEST_F(PagemapTest, FrameZeroIsNoPermissionAndNoAddress) {
    constexpr std::uint64_t present = std::uint64_t{1} << 63;
    constexpr std::uint64_t soft_dirty = std::uint64_t{1} << 55;
    EXPECT_EQ(physical_for(present | soft_dirty | 0x1234), 0x1234 * page);
    EXPECT_EQ(physical_for(present | soft_dirty), ~std::uint64_t{0});
    EXPECT_EQ(physical_for(0x1234), ~std::uint64_t{0}) << "not present";
    EXPECT_EQ(physical_for(present | 0x1234, 4), ~std::uint64_t{0}) << "half an entry";
}

} // namespace
} // namespace upcie::probes
