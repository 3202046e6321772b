// SPDX-License-Identifier: BSD-3-Clause
// Submission, completion and their identifiers, with the controller's end moved by hand.
#include "nvme/queue_pair_fixture.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include <sys/eventfd.h>

namespace upcie::nvme {
namespace {

using namespace std::chrono_literals;
using namespace upcie::literals;

TEST_F(QueuePairTest, FillsTheEntryAndNothingBeside) {
    QueuePair queue = make();
    std::memset(static_cast<void*>(submission.data()), 0xff, sizeof(Command) * entries); // what lay there before
    const Submitted submitted = queue.write(format, Lba{0x1'2345'6789}, 8, pointer(0x200), 1);
    ASSERT_TRUE(submitted);
    const Command& entry = submission[0];
    EXPECT_EQ(entry.opcode, 0x01);
    EXPECT_EQ(entry.flags, 0);
    EXPECT_EQ(entry.cid, submitted.cid().value());
    EXPECT_EQ(entry.nsid, 3U);
    EXPECT_EQ(entry.cdw2, 0U);
    EXPECT_EQ(entry.cdw3, 0U);
    EXPECT_EQ(entry.mptr, 0U);
    EXPECT_EQ(entry.prp1, 0x200U);
    EXPECT_EQ(entry.prp2, 0x1000U);
    EXPECT_EQ(entry.cdw10, 0x2345'6789U);
    EXPECT_EQ(entry.cdw11, 1U);
    EXPECT_EQ(entry.cdw12, 7U);
    EXPECT_EQ(entry.cdw13, 0U);
    EXPECT_EQ(entry.cdw14, 0U);
    EXPECT_EQ(entry.cdw15, 0U);
}

TEST_F(QueuePairTest, OneDoorbellForABatchOnEitherRing) {
    QueuePair queue = make();
    for (std::uint64_t i = 0; i < 5; ++i) {
        submit_one(queue, i);
    }
    EXPECT_EQ(doorbells[0], 99U) << "nothing reaches the controller before ring()";
    queue.ring();
    EXPECT_EQ(doorbells[0], 5U);
    doorbells[0] = 77;
    queue.ring();
    EXPECT_EQ(doorbells[0], 77U) << "nothing new, no doorbell";
    doorbells[0] = 5;
    for (const Command& command : fetch()) {
        complete(command.cid);
    }
    EXPECT_EQ(doorbells[1], 99U);
    EXPECT_EQ(poll(queue).size(), 5U);
    EXPECT_EQ(doorbells[1], 5U);
    doorbells[1] = 88;
    EXPECT_TRUE(poll(queue).empty());
    EXPECT_EQ(doorbells[1], 88U);
}

TEST_F(QueuePairTest, CompletionsAreMatchedByCidInAnyOrderAcrossManyWraps) {
    QueuePair queue = make();
    std::deque<Command> waiting;
    std::uint64_t next = 0;
    std::vector<bool> seen(4000);
    std::uint32_t random = 1;
    while (std::count(seen.begin(), seen.end(), true) < 4000) {
        while (next < 4000) {
            const Submitted submitted = queue.read(format, Lba{next}, 1, pointer(), next);
            if (!submitted) {
                EXPECT_EQ(submitted.refusal(), Refusal::queue_full);
                break;
            }
            ++next;
        }
        queue.ring();
        for (const Command& command : fetch()) {
            for (const Command& other : waiting) {
                ASSERT_NE(command.cid, other.cid) << "an identifier in use twice";
            }
            ASSERT_NE(command.cid, 0xffff);
            waiting.push_back(command);
        }
        ASSERT_LE(waiting.size(), entries - 1);
        ASSERT_EQ(queue.outstanding(), waiting.size());
        const std::size_t leave = next < 4000 ? random % 3 : 0; // some stay behind for long
        while (waiting.size() > leave) {
            random = random * 1664525U + 1013904223U;
            const std::size_t pick = (random >> 16) % waiting.size();
            complete(waiting[pick].cid, 0, waiting[pick].cdw10);
            waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(pick));
        }
        // Three at a time: what does not fit comes with the next call.
        for (auto ended = poll(queue, 3); !ended.empty(); ended = poll(queue, 3)) {
            for (const Completion& one : ended) {
                ASSERT_TRUE(one.ok());
                ASSERT_EQ(one.cookie, one.result) << "the cookie of another command";
                ASSERT_FALSE(seen[one.cookie]);
                seen[one.cookie] = true;
            }
        }
    }
    EXPECT_EQ(queue.outstanding(), 0U);
    EXPECT_EQ(queue.counters().stray, 0U);
}

TEST_F(QueuePairTest, AFullQueueSaysSoAndLosesNothing) {
    QueuePair queue = make();
    EXPECT_EQ(queue.capacity(), entries - 1) << "one entry stays empty";
    for (std::uint64_t i = 0; i < entries - 1; ++i) {
        submit_one(queue, i);
    }
    const Submitted more = queue.read(format, Lba{0}, 1, pointer(), 99);
    EXPECT_EQ(more.refusal(), Refusal::queue_full);
    EXPECT_EQ(more.error("read", "queue 5").code, EAGAIN);
    EXPECT_EQ(queue.flush(Nsid{1}, 99).refusal(), Refusal::queue_full);
    queue.ring();
    const auto commands = fetch();
    ASSERT_EQ(commands.size(), entries - 1);
    complete(commands[3].cid);
    EXPECT_EQ(poll(queue).at(0).cookie, 3U);
    submit_one(queue, 100); // room for just one
    EXPECT_FALSE(queue.read(format, Lba{0}, 1, pointer(), 101));
    queue.ring();
    EXPECT_EQ(fetch().size(), 1U);
}

TEST_F(QueuePairTest, DuplicateAndForeignCompletionsAreDropped) {
    QueuePair queue = make();
    const std::uint16_t first = submit_one(queue, 1);
    queue.ring();
    complete(first);
    complete(first); // once more
    EXPECT_EQ(poll(queue).size(), 1U);
    EXPECT_EQ(queue.counters().stray, 1U);
    // Later too, when the slot has been taken by another command: the identifier has moved on.
    for (std::uint64_t i = 0; i < entries - 1; ++i) {
        submit_one(queue, 10 + i);
    }
    queue.ring();
    complete(first);
    complete(0x7fff); // never given out
    complete(entries - 1);
    EXPECT_TRUE(poll(queue).empty());
    EXPECT_EQ(queue.counters().stray, 4U);
    EXPECT_EQ(queue.outstanding(), entries - 1);
}

TEST_F(QueuePairTest, StatusIsTypeAndCodeWithItsFlags) {
    QueuePair queue = make();
    const std::uint16_t type_one_code_zero = 0x100;
    complete(submit_one(queue, 1), type_one_code_zero);
    queue.ring();
    Completion one = poll(queue).at(0);
    EXPECT_FALSE(one.ok()) << "type 1 with code 0 is an error";
    EXPECT_FALSE(one.status().ok());
    EXPECT_EQ(one.status().type(), StatusCodeType::command_specific);
    EXPECT_EQ(one.status().name(), "Completion Queue Invalid");
    const std::uint16_t everything = 0x4000 | 0x2000 | (2 << 11) | 0x281; // DNR, More, CRD 2, read error
    complete(submit_one(queue, 2), everything, 0x1234'5678'9abc'def0);
    queue.ring();
    one = poll(queue).at(0);
    EXPECT_EQ(one.status().raw(), everything);
    EXPECT_TRUE(one.status().do_not_retry());
    EXPECT_TRUE(one.status().more());
    EXPECT_EQ(one.status().retry_delay(), 2U);
    EXPECT_EQ(one.status().name(), "Unrecovered Read Error");
    EXPECT_EQ(one.result, 0x1234'5678'9abc'def0U);
    const std::uint16_t flags_alone = 0x4000 | 0x2000;
    complete(submit_one(queue, 3), flags_alone);
    queue.ring();
    one = poll(queue).at(0);
    EXPECT_TRUE(one.ok());
    EXPECT_TRUE(one.status().ok());
}

TEST_F(QueuePairTest, ATimedOutIdentifierStaysRetiredUntilItIsAnswered) {
    QueuePair queue = make(20ms);
    const std::uint16_t late = submit_one(queue, 7);
    queue.ring();
    EXPECT_TRUE(poll(queue).empty()) << "not before its time";
    std::vector<Completion> ended;
    for (int i = 0; i < 400 && ended.empty(); ++i) {
        std::this_thread::sleep_for(1ms);
        ended = poll(queue);
    }
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].outcome(), Outcome::timed_out);
    EXPECT_EQ(ended[0].cookie, 7U);
    EXPECT_FALSE(ended[0].ok());
    EXPECT_EQ(ended[0].cid().value(), late);
    EXPECT_EQ(queue.outstanding(), 1U) << "it is still the controller's";
    EXPECT_TRUE(queue.is_outstanding(Cid{late}));
    EXPECT_EQ(queue.timed_out_outstanding(), 1U);
    queue.set_timeout(0ns);
    // One command fewer fits, and none gets its identifier.
    for (std::uint64_t i = 0; i < entries - 2; ++i) {
        EXPECT_NE(submit_one(queue, 100 + i), late);
    }
    EXPECT_FALSE(queue.read(format, Lba{0}, 1, pointer(), 0));
    queue.ring();
    // Its late answer completes nobody and is reported to nobody.
    complete(late);
    EXPECT_TRUE(poll(queue).empty());
    EXPECT_EQ(queue.counters().late, 1U);
    EXPECT_EQ(queue.counters().timed_out, 1U);
    EXPECT_EQ(queue.outstanding(), entries - 2);
    EXPECT_FALSE(queue.is_outstanding(Cid{late}));
    EXPECT_TRUE(queue.read(format, Lba{0}, 1, pointer(), 200)) << "and frees its slot";
}

TEST_F(QueuePairTest, ACommandMayHaveATimeOfItsOwn) {
    QueuePair queue = make(20ms);
    const std::uint16_t format_command = submit_one(queue, 1);
    queue.ring();
    EXPECT_TRUE(queue.set_command_timeout(Cid{format_command}, 1h));
    EXPECT_FALSE(queue.set_command_timeout(Cid{4711}, 1h));
    std::this_thread::sleep_for(60ms);
    EXPECT_TRUE(poll(queue).empty());
    EXPECT_TRUE(queue.set_command_timeout(Cid{format_command}, 1ns));
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(poll(queue).at(0).outcome(), Outcome::timed_out);
}

TEST_F(QueuePairTest, AnAnswerInTimeBeatsTheDeadline) {
    QueuePair queue = make(10ms);
    const std::uint16_t cid = submit_one(queue, 1);
    queue.ring();
    poll(queue); // starts the clock
    std::this_thread::sleep_for(30ms);
    complete(cid);
    const auto ended = poll(queue);
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].outcome(), Outcome::completed);
}

