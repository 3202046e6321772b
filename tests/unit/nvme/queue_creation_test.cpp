// SPDX-License-Identifier: BSD-3-Clause
// I/O queues made, deleted and made again, against a device that does as the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/nvme/synchronous.hpp>

#include "nvme/controller_test.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using test::FakeDevice;
using testing::HasSubstr;

class QueueCreation : public ControllerTest {
  protected:
    void fail_command(AdminOpcode opcode, Status status = Status{StatusCodeType::command_specific, 0x01}) {
        device->admin_hook = [opcode, status](const Command& command) -> std::optional<FakeDevice::Reply> {
            if (command.opcode == static_cast<std::uint8_t>(opcode)) {
                return FakeDevice::Reply{status, 0, false};
            }
            return std::nullopt;
        };
    }
};

TEST_F(QueueCreation, DepthIsRefusedAtZeroOneAndAboveMqes) {
    controller.reset();
    device->cap = (device->cap & ~0xffffULL) | 15; // zero-based: 16 entries
    open();
    for (const std::uint32_t depth : {0U, 1U, 17U}) {
        const auto queue = controller->create_queue_pair({.depth = depth});
        ASSERT_FALSE(queue) << depth;
        EXPECT_TRUE(queue.error().is(EINVAL));
        EXPECT_THAT(queue.error().message(), HasSubstr("2 to 16"));
    }
    EXPECT_TRUE(controller->create_queue_pair({.depth = 2}));
    const auto queue = controller->create_queue_pair({.depth = 16});
    ASSERT_TRUE(queue);
    EXPECT_EQ(queue->capacity(), 15U);
}

TEST_F(QueueCreation, MemoryIsSizedFromTheDepthAndZeroed) {
    const auto queue = controller->create_queue_pair({.depth = 1000});
    ASSERT_TRUE(queue);
    const QueueLayout& layout = queue->layout();
    EXPECT_EQ(layout.entries, 1000U);
    const auto* bytes = reinterpret_cast<const std::byte*>(layout.completion);
    EXPECT_TRUE(std::all_of(bytes, bytes + 1000 * 16, [](std::byte one) { return one == std::byte{0}; }));
    EXPECT_GE(bytes - reinterpret_cast<const std::byte*>(layout.submission), 1000 * 64);
}

TEST_F(QueueCreation, SaysContiguousAndTheRightNumbers) {
    const auto queue = controller->create_queue_pair({.depth = 33});
    ASSERT_TRUE(queue);
    const Command submission = device->admin_commands.back();
    const Command completion = device->admin_commands[device->admin_commands.size() - 2];
    EXPECT_EQ(completion.opcode, 5);
    EXPECT_EQ(completion.cdw10, 1U | (32U << 16));
    EXPECT_EQ(completion.cdw11, 1U); // PC, and no interrupt
    EXPECT_EQ(submission.opcode, 1);
    EXPECT_EQ(submission.cdw10, 1U | (32U << 16));
    EXPECT_EQ(submission.cdw11, 1U | (1U << 16)); // PC, completion queue 1
}

TEST_F(QueueCreation, InterruptVectorIsGivenAndChecked) {
    controller.reset();
    options.interrupt_vectors = 3;
    open();
    {
        const auto queue = controller->create_queue_pair({.interrupt_vector = 2});
        ASSERT_TRUE(queue);
        EXPECT_EQ(device->admin_commands[device->admin_commands.size() - 2].cdw11, 3U | (2U << 16));
    }
    const auto queue = controller->create_queue_pair({.interrupt_vector = 3});
    ASSERT_FALSE(queue);
    EXPECT_TRUE(queue.error().is(EINVAL));
}

TEST_F(QueueCreation, InterruptReachesTheQueue) {
    controller.reset();
    options.interrupt_vectors = 2;
    open();
    auto queue = controller->create_queue_pair({.interrupt_vector = 1});
    ASSERT_TRUE(queue);
    auto fired = queue->wait_for_interrupt(os::real_system(), milliseconds{0});
    ASSERT_TRUE(fired);
    EXPECT_FALSE(*fired);
    const std::uint64_t one = 1;
    ASSERT_EQ(os::real_system().write(device->eventfds[1], &one, sizeof one), 8);
    fired = queue->wait_for_interrupt(os::real_system(), milliseconds{1000});
    ASSERT_TRUE(fired);
    EXPECT_TRUE(*fired);
}

