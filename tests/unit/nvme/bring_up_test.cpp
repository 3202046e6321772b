// SPDX-License-Identifier: BSD-3-Clause
// Bring-up, waits and the end of a controller, against a device that does as the test says.
#include <algorithm>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/nvme/controller.hpp>

#include "nvme/fake_device.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::FakeDevice;
using testing::HasSubstr;

class BringUp : public testing::Test {
  protected:
    Result<std::shared_ptr<Controller>> open() { return Controller::open(os::real_system(), device, options); }

    std::shared_ptr<test::PointerSpace> space = std::make_shared<test::PointerSpace>();
    std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(space);
    ControllerOptions options;

    BringUp() {
        options.ready_timeout = milliseconds{30};
        options.shutdown_timeout = milliseconds{30};
    }
};

TEST_F(BringUp, ConfiguresEnablesAndIdentifies) {
    options.admin_depth = 32;
    const auto controller = open();
    ASSERT_TRUE(controller) << controller.error().message();
    EXPECT_EQ((*controller)->info().model, "Fake model");
    EXPECT_EQ((*controller)->info().serial, "SERIAL");
    EXPECT_EQ(device->aqa, 31U | (31U << 16));
    const Configuration configuration{device->cc};
    EXPECT_TRUE(configuration.enabled());
    EXPECT_EQ(configuration.page_shift(), 12U);
    EXPECT_EQ(configuration.submission_entry_shift(), 6U);
    EXPECT_EQ(configuration.completion_entry_shift(), 4U);
    EXPECT_EQ(configuration.command_set(), CommandSetSelection::nvm);
    EXPECT_TRUE(device->bus_master);
}

TEST_F(BringUp, ShutsDownNormallyAndDisablesAtTheEnd) {
    {
        const auto controller = open();
        ASSERT_TRUE(controller);
    }
    ASSERT_GE(device->configurations.size(), 3U);
    const Configuration shutdown{device->configurations[device->configurations.size() - 2]};
    EXPECT_EQ(shutdown.shutdown(), ShutdownNotification::normal);
    EXPECT_TRUE(shutdown.enabled());
    EXPECT_FALSE(Configuration{device->configurations.back()}.enabled());
    EXPECT_EQ(space->live, 0U);
}

TEST_F(BringUp, ShutdownThatDoesNotEndIsBounded) {
    device->shutdown_completes = false;
    { ASSERT_TRUE(open()); }
    EXPECT_FALSE(Configuration{device->cc}.enabled());
    EXPECT_EQ(space->live, 0U);
}

TEST_F(BringUp, DisablesAnEnabledControllerBeforeItMayDoDma) {
    device->cc = 1;
    device->csts = 1;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_FALSE(Configuration{device->configurations.front()}.enabled());
    EXPECT_FALSE(device->bus_master_while_enabled_first);
}

TEST_F(BringUp, ControllerOnItsWayToReadySettlesBeforeItIsDisabled) {
    device->cc = 1;
    int looks = 0;
    device->on_pause = [&] { device->csts |= ++looks == 3 ? 1U : 0U; };
    ASSERT_TRUE(open());
    EXPECT_GE(looks, 3);
}

TEST_F(BringUp, StuckReadyEndsInTimeOut) {
    device->ready_follows = false;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ETIMEDOUT)) << controller.error().message();
    EXPECT_EQ(controller.error().operation, "enable controller");
}

TEST_F(BringUp, StuckDisableTriesAFunctionReset) {
    device->cc = 1;
    device->csts = 1;
    device->ready_clears = false;
    const auto controller = open();
    ASSERT_TRUE(controller) << controller.error().message();
    EXPECT_EQ(device->resets, 1U);
    device->ready_clears = true;
}

TEST_F(BringUp, StuckDisableWithoutResetIsRefused) {
    device->cc = 1;
    device->csts = 1;
    device->ready_clears = false;
    device->reset_works = false;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ETIMEDOUT));
    EXPECT_THAT(controller.error().message(), HasSubstr("reset of the function was tried"));
    EXPECT_FALSE(device->bus_master);
}

TEST_F(BringUp, FatalStatusWhileEnablingIsNoticedAtOnce) {
    options.ready_timeout = milliseconds{60'000};
    device->ready_follows = false;
    device->on_configuration = [&](std::uint32_t value) { device->fatal = (value & 1) != 0; };
    const auto started = steady_clock::now();
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(EIO)) << controller.error().message();
    EXPECT_THAT(controller.error().message(), HasSubstr("CSTS.CFS"));
    EXPECT_LT(steady_clock::now() - started, std::chrono::seconds{10});
}