TEST_F(QueuePairTest, AResetEndsEveryCommandWithAnErrorOfItsOwn) {
    QueuePair queue = make(20ms);
    submit_one(queue, 1);
    queue.ring();
    std::this_thread::sleep_for(40ms);
    std::vector<Completion> timed_out;
    for (int i = 0; i < 100 && timed_out.empty(); ++i) {
        timed_out = poll(queue);
        std::this_thread::sleep_for(5ms);
    }
    ASSERT_EQ(timed_out.size(), 1U);
    submit_one(queue, 2);
    queue.ring();
    submit_one(queue, 3); // not even rung
    EXPECT_EQ(queue.restart().error().code, EALREADY);
    owner->disable();
    EXPECT_FALSE(queue.alive());
    EXPECT_EQ(queue.restart().error().code, EBUSY);
    std::vector<Completion> ended = poll(queue, 1); // little room: the rest comes with the next call
    ASSERT_EQ(ended.size(), 1U);
    const auto rest = poll(queue, 5);
    ASSERT_EQ(rest.size(), 1U) << "the timed-out one was reported before";
    ended.push_back(rest[0]);
    std::sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.cookie < b.cookie; });
    EXPECT_EQ(ended[0].cookie, 2U);
    EXPECT_EQ(ended[1].cookie, 3U);
    EXPECT_EQ(ended[0].outcome(), Outcome::reset);
    EXPECT_EQ(queue.outstanding(), 0U);
    EXPECT_EQ(queue.read(format, Lba{0}, 1, pointer(), 9).refusal(), Refusal::queue_dead);
    EXPECT_EQ(queue.flush(Nsid{1}, 9).refusal(), Refusal::queue_dead);
    doorbells[0] = 55;
    queue.ring();
    EXPECT_EQ(doorbells[0], 55U) << "no doorbell of a queue that the controller does not know";
    // A stale entry of before the reset must not complete anything afterwards.
    complete(0);
    ASSERT_TRUE(queue.restart());
    EXPECT_TRUE(queue.alive());
    fetched = tail = 0;
    phase = 1U << 16;
    const std::uint16_t cid = submit_one(queue, 10);
    queue.ring();
    EXPECT_EQ(doorbells[0], 1U);
    EXPECT_TRUE(poll(queue).empty());
    complete(cid);
    EXPECT_EQ(poll(queue).at(0).cookie, 10U);
}

