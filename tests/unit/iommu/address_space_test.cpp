// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/iommu/address_space.hpp>

namespace upcie::iommu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace upcie::literals;

/// Answers what a test lays down and remembers what was unmapped.
class ScriptedSpace final : public AddressSpace {
  public:
    AddressSpaceKind kind() const noexcept override { return AddressSpaceKind::simulated; }
    std::string describe() const override { return "scripted space"; }
    bool translating() const noexcept override { return false; }
    Result<std::vector<IovaRange>> iova_ranges() override { return std::vector<IovaRange>{}; }
    ByteCount granule() const noexcept override { return 4_KiB; }

    std::vector<Extent> answer;
    Result<void> unmap_answer;
    std::vector<std::uint64_t> unmapped;
    int mapped = 0;

  protected:
    Result<Mapped> do_map_memory(void*, ByteCount, Access) override {
        ++mapped;
        return Mapped{static_cast<std::uint64_t>(mapped), answer};
    }
    Result<Mapped> do_map_file(int fd, ByteCount, ByteCount, Access) override {
        if (fd < 0) {
            return fail(EBADF, "map", "nothing", {});
        }
        return do_map_memory(nullptr, ByteCount{}, Access::read);
    }
    Result<void> do_unmap(std::uint64_t token, ByteCount) override {
        unmapped.push_back(token);
        return unmap_answer;
    }
};

Extent run(std::uint64_t address, ByteCount length) {
    return {DmaAddress{address}, length};
}

class AddressSpaceBase : public testing::Test {
  protected:
    Result<DmaMapping> map(std::uint64_t start, ByteCount length) const {
        return space_->map_memory(reinterpret_cast<void*>(start), length);
    }
    std::shared_ptr<ScriptedSpace> space_ = std::make_shared<ScriptedSpace>();
};

TEST_F(AddressSpaceBase, AbuttingRunsBecomeOne) {
    space_->answer = {run(0x10000, 4_KiB), run(0x11000, 8_KiB), run(0x9000, 4_KiB), run(0x8000, 4_KiB), run(0, 4_KiB)};
    const auto mapping = map(0x5000, 24_KiB);
    ASSERT_TRUE(mapping) << mapping.error().message();
    EXPECT_THAT(mapping->extents(),
                ElementsAre(run(0x10000, 12_KiB), run(0x9000, 4_KiB), run(0x8000, 4_KiB), run(0, 4_KiB)));
    EXPECT_EQ(mapping->length(), 24_KiB);
}

TEST_F(AddressSpaceBase, ARunThatEndsAt2To64IsNoNeighbourOfAddress0) {
    space_->answer = {run(~0xfffULL, 4_KiB), run(0, 4_KiB)};
    const auto mapping = map(0x5000, 8_KiB);
    ASSERT_TRUE(mapping);
    EXPECT_THAT(mapping->extents(), ElementsAre(run(~0xfffULL, 4_KiB), run(0, 4_KiB)));
}

TEST_F(AddressSpaceBase, RunsThatDoNotAddUpUndoTheMapping) {
    const std::vector<std::vector<Extent>> wrong{
        {},
        {run(0x1000, 4_KiB)},                                        // too short
        {run(0x1000, 12_KiB)},                                       // too long
        {run(0x1000, 4_KiB), run(0x8000, ByteCount{~0ULL - 0xfff})}, // overflows back to what was asked
        {run(0x1000, 8_KiB), run(0x8000, 0_B)},                      // a run of nothing
        {run(~0xfffULL, 8_KiB)},                                     // wraps
    };
    for (const auto& runs : wrong) {
        space_->answer = runs;
        space_->unmapped.clear();
        const auto mapping = map(0x5000, 8_KiB);
        ASSERT_FALSE(mapping) << runs.size();
        EXPECT_TRUE(mapping.error().is(EPROTO));
        EXPECT_EQ(space_->unmapped.size(), 1U);
    }
}

TEST_F(AddressSpaceBase, RefusesEmptyUnalignedAndOverflowingRangesBeforeTheKernelSeesThem) {
    space_->answer = {run(0, 4_KiB)};
    struct Case {
        std::uint64_t start;
        ByteCount length;
        const char* words;
    };
    for (const Case& bad : {Case{0x1000, 0_B, "length is 0"}, Case{0x1001, 4_KiB, "start is no multiple"},
                            Case{0x1000, 4097_B, "length is no multiple"}, Case{~0xfffULL, 8_KiB, "beyond 2^64"},
                            Case{0x1000, ByteCount{~0xfffULL}, nullptr}}) {
        const auto by_memory = map(bad.start, bad.length);
        const auto by_file = space_->map_file(3, ByteCount{bad.start}, bad.length);
        if (bad.words == nullptr) { // ends at 2^64-1: legal, and the script's runs do not add up
            EXPECT_TRUE(by_memory.error().is(EPROTO));
            continue;
        }
        ASSERT_FALSE(by_memory);
        EXPECT_TRUE(by_memory.error().is(EINVAL));
        EXPECT_THAT(by_memory.error().hint, HasSubstr(bad.words));
        EXPECT_TRUE(by_file.error().is(EINVAL));
    }
    EXPECT_EQ(space_->mapped, 2);       // the legal one, by memory and by file
    ASSERT_TRUE(map(~0xfffULL, 4_KiB)); // the last page of all
}

TEST_F(AddressSpaceBase, MappingsUnmapOnceWhoeverHoldsThemLast) {
    space_->answer = {run(0x1000, 4_KiB)};
    {
        auto first = *map(0, 4_KiB);
        auto second = *map(0, 4_KiB);
        DmaMapping moved{std::move(first)};
        EXPECT_FALSE(first); // NOLINT: moved-from is empty by contract
        EXPECT_TRUE(first.extents().empty());
        second = std::move(moved); // unmaps 2 now
        EXPECT_THAT(space_->unmapped, ElementsAre(2U));
        EXPECT_TRUE(second.unmap());
        EXPECT_TRUE(second.unmap()); // nothing left to do
        EXPECT_FALSE(second);
        EXPECT_EQ(second.length(), 0_B);
    }
    EXPECT_THAT(space_->unmapped, ElementsAre(2U, 1U));
}

TEST_F(AddressSpaceBase, UnmapTellsWhatTheKernelSays) {
    space_->answer = {run(0x1000, 4_KiB)};
    space_->unmap_answer = fail(ENOENT, "unmap", "x", {});
    auto mapping = *map(0, 4_KiB);
    EXPECT_TRUE(mapping.unmap().error().is(ENOENT));
    EXPECT_TRUE(mapping.unmap()); // not tried again
}

TEST_F(AddressSpaceBase, AMappingKeepsItsSpaceAlive) {
    space_->answer = {run(0x1000, 4_KiB)};
    const std::weak_ptr<ScriptedSpace> watch = space_;
    auto mapping = *map(0, 4_KiB);
    space_.reset();
    EXPECT_FALSE(watch.expired());
    mapping = DmaMapping{};
    EXPECT_TRUE(watch.expired());
}

TEST_F(AddressSpaceBase, FailuresPassThrough) {
    EXPECT_TRUE(space_->map_file(-1, 0_B, 4_KiB).error().is(EBADF));
    EXPECT_EQ(to_string(AddressSpaceKind::noiommu_ioas), "noiommu_ioas");
}

} // namespace
} // namespace upcie::iommu