TEST_F(BringUp, FatalStatusTogetherWithReadyIsNotReady) {
    device->on_configuration = [&](std::uint32_t value) { device->fatal = (value & 1) != 0; };
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(EIO));
}

TEST_F(BringUp, FatalStatusThatDisablingDoesNotClearIsNamed) {
    device->cc = 1;
    device->csts = 1;
    device->fatal = true;
    device->ready_clears = false;
    device->reset_works = false;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(EIO));
    EXPECT_THAT(controller.error().message(), HasSubstr("CSTS.CFS"));
}

TEST_F(BringUp, FatalStatusOfTheLastOwnerIsCuredByDisabling) {
    device->cc = 1;
    device->csts = 1;
    device->fatal = true;
    device->on_configuration = [&](std::uint32_t value) { device->fatal = device->fatal && (value & 1) != 0; };
    ASSERT_TRUE(open());
    EXPECT_EQ(device->resets, 0U);
}

TEST_F(BringUp, FatalStatusDuringAnAdminCommandIsNoticed) {
    device->admin_hook = [&](const Command&) {
        device->fatal = true;
        return FakeDevice::Reply{{}, 0, true};
    };
    device->on_configuration = [&](std::uint32_t value) { device->fatal = device->fatal && (value & 1) != 0; };
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(EIO)) << controller.error().message();
    EXPECT_EQ(space->live, 0U);
}

TEST_F(BringUp, AllOnesBeforeAnythingMeansGone) {
    device->gone = true;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
    EXPECT_THAT(controller.error().message(), HasSubstr("all ones"));
}

TEST_F(BringUp, AllOnesWhileDisablingMeansGone) {
    device->cc = 1;
    device->csts = 1;
    device->reset_works = false;
    device->on_configuration = [&](std::uint32_t) { device->gone = true; };
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
}

TEST_F(BringUp, AllOnesWhileSettlingMeansGone) {
    device->cc = 1;
    device->reset_works = false;
    device->on_pause = [&] { device->gone = true; };
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
}

TEST_F(BringUp, AllOnesWhileEnablingIsNeverReadyAndItsMemoryIsKept) {
    device->reset_works = false;
    device->on_configuration = [&](std::uint32_t value) { device->gone = (value & 1) != 0; };
    const AbandonedMemory before = abandoned_memory();
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
    // It cannot be disabled either, so what it was given is never freed.
    EXPECT_EQ(abandoned_memory().controllers, before.controllers + 1);
    EXPECT_GT(space->live, 0U);
    EXPECT_FALSE(device->bus_master);
}

TEST_F(BringUp, AllOnesDuringAnAdminCommandMeansGone) {
    device->admin_hook = [&](const Command&) {
        device->gone = true;
        return FakeDevice::Reply{{}, 0, true};
    };
    const auto started = steady_clock::now();
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
    EXPECT_LT(steady_clock::now() - started, std::chrono::seconds{10});
}

TEST_F(BringUp, AllOnesDuringShutdownKeepsTheMemory) {
    const AbandonedMemory before = abandoned_memory();
    {
        const auto controller = open();
        ASSERT_TRUE(controller);
        device->reset_works = false;
        device->on_configuration = [&](std::uint32_t) { device->gone = true; };
    }
    EXPECT_EQ(abandoned_memory().controllers, before.controllers + 1);
    EXPECT_GT(abandoned_memory().bytes, before.bytes);
    EXPECT_GT(space->live, 0U);
}

TEST_F(BringUp, CapTimeoutOfZeroIsNotTimeOutAtOnce) {
    options.ready_timeout.reset();
    device->cap &= ~0xff000000ULL;
    device->ready_follows = false;
    const auto begin = steady_clock::now();
    device->on_pause = [&] {
        if (!device->ready_follows && (device->cc & 1) != 0 && steady_clock::now() - begin > milliseconds{100}) {
            device->ready_follows = true;
            const std::uint32_t enabled = device->cc;
            device->cc = 0;
            static_cast<void>(device->write_region(0, offset::configuration, 4, enabled));
        }
    };
    EXPECT_TRUE(open());
}

TEST_F(BringUp, CapTimeoutBoundsReadyOnlyAndNotCommands) {
    options.ready_timeout = milliseconds{1};
    const auto controller = open();
    ASSERT_TRUE(controller);
    const auto begin = steady_clock::now();
    device->admin_hook = [](const Command&) { return FakeDevice::Reply{{}, 0, true}; };
    device->on_pause = [&] {
        if (steady_clock::now() - begin > milliseconds{50}) {
            device->release_held();
        }
    };
    Command format;
    format.opcode = static_cast<std::uint8_t>(AdminOpcode::format_nvm);
    EXPECT_TRUE((*controller)->admin(format));
    device->admin_hook = {};
}

