// SPDX-License-Identifier: BSD-3-Clause
// One command at a time, waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/nvme/synchronous.hpp>

#include "nvme/controller_test.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using test::FakeDevice;

using Synchronous = ControllerTest;

TEST_F(Synchronous, SynchronousCallsRefuseAQueueInUse) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    device->io_hook = [](const Command&) { return FakeDevice::Reply{{}, 0, true}; };
    ASSERT_TRUE(queue->submit(flush(), 1));
    const auto answer = run(*controller, *queue, flush());
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().is(EBUSY));
}

TEST_F(Synchronous, SynchronousCallsGoOnAfterATimeOutAndIgnoreTheLateAnswer) {
    auto queue = controller->create_queue_pair({.timeout = milliseconds{20}});
    ASSERT_TRUE(queue);
    device->io_hook = [](const Command&) { return FakeDevice::Reply{{}, 0, true}; };
    auto answer = run(*controller, *queue, flush());
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().is(ETIMEDOUT));
    const Cid lost{device->io_commands.back().cid};
    EXPECT_TRUE(queue->is_outstanding(lost));
    EXPECT_EQ(queue->timed_out_outstanding(), 1U);
    device->io_hook = [&](const Command&) { // the late answer comes first, and is a failure
        device->release_held(Status{StatusCodeType::generic, 6});
        return FakeDevice::Reply{{}, 77, false};
    };
    answer = run(*controller, *queue, flush());
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(*answer, 77U);
    EXPECT_FALSE(queue->is_outstanding(lost));
    EXPECT_EQ(queue->counters().late, 1U);
}

TEST_F(Synchronous, SynchronousCallsNoticeAFatalErrorAndARemoval) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    device->io_hook = [&](const Command&) {
        device->fatal = true;
        return FakeDevice::Reply{{}, 0, true};
    };
    EXPECT_TRUE(run(*controller, *queue, flush()).error().is(EIO));
    device->fatal = false;
    ASSERT_TRUE(controller->reset());
    std::array<Completion, 4> ended;
    ASSERT_EQ(queue->poll(ended), 1U);
    ASSERT_TRUE(queue->restart());
    device->io_hook = [&](const Command&) {
        device->gone = true;
        return FakeDevice::Reply{{}, 0, true};
    };
    EXPECT_TRUE(run(*controller, *queue, flush()).error().is(ENODEV));
    device->gone = false;
}

TEST_F(Synchronous, StatusOfAnIoCommandIsTypeAndCode) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    device->io_hook = [](const Command&) {
        return FakeDevice::Reply{Status{StatusCodeType::command_specific, 0, true}, 0, false};
    };
    const auto answer = run(*controller, *queue, flush());
    ASSERT_FALSE(answer); // type 1 with code 0 is an error
    EXPECT_EQ(answer.error().code, 0x4100);
}

} // namespace
} // namespace upcie::nvme
