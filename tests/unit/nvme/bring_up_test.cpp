// SPDX-License-Identifier: BSD-3-Clause
// Bring-up, waits and the end of a controller, against a device that does as the test says.
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

using BringUp = UnopenedTest;

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

} // namespace
} // namespace upcie::nvme