TEST_F(QueuePairTest, RefusalsNameTheirReason) {
    QueuePair queue = make();
    const auto read = [&](std::uint64_t offset, std::uint32_t blocks) {
        return queue.read(format, Lba{0}, blocks, pointer(offset), 0).refusal();
    };
    EXPECT_EQ(read(0, 0), Refusal::empty);
    EXPECT_EQ(read(0, (4 << 11) + 1), Refusal::too_long);
    EXPECT_EQ(read(8 << 20, 1), Refusal::not_registered);
    EXPECT_EQ(read((8 << 20) - 512, 2), Refusal::out_of_bounds);
    EXPECT_EQ(read(2, 1), Refusal::misaligned);
    EXPECT_EQ(read(0, 0xffff'ffff), Refusal::too_long) << "blocks times their size are 64-bit";
    const iommu::Extent extent{DmaAddress{0x1000}, 512_B};
    EXPECT_EQ(queue.read(format, Lba{0}, 2, extent, 0).refusal(), Refusal::length_mismatch);
    EXPECT_EQ(queue.read(format, Lba{0}, 0, extent, 0).refusal(), Refusal::empty);
    const std::vector<iommu::Extent> odd{{DmaAddress{0x1000}, 512_B}, {DmaAddress{0x2000}, 512_B}};
    const Submitted refused = queue.transfer(IoOpcode::read, format, Lba{0}, 2, odd, 0);
    EXPECT_EQ(refused.refusal(), Refusal::segment_misaligned);
    EXPECT_NE(refused.error("read", "queue 5").message().find("Segment 0"), std::string::npos);
    EXPECT_EQ(queue.transfer(IoOpcode::read, format, Lba{0}, 1, std::span<const iommu::Extent>{}, 0).refusal(),
              Refusal::empty);
    EXPECT_EQ(queue.write_zeroes(format, Lba{0}, 65537, 0).refusal(), Refusal::too_long);
    EXPECT_EQ(queue.write_zeroes(format, Lba{0}, 0, 0).refusal(), Refusal::empty);
    EXPECT_EQ(queue.submit(Command{}, odd, 0_B, 0).refusal(), Refusal::length_mismatch);
    EXPECT_EQ(queue.outstanding(), 0U) << "a refusal costs no identifier";
    EXPECT_EQ(queue.attach(*registry).has_value(), true);

    QueuePair bare = make(0ns, false);
    EXPECT_EQ(bare.read(format, Lba{0}, 1, pointer(), 0).refusal(), Refusal::no_registry);
    EXPECT_TRUE(bare.read(format, Lba{0}, 1, extent, 0)) << "extents need none";
    EXPECT_EQ(bare.attach(*registry).error().code, EBUSY);
}

TEST_F(QueuePairTest, ItsResourcesGoToTheOwnerAtTheEnd) {
    {
        QueuePair queue = make();
        submit_one(queue, 1);
        QueuePair moved{std::move(queue)};
        submit_one(moved, 2);
        EXPECT_EQ(owner->released, nullptr);
    }
    ASSERT_NE(owner->released, nullptr);
    EXPECT_TRUE(owner->released->reader.attached()) << "with the reader: what commands used stays registered";
}

TEST_F(QueuePairTest, InterruptsAreWaitedForOrRefused) {
    QueuePair polled = make();
    EXPECT_EQ(polled.wait_for_interrupt(os::real_system(), 1ms).error().code, ENOTSUP);
}

} // namespace
} // namespace upcie::nvme