TEST_F(QueueCreation, DeletesSubmissionThenCompletionAndGivesAllBack) {
    const std::size_t live = space->live;
    {
        const auto queue = controller->create_queue_pair();
        ASSERT_TRUE(queue);
        EXPECT_GT(space->live, live);
    }
    EXPECT_EQ(space->live, live);
    EXPECT_EQ(device->admin_commands.back().opcode, 4);
    EXPECT_EQ(device->admin_commands[device->admin_commands.size() - 2].opcode, 0);
    const auto again = controller->create_queue_pair();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->qid(), Qid{1});
}

TEST_F(QueueCreation, FailedCompletionQueueLeaksNothing) {
    const std::size_t live = space->live;
    fail_command(AdminOpcode::create_completion_queue);
    const auto queue = controller->create_queue_pair();
    ASSERT_FALSE(queue);
    EXPECT_EQ(queue.error().domain, ErrorDomain::nvme);
    EXPECT_EQ(queue.error().code, 0x101);
    EXPECT_EQ(queue.error().code_name, "Invalid Queue Identifier");
    EXPECT_EQ(space->live, live);
    EXPECT_EQ(device->count(AdminOpcode::delete_completion_queue), 0U);
    device->admin_hook = {};
    const auto again = controller->create_queue_pair();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->qid(), Qid{1});
}

TEST_F(QueueCreation, FailedSubmissionQueueDeletesTheCompletionQueueAndLeaksNothing) {
    const std::size_t live = space->live;
    fail_command(AdminOpcode::create_submission_queue);
    ASSERT_FALSE(controller->create_queue_pair());
    EXPECT_TRUE(device->completion_queues.empty());
    EXPECT_EQ(device->count(AdminOpcode::delete_completion_queue), 1U);
    EXPECT_EQ(device->count(AdminOpcode::delete_submission_queue), 0U);
    EXPECT_EQ(space->live, live);
    EXPECT_EQ(controller->kept_memory(), 0_B);
    device->admin_hook = {};
    const auto again = controller->create_queue_pair();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->qid(), Qid{1});
}

TEST_F(QueueCreation, CompletionQueueThatCannotBeDeletedEitherIsKept) {
    device->admin_hook = [](const Command& command) -> std::optional<FakeDevice::Reply> {
        if (command.opcode == 1 || command.opcode == 4) {
            return FakeDevice::Reply{Status{StatusCodeType::generic, 6}, 0, false};
        }
        return std::nullopt;
    };
    const std::size_t live = space->live;
    ASSERT_FALSE(controller->create_queue_pair());
    EXPECT_GT(controller->kept_memory(), 0_B);
    EXPECT_GT(space->live, live);
    device->admin_hook = {};
    const auto other = controller->create_queue_pair();
    ASSERT_TRUE(other);
    EXPECT_EQ(other->qid(), Qid{2}); // 1 may still be known to the controller
    ASSERT_TRUE(controller->reset());
    EXPECT_EQ(controller->kept_memory(), 0_B);
    const auto again = controller->create_queue_pair();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->qid(), Qid{1});
}

TEST_F(QueueCreation, CreationThatTimedOutMayStillHappenSoItsMemoryIsKept) {
    controller.reset();
    options.admin_timeout = milliseconds{20};
    open();
    device->admin_hook = [](const Command& command) -> std::optional<FakeDevice::Reply> {
        if (command.opcode == 5) {
            return FakeDevice::Reply{{}, 0, true};
        }
        return std::nullopt;
    };
    const auto queue = controller->create_queue_pair();
    ASSERT_FALSE(queue);
    EXPECT_TRUE(queue.error().is(ETIMEDOUT));
    EXPECT_GT(controller->kept_memory(), 0_B);
}

TEST_F(QueueCreation, FailedDeleteKeepsTheMemoryUntilAConfirmedDisable) {
    const std::size_t live = space->live;
    {
        const auto queue = controller->create_queue_pair();
        ASSERT_TRUE(queue);
        fail_command(AdminOpcode::delete_submission_queue, Status{StatusCodeType::generic, 6});
    }
    EXPECT_GT(controller->kept_memory(), 0_B);
    EXPECT_GT(space->live, live);
    EXPECT_EQ(device->count(AdminOpcode::delete_completion_queue), 0U); // its submission queue is there
    device->admin_hook = {};
    EXPECT_EQ(controller->create_queue_pair()->qid(), Qid{2});
    ASSERT_TRUE(controller->reset());
    EXPECT_EQ(controller->kept_memory(), 0_B);
    EXPECT_EQ(space->live, live);
    EXPECT_EQ(controller->create_queue_pair()->qid(), Qid{1});
}

