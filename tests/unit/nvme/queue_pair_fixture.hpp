// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <upcie/nvme/queue_pair.hpp>
#include <upcie/os/system.hpp>

#include "support/scattered_space.hpp"

namespace upcie::nvme {
using namespace std::chrono_literals;
using namespace upcie::literals;

/// What a queue asks of its controller, noted down.
class Owner final : public QueueOwner {
  public:
    void release(Qid, std::uint32_t, std::unique_ptr<QueueResources> resources) noexcept override {
        released = std::move(resources);
    }
    Result<std::uint32_t> recreate(Qid, const QueueResources&, std::uint32_t) override { return generation_.load(); }
    void disable() { generation_.fetch_add(1); }
    std::unique_ptr<QueueResources> released;
};

/// The controller's end of the rings, moved by hand.
struct QueuePairTest : testing::Test {
    static constexpr std::uint32_t entries = 8;
    std::vector<Command> submission{entries};
    std::vector<CompletionEntry> completion{entries};
    std::vector<std::uint64_t> lists = std::vector<std::uint64_t>(entries * 512 * 2);
    volatile std::uint32_t doorbells[2] = {99, 99};
    std::shared_ptr<Owner> owner = std::make_shared<Owner>();
    std::shared_ptr<test::ScatteredSpace> space = std::make_shared<test::ScatteredSpace>();
    std::shared_ptr<memory::Registry> registry = memory::Registry::create(os::real_system(), space).value();
    memory::Registration data = registry->register_memory(pointer(), 8_MiB).value();
    std::uint32_t fetched = 0; ///< submission entries taken
    std::uint32_t tail = 0;
    std::uint32_t phase = 1U << 16;
    BlockFormat format{Nsid{3}, 9};

    static std::byte* pointer(std::uint64_t offset = 0) {
        return reinterpret_cast<std::byte*>(0x7000'0000 + offset); // never touched
    }

    QueuePair make(std::chrono::nanoseconds timeout = 0ns, bool attached = true, SglSupport sgl = SglSupport::none) {
        QueueSetup setup;
        setup.qid = Qid{5};
        setup.layout.submission = submission.data();
        setup.layout.completion = completion.data();
        setup.layout.submission_doorbell = &doorbells[0];
        setup.layout.completion_doorbell = &doorbells[1];
        setup.layout.prp_lists = lists.data();
        setup.layout.prp_list_stride = 8192;
        setup.layout.entries = entries;
        setup.list_pages = 2;
        setup.max_transfer = 4_MiB;
        setup.timeout = timeout;
        setup.sgl = sgl;
        setup.resources = std::make_unique<QueueResources>();
        for (std::uint32_t i = 0; i < 2 * entries; ++i) {
            setup.resources->list_addresses.push_back(0x9000'0000 + std::uint64_t{i} * 4096);
        }
        setup.owner = owner;
        QueuePair queue{std::move(setup)};
        if (attached) {
            EXPECT_TRUE(queue.attach(*registry));
        }
        return queue;
    }

    /// Takes what the doorbell announced.
    std::vector<Command> fetch() {
        std::vector<Command> commands;
        for (; fetched != doorbells[0]; fetched = (fetched + 1) % entries) {
            commands.push_back(submission[fetched]);
        }
        return commands;
    }

    void complete(std::uint16_t cid, std::uint16_t status = 0, std::uint64_t result = 0) {
        CompletionEntry& entry = completion[tail];
        entry.result_low = static_cast<std::uint32_t>(result);
        entry.result_high = static_cast<std::uint32_t>(result >> 32);
        entry.cid_phase_status = cid | phase | (std::uint32_t{status} << 17);
        if (++tail == entries) {
            tail = 0;
            phase ^= 1U << 16;
        }
    }

    static std::vector<Completion> poll(QueuePair& queue, std::size_t limit = 16) {
        std::vector<Completion> out(limit);
        out.resize(queue.poll(out));
        return out;
    }

    std::uint16_t submit_one(QueuePair& queue, std::uint64_t cookie) {
        const Submitted submitted = queue.read(format, Lba{0}, 1, pointer(), cookie);
        EXPECT_TRUE(submitted) << submitted.error("read", "queue").message();
        return submitted.cid().value();
    }
};

} // namespace upcie::nvme