TEST_F(BringUp, ReadyTimeoutIsTheLongestThatIsSaid) {
    EXPECT_EQ(Capabilities{0x02000000}.ready_timeout(), milliseconds{1000});
    EXPECT_EQ(Capabilities{0xff000000}.ready_timeout(), milliseconds{127'500});
}

TEST_F(BringUp, SmallestPageAboveTheHostsIsRefusedWithTheReason) {
    device->cap |= (std::uint64_t{4} << 48) | (std::uint64_t{4} << 52);
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    EXPECT_THAT(controller.error().message(), HasSubstr("65536"));
    EXPECT_THAT(controller.error().message(), HasSubstr("MPSMIN"));
    EXPECT_TRUE(device->configurations.empty());
}

TEST_F(BringUp, ControllersPageIsUsedWhereTheHostsIsLarger) {
    options.host_page_shift = 16;
    space->unit = 65536;
    device->cap |= std::uint64_t{1} << 52; // at most 8 KiB
    const auto controller = open();
    ASSERT_TRUE(controller) << controller.error().message();
    EXPECT_EQ((*controller)->page_shift(), 13U);
    EXPECT_EQ(Configuration{device->cc}.page_shift(), 13U);
}

TEST_F(BringUp, MaxTransferCountsInTheSmallestPage) {
    device->cap |= (std::uint64_t{1} << 48) | (std::uint64_t{2} << 52);
    options.host_page_shift = 14;
    space->unit = 16384;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->max_transfer(), 256_KiB); // 2^5 pages of 8 KiB, though 16 KiB are in use
}

TEST_F(BringUp, CommandSetsAreChosenByWhatThereIs) {
    device->cap = (device->cap & ~(1ULL << 37)) | (1ULL << 44);
    auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ(Configuration{device->cc}.command_set(), CommandSetSelection::admin_only);
    EXPECT_EQ((*controller)->queue_count(), 0U);
    controller = fail(ECANCELED, "", "", "");
    device->cap &= ~(0xffULL << 37);
    EXPECT_FALSE(open());
}

TEST_F(BringUp, AdminDepthIsChecked) {
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

TEST_F(BringUp, BarTooSmallForTheRegistersIsRefused) {
    device->bar_size = 4_KiB;
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENODEV));
}

TEST_F(BringUp, OtherQueueEntrySizesAreRefused) {
    FakeDevice::put<std::uint8_t>(device->identify_controller, 512, 0x77);
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    EXPECT_FALSE(Configuration{device->cc}.enabled()); // and left disabled
    EXPECT_EQ(space->live, 0U);
}

TEST_F(BringUp, NumberOfQueuesIsNegotiatedOnceAndTheAnswerRespected) {
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

TEST_F(BringUp, MoreQueuesThanAskedForAreNotUsed) {
    device->grants = 128;
    options.io_queues = 2;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 2U);
}

TEST_F(BringUp, DoorbellsOutsideTheBarLimitTheQueues) {
    device->cap |= std::uint64_t{6} << 32; // 256 bytes from one to the next
    device->bar_size = 8_KiB;
    device->areas = {{4_KiB, 4_KiB}};
    device->grants = 64;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 7U); // 16 doorbells, two of them the admin queue's
}

TEST_F(BringUp, MsixTableInsideTheDoorbellsLimitsTheQueues) {
    device->cap |= std::uint64_t{6} << 32;
    device->areas = {{4_KiB, 4_KiB}, {12_KiB, 52_KiB}}; // as with a table at 0x2000
    device->grants = 64;
    const auto controller = open();
    ASSERT_TRUE(controller);
    EXPECT_EQ((*controller)->queue_count(), 7U);
    EXPECT_THAT((*controller)->queue_count_reason(), HasSubstr("doorbells of 7"));
}

TEST_F(BringUp, AdminDoorbellsThatCannotBeMappedAreRefused) {
    device->areas = {{8_KiB, 56_KiB}};
    const auto controller = open();
    ASSERT_FALSE(controller);
    EXPECT_TRUE(controller.error().is(ENOTSUP));
    device->areas.clear();
    EXPECT_FALSE(open());
}

TEST_F(BringUp, WideRegistersAreOneAccessOrLowThenHigh) {
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

TEST_F(BringUp, InterruptsAreEventfdsAsFarAsThereAreVectors) {
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