TEST_F(QueueCreation, MemoryOfAFailedDeleteGoesWhenTheControllerIsDisabledAtTheEnd) {
    {
        const auto queue = controller->create_queue_pair();
        ASSERT_TRUE(queue);
        fail_command(AdminOpcode::delete_submission_queue);
    }
    controller.reset();
    EXPECT_EQ(space->live, 0U);
}

TEST_F(QueueCreation, MemoryOfAFailedDeleteIsAbandonedWhenDisablingIsNotConfirmed) {
    {
        const auto queue = controller->create_queue_pair();
        ASSERT_TRUE(queue);
        fail_command(AdminOpcode::delete_submission_queue);
    }
    const std::size_t live = space->live;
    const AbandonedMemory before = abandoned_memory();
    const ByteCount kept = controller->kept_memory();
    device->ready_clears = false;
    device->reset_works = false;
    controller.reset();
    EXPECT_GE(space->live, live - 4); // idle buffers of the admin queue may go
    EXPECT_GE(abandoned_memory().bytes - before.bytes, kept);
    EXPECT_FALSE(device->bus_master);
}

TEST_F(QueueCreation, QueueHoldsItsController) {
    auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    Controller* const raw = controller.get();
    controller.reset();
    EXPECT_TRUE(Configuration{device->cc}.enabled());
    EXPECT_TRUE(run(*raw, *queue, flush()));
    queue = fail(ECANCELED, "", "", "");
    EXPECT_FALSE(Configuration{device->cc}.enabled());
    EXPECT_EQ(space->live, 0U);
}

TEST_F(QueueCreation, NoMoreQueuesThanGranted) {
    controller.reset();
    device->grants = 2;
    open();
    const auto first = controller->create_queue_pair();
    const auto second = controller->create_queue_pair();
    ASSERT_TRUE(first && second);
    const auto third = controller->create_queue_pair();
    ASSERT_FALSE(third);
    EXPECT_TRUE(third.error().is(EBUSY));
    EXPECT_THAT(third.error().message(), HasSubstr("granted 2"));
}

TEST_F(QueueCreation, IdentifiersCanBeLentAndReturned) {
    auto lent = controller->lend_queue_ids(7);
    ASSERT_TRUE(lent);
    EXPECT_FALSE(lent->contains(Qid{1}));
    EXPECT_TRUE(lent->contains(Qid{8}));
    const auto queue = controller->create_queue_pair();
    ASSERT_TRUE(queue);
    EXPECT_FALSE(controller->create_queue_pair());
    EXPECT_FALSE(controller->lend_queue_ids(1));
    controller->return_queue_ids(std::move(*lent));
    EXPECT_TRUE(controller->create_queue_pair());
}

TEST_F(QueueCreation, RingsAreContiguousOrRefused) {
    controller.reset();
    space = std::make_shared<test::PointerSpace>(true);
    device = std::make_shared<FakeDevice>(space);
    open();
    EXPECT_TRUE(controller->create_queue_pair({.depth = 64})); // each ring fits a page
    const std::size_t live = space->live;
    const auto queue = controller->create_queue_pair({.depth = 65});
    ASSERT_FALSE(queue);
    EXPECT_TRUE(queue.error().is(ENOMEM));
    EXPECT_THAT(queue.error().message(), HasSubstr("contiguous"));
    EXPECT_EQ(space->live, live);
}

TEST_F(QueueCreation, PrpListsAreSizedFromTheTransfer) {
    controller.reset();
    FakeDevice::put<std::uint8_t>(device->identify_controller, 77, 0); // no MDTS
    open();
    {
        const auto queue = controller->create_queue_pair({.depth = 4, .max_transfer = 8_MiB});
        ASSERT_TRUE(queue);
        EXPECT_EQ(queue->max_transfer(), 8_MiB);
        EXPECT_EQ(queue->layout().prp_list_stride, 5U * 4096); // 2049 entries and links
    }
    const auto small = controller->create_queue_pair({.depth = 4, .max_transfer = 4_KiB});
    ASSERT_TRUE(small);
    EXPECT_EQ(small->layout().prp_list_stride, 0U);
    EXPECT_FALSE(controller->create_queue_pair({.max_transfer = 0_B}));
}

TEST_F(QueueCreation, MdtsLimitsTheTransfer) {
    const auto queue = controller->create_queue_pair({.max_transfer = 8_MiB});
    ASSERT_TRUE(queue);
    EXPECT_EQ(queue->max_transfer(), 128_KiB);
}

} // namespace
} // namespace upcie::nvme
