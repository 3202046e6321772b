// SPDX-License-Identifier: BSD-3-Clause
// What a controller says of itself, and what the driver makes of it.
#include <algorithm>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nvme/unopened_test.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::FakeDevice;
using testing::HasSubstr;

using CapabilitiesTest = UnopenedTest;

TEST_F(CapabilitiesTest, ReadyTimeoutIsTheLongestThatIsSaid) {
    EXPECT_EQ(Capabilities{0x02000000}.ready_timeout(), milliseconds{1000});
    EXPECT_EQ(Capabilities{0xff000000}.ready_timeout(), milliseconds{127'500});
}

TEST_F(CapabilitiesTest, SmallestPageAboveTheHostsIsRefusedWithTheReason) {
    device->cap |= (std::uint64_t{4} << 48) | (std::uint64_t{4} << 52);
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    EXPECT_THAT(controller.error().message(), HasSubstr("65536"));
    EXPECT_THAT(controller.error().message(), HasSubstr("MPSMIN"));
    EXPECT_TRUE(device->configurations.empty());
}

TEST_F(CapabilitiesTest, ControllersPageIsUsedWhereTheHostsIsLarger) {
    options.host_page_shift = 16;
    space->unit = 65536;
    device->cap |= std::uint64_t{1} << 52; // at most 8 KiB
    const auto controller = open();
    ASSERT_TRUE(controller) << controller.error().message();
    EXPECT_EQ((*controller)->page_shift(), 13U);
    EXPECT_EQ(Configuration{device->cc}.page_shift(), 13U);
}

TEST_F(CapabilitiesTest, MaxTransferCountsInTheSmallestPage) {
    device->cap |= (std::uint64_t{1} << 48) | (std::uint64_t{2} << 52);
    options.host_page_shift = 14;
    space->unit = 16384;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->max_transfer(), 256_KiB); // 2^5 pages of 8 KiB, though 16 KiB are in use
}

TEST_F(CapabilitiesTest, CommandSetsAreChosenByWhatThereIs) {
    device->cap = (device->cap & ~(1ULL << 37)) | (1ULL << 44);
    auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ(Configuration{device->cc}.command_set(), CommandSetSelection::admin_only);
    EXPECT_EQ((*controller)->queue_count(), 0U);
    controller = fail(ECANCELED, "", "", "");
    device->cap &= ~(0xffULL << 37);
    EXPECT_FALSE(open());
}

TEST_F(CapabilitiesTest, AdminDepthIsChecked) {
    for (const std::uint32_t depth : {0U, 1U, 4097U}) {
        options.admin_depth = depth;
        const auto controller = open();
        ASSERT_FALSE(controller);
        EXPECT_TRUE(controller.error().is(EINVAL));
    }
    options.admin_depth = 2;
    EXPECT_TRUE(open());
    options.admin_depth = 4096;
    EXPECT_TRUE(open());
}

TEST_F(CapabilitiesTest, BarTooSmallForTheRegistersIsRefused) {
    device->bar_size = 4_KiB;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
}

TEST_F(CapabilitiesTest, OtherQueueEntrySizesAreRefused) {
    FakeDevice::put<std::uint8_t>(device->identify_controller, 512, 0x77);
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    EXPECT_FALSE(Configuration{device->cc}.enabled()); // and left disabled
    EXPECT_EQ(space->live, 0U);
}

TEST_F(CapabilitiesTest, NumberOfQueuesIsNegotiatedOnceAndTheAnswerRespected) {
    device->grants = 3;
    options.io_queues = 16;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 3U);
    ASSERT_EQ(device->count(AdminOpcode::set_features), 1U);
    const Command asked = device->admin_commands.back();
    EXPECT_EQ(asked.cdw10, 7U);
    EXPECT_EQ(asked.cdw11, 15U | (15U << 16));
    const auto again = (*controller)->set_feature(7, 0);
    ASSERT_FALSE(again);
    EXPECT_TRUE(again.error().is(EINVAL));
}

TEST_F(CapabilitiesTest, MoreQueuesThanAskedForAreNotUsed) {
    device->grants = 128;
    options.io_queues = 2;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 2U);
}

TEST_F(CapabilitiesTest, DoorbellsOutsideTheBarLimitTheQueues) {
    device->cap |= std::uint64_t{6} << 32; // 256 bytes from one to the next
    device->bar_size = 8_KiB;
    device->areas = {{4_KiB, 4_KiB}};
    device->grants = 64;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 7U); // 16 doorbells, two of them the admin queue's
}

TEST_F(CapabilitiesTest, MsixTableInsideTheDoorbellsLimitsTheQueues) {
    device->cap |= std::uint64_t{6} << 32;
    device->areas = {{4_KiB, 4_KiB}, {12_KiB, 52_KiB}}; // as with a table at 0x2000
    device->grants = 64;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 7U);
    EXPECT_THAT((*controller)->queue_count_reason(), HasSubstr("doorbells of 7"));
}

TEST_F(CapabilitiesTest, AdminDoorbellsThatCannotBeMappedAreRefused) {
    device->areas = {{8_KiB, 56_KiB}};
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    device->areas.clear();
    EXPECT_FALSE(open());
}

TEST_F(CapabilitiesTest, WideRegistersAreOneAccessOrLowThenHigh) {
    ASSERT_TRUE(open());
    EXPECT_THAT(device->widths, testing::Contains(8U));
    device->widths.clear();
    device->writes.clear();
    options.wide_access = WideAccess::low_then_high;
    {
        const auto controller = open();
        ASSERT_TRUE(controller);
        EXPECT_EQ((*controller)->capabilities().raw, device->cap);
        EXPECT_GT(device->asq, 0xffffffffU); // both halves came
    }
    EXPECT_THAT(device->widths, testing::Each(4U));
    // ASQ and ACQ, each in two halves.
    std::vector<std::uint64_t> halves;
    std::copy_if(device->writes.begin(), device->writes.end(), std::back_inserter(halves),
                 [](std::uint64_t offset) { return offset >= 0x28 && offset < 0x38; });
    EXPECT_THAT(halves, testing::ElementsAre(0x28, 0x2c, 0x30, 0x34));
}

TEST_F(CapabilitiesTest, InterruptsAreEventfdsAsFarAsThereAreVectors) {
    options.interrupt_vectors = 16;
    {
        const auto controller = open();
        ASSERT_TRUE(controller);
        EXPECT_EQ((*controller)->interrupt_vectors(), 4U);
        EXPECT_EQ(device->eventfds.size(), 4U);
    }
    EXPECT_TRUE(device->eventfds.empty());
    device->vectors = 0;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
}

} // namespace
} // namespace upcie::nvme
