// SPDX-License-Identifier: BSD-3-Clause
// A controller reset under queues that are in use, and their restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/nvme/synchronous.hpp>

#include "nvme/controller_test.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using test::FakeDevice;

using ControllerReset = ControllerTest;

TEST_F(ControllerReset, ResetEndsWhatIsOutstandingAndTheQueueRestarts) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    device->io_hook = [](const Command&) { return FakeDevice::Reply{{}, 0, true}; };
    for (std::uint64_t cookie = 10; cookie < 13; ++cookie) {
        ASSERT_TRUE(queue->submit(flush(), cookie));
    }
    queue->ring();
    device->pause();
    ASSERT_EQ(device->io_commands.size(), 3U);
    ASSERT_TRUE(controller->reset());
    EXPECT_FALSE(queue->alive());
    EXPECT_EQ(queue->submit(flush(), 1).refusal(), Refusal::queue_dead);
    std::array<Completion, 8> ended;
    ASSERT_EQ(queue->poll(ended), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(ended[i].outcome(), Outcome::reset);
        EXPECT_FALSE(ended[i].ok());
    }
    device->io_hook = {};
    const auto restarted = queue->restart();
    ASSERT_TRUE(restarted) << restarted.error().message();
    EXPECT_TRUE(run(*controller, *queue, flush()));
    EXPECT_EQ(device->completion_queues.count(queue->qid().value()), 1U);
}

TEST_F(ControllerReset, QueueOfBeforeAResetIsNotDeletedOnTheController) {
    {
        auto queue = controller->create_queue_pair();
        ASSERT_TRUE(queue);
        ASSERT_TRUE(controller->reset());
    }
    EXPECT_EQ(device->count(AdminOpcode::delete_submission_queue), 0U);
    EXPECT_EQ(controller->create_queue_pair()->qid(), Qid{1});
}

TEST_F(ControllerReset, ResetThatIsNotConfirmedKeepsEverything) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    const std::size_t live = space->live;
    device->ready_clears = false;
    device->reset_works = false;
    const auto reset = controller->reset();
    ASSERT_FALSE(reset);
    EXPECT_TRUE(reset.error().is(ETIMEDOUT));
    EXPECT_EQ(controller->state(), ControllerState::failed);
    EXPECT_TRUE(queue->alive()); // nothing is over yet: the controller may still complete and write
    EXPECT_EQ(space->live, live);
    EXPECT_FALSE(controller->create_queue_pair());
    EXPECT_TRUE(controller->admin(Command{}).error().is(ENODEV));
    queue = fail(ECANCELED, "", "", "");
    EXPECT_EQ(space->live, live);
    EXPECT_GT(controller->kept_memory(), 0_B);

    device->ready_clears = true;
    device->csts = 0;
    ASSERT_TRUE(controller->reset());
    EXPECT_EQ(controller->state(), ControllerState::ready);
    EXPECT_EQ(controller->kept_memory(), 0_B);
    EXPECT_TRUE(controller->create_queue_pair());
}

TEST_F(ControllerReset, ResetFallsBackToAFunctionReset) {
    device->ready_clears = false;
    ASSERT_TRUE(controller->reset());
    EXPECT_EQ(device->resets, 1U);
    device->ready_clears = true;
}

TEST_F(ControllerReset, ResetThatDoesNotComeUpAgainFailsAndCanBeRepeated) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    device->ready_follows = false;
    ASSERT_FALSE(controller->reset());
    EXPECT_EQ(controller->state(), ControllerState::failed);
    EXPECT_FALSE(queue->alive());
    EXPECT_FALSE(queue->restart());
    device->ready_follows = true;
    ASSERT_TRUE(controller->reset());
    EXPECT_TRUE(queue->restart());
}

TEST_F(ControllerReset, FewerQueuesAfterAResetAreRespected) {
    auto first = controller->create_queue_pair();
    auto second = controller->create_queue_pair();
    ASSERT_TRUE(first && second);
    device->grants = 1;
    ASSERT_TRUE(controller->reset());
    EXPECT_TRUE(first->restart());
    const auto restarted = second->restart();
    ASSERT_FALSE(restarted);
    EXPECT_TRUE(restarted.error().is(EBUSY));
}

TEST_F(ControllerReset, RestartThatIsLeftHalfMadeKeepsTheMemory) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    ASSERT_TRUE(controller->reset());
    device->admin_hook = [](const Command& command) -> std::optional<FakeDevice::Reply> {
        if (command.opcode == 1 || command.opcode == 4) {
            return FakeDevice::Reply{Status{StatusCodeType::generic, 6}, 0, false};
        }
        return std::nullopt;
    };
    EXPECT_FALSE(queue->restart());
    queue = fail(ECANCELED, "", "", "");
    EXPECT_GT(controller->kept_memory(), 0_B);
}

TEST_F(ControllerReset, RestartedRingsCarryNoStalePhase) {
    auto queue = controller->create_queue_pair({.depth = 4});
    ASSERT_TRUE(queue);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(run(*controller, *queue, flush()));
    }
    ASSERT_TRUE(controller->reset());
    std::array<Completion, 4> ended;
    ASSERT_EQ(queue->poll(ended), 0U);
    ASSERT_TRUE(queue->restart());
    EXPECT_EQ(queue->poll(ended), 0U);
    EXPECT_EQ(queue->counters().stray, 0U);
}

} // namespace
} // namespace upcie::nvme
