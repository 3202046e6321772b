// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include "device.hpp"

namespace upcie::conformance {
namespace {

using Queues = Conformance;

TEST_F(Queues, DepthsAreTakenFromTwoToTheLimit) {
    const std::uint32_t most = controller->capabilities().max_queue_entries();
    for (const std::uint32_t depth : {0U, 1U, most + 1}) {
        const auto refused = controller->create_queue_pair(of_depth(depth));
        ASSERT_FALSE(refused) << depth;
        EXPECT_TRUE(refused.error().is(EINVAL)) << refused.error().message();
    }
    const Memory memory = make_memory(block_size());
    // Rings are one piece: where nothing translates, as much as the memory has in one piece.
    const std::uint32_t large =
        controller->address_space()->translating() ? std::min(most, 4096U) : std::min(most, 64U);
    for (const std::uint32_t depth : {2U, 3U, large}) {
        auto queue = make_queue(depth);
        EXPECT_EQ(queue.capacity(), depth - 1);
        // Past the end of the ring more than once.
        for (std::uint32_t i = 0; i < 2 * std::min(depth, 40U) + 1; ++i) {
            ASSERT_EQ(code(finish_one(queue, queue.read(format, Lba{i}, 1, memory.data(), i))), 0) << depth << ' ' << i;
        }
    }
}

TEST_F(Queues, FullQueueRefusesAndGoesOn) {
    auto queue = make_queue(8);
    const Memory memory = make_memory(8 * block_size());
    for (int round = 0; round < 3; ++round) {
        std::set<std::uint64_t> cookies;
        for (std::uint32_t i = 0; i < queue.capacity(); ++i) {
            ASSERT_TRUE(queue.read(format, Lba{i}, 1, memory.data() + i * block_size(), 100 + i));
            cookies.insert(100 + i);
        }
        const auto refused = queue.read(format, Lba{0}, 1, memory.data(), 1);
        EXPECT_EQ(refused.refusal(), Refusal::queue_full);
        for (const nvme::Completion& completion : finish(queue, queue.capacity())) {
            EXPECT_TRUE(completion.ok());
            EXPECT_EQ(cookies.erase(completion.cookie), 1U) << completion.cookie;
        }
        EXPECT_EQ(queue.outstanding(), 0U);
    }
}

TEST_F(Queues, OneDoorbellForABatch) {
    auto queue = make_queue(32);
    const Memory memory = make_memory(32 * block_size());
    const sim::Controller* const simulated = Device::instance().simulated();
    const std::uint64_t before = simulated != nullptr ? simulated->counters().doorbells : 0;
    for (std::uint32_t i = 0; i < queue.capacity(); ++i) {
        ASSERT_TRUE(queue.read(format, Lba{i}, 1, memory.data() + i * block_size(), i));
    }
    for (const nvme::Completion& completion : finish(queue, queue.capacity())) {
        EXPECT_TRUE(completion.ok());
    }
    if (simulated != nullptr) {
        EXPECT_EQ(simulated->counters().doorbells, before + 1);
    }
}

// Each queue has a thread and blocks of its own.
TEST_F(Queues, FourQueuesWorkAtOnce) {
    const std::uint32_t count = std::min(4U, controller->queue_count());
    const std::size_t size = block_size();
    struct Lane {
        nvme::QueuePair queue;
        Memory memory;
        Lba first;
        std::string fault;
    };
    std::vector<Lane> lanes;
    std::set<std::uint16_t> qids;
    for (std::uint32_t i = 0; i < count; ++i) {
        lanes.push_back({make_queue(16), make_memory(32 * size), scratch(i * 64, 64), {}});
        qids.insert(lanes.back().queue.qid().value());
        ASSERT_TRUE(lanes.back().memory.registration);
    }
    EXPECT_EQ(qids.size(), count);
    std::vector<std::thread> threads;
    for (Lane& lane : lanes) {
        threads.emplace_back([this, &lane, size] {
            for (std::uint32_t round = 0; round < 20 && lane.fault.empty(); ++round) {
                const Lba lba{lane.first.value() + round};
                fill_stamp(lane.memory.bytes(0, size), round + 1, format.nsid, lba.value());
                std::memset(lane.memory.data() + size, 0xee, size);
                if (code(finish_one(lane.queue, lane.queue.write(format, lba, 1, lane.memory.data(), 1))) != 0 ||
                    code(finish_one(lane.queue, lane.queue.read(format, lba, 1, lane.memory.data() + size, 2))) != 0) {
                    lane.fault = "a command failed";
                    return;
                }
                lane.fault = check_stamp(lane.memory.bytes(size, size), round + 1, format.nsid, lba.value());
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const Lane& lane : lanes) {
        EXPECT_EQ(lane.fault, "") << "queue " << lane.queue.qid().value();
    }
}

TEST_F(Queues, IdentifiersAreUsedAgain) {
    const std::uint32_t count = controller->queue_count();
    for (std::uint32_t i = 0; i < count + 3; ++i) {
        auto queue = make_queue(4);
        EXPECT_EQ(code(finish_one(queue, queue.flush(format.nsid, 1))), 0);
    }
    EXPECT_EQ(controller->kept_memory(), ByteCount{0});
}

// Every command ends once: completed, or by the reset. Then the same queue works on.
TEST_F(Queues, ResetWithCommandsInFlight) {
    auto queue = make_queue(64);
    const std::size_t bytes = std::min<std::size_t>(max_bytes(queue), 65536);
    const auto blocks = static_cast<std::uint32_t>(bytes / block_size());
    const Memory memory = make_memory(bytes * 4);
    for (int round = 0; round < 5; ++round) {
        std::set<std::uint64_t> cookies;
        for (std::uint32_t i = 0; i < queue.capacity(); ++i) {
            ASSERT_TRUE(queue.read(format, Lba{0}, blocks, memory.data() + (i % 4) * bytes, i));
            cookies.insert(i);
        }
        queue.ring();
        const auto reset = controller->reset();
        ASSERT_TRUE(reset) << reset.error().message();
        EXPECT_FALSE(queue.alive());
        for (const nvme::Completion& completion : finish(queue, queue.capacity())) {
            EXPECT_EQ(cookies.erase(completion.cookie), 1U) << completion.cookie;
            EXPECT_TRUE(completion.ok() || completion.outcome() == nvme::Outcome::reset);
        }
        EXPECT_EQ(queue.read(format, Lba{0}, 1, memory.data(), 1).refusal(), Refusal::queue_dead);
        const auto restarted = queue.restart();
        ASSERT_TRUE(restarted) << restarted.error().message();
        EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{0}, 1, memory.data(), 1))), 0);
    }
}

TEST_F(Queues, InterruptsWake) {
    const auto vectors = controller->function()->interrupt_count();
    ASSERT_TRUE(vectors) << vectors.error().message();
    if (*vectors < 2) {
        GTEST_SKIP() << "this path has " << *vectors << " interrupt vectors; the test takes two";
    }
    nvme::ControllerOptions options;
    options.interrupt_vectors = 2;
    open_controller(options);
    ASSERT_TRUE(controller);
    ASSERT_EQ(controller->interrupt_vectors(), 2U);
    {
        auto queue = make_queue(8, 1);
        const Memory memory = make_memory(block_size());
        for (int i = 0; i < 5; ++i) {
            ASSERT_TRUE(queue.read(format, Lba{0}, 1, memory.data(), 7));
            queue.ring();
            controller->function()->pause(); // a simulator without thread works only when it is let
            const auto fired = queue.wait_for_interrupt(system, std::chrono::seconds{10});
            ASSERT_TRUE(fired) << fired.error().message();
            EXPECT_TRUE(*fired);
            EXPECT_EQ(code(finish(queue, 1).at(0)), 0);
        }
        const auto quiet = queue.wait_for_interrupt(system, std::chrono::milliseconds{20});
        ASSERT_TRUE(quiet) << quiet.error().message();
        EXPECT_FALSE(*quiet);
    }
    auto polled = make_queue(8);
    EXPECT_FALSE(polled.wait_for_interrupt(system, std::chrono::milliseconds{1}));
}

} // namespace
} // namespace upcie::conformance
