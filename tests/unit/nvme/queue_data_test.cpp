// SPDX-License-Identifier: BSD-3-Clause
// The data of commands: their list pages, memory in pieces, and how long it stays mapped.
#include "nvme/queue_pair_fixture.hpp"

#include <vector>

namespace upcie::nvme {
namespace {

using namespace std::chrono_literals;
using namespace upcie::literals;

using QueueData = QueuePairTest;

TEST_F(QueueData, EveryCommandHasListPagesOfItsOwn) {
    QueuePair queue = make();
    for (std::uint64_t i = 0; i < entries - 1; ++i) {
        ASSERT_TRUE(queue.read(format, Lba{0}, (4 << 11) - 8, pointer(i * 4096), i)) << "1023 pages: two list pages";
    }
    queue.ring();
    std::vector<std::uint64_t> used;
    for (const Command& command : fetch()) {
        const auto index = (command.prp2 - 0x9000'0000) / 4096;
        EXPECT_EQ(index % 2, 0U);
        const std::uint64_t* const list = lists.data() + index * 512;
        EXPECT_EQ(list[0], command.prp1 / 4096 * 4096 + 4096);
        EXPECT_EQ(list[511], 0x9000'0000 + (index + 1) * 4096) << "the link to the second page";
        EXPECT_EQ(list[512], command.prp1 + 512 * 4096);
        used.push_back(index);
    }
    std::sort(used.begin(), used.end());
    EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end());
}

TEST_F(QueueData, ScatteredMemoryIsSplitWhereItParts) {
    space = std::make_shared<test::ScatteredSpace>(2);
    registry = memory::Registry::create(os::real_system(), space).value();
    const memory::Registration scattered = registry->register_memory(pointer(), 64_KiB).value();
    QueuePair queue = make();
    ASSERT_TRUE(queue.read(format, Lba{0}, 40, pointer(0x800), 0)); // 20 KiB from inside a page
    const Command& entry = submission[0];
    EXPECT_EQ(entry.prp1, 0x800U);
    const std::uint64_t* const list = lists.data() + (entry.prp2 - 0x9000'0000) / 4096 * 512;
    EXPECT_EQ(list[0], 0x1000U);
    EXPECT_EQ(list[1], 0x3000U);
    EXPECT_EQ(list[2], 0x4000U);
    EXPECT_EQ(list[3], 0x6000U);
    EXPECT_EQ(list[4], 0x7000U);
}

TEST_F(QueueData, MemoryGoesOnlyWhenWhatWasSubmittedBeforeHasEnded) {
    QueuePair queue = make(20ms);
    memory::Registration doomed = registry->register_memory(pointer(16 << 20), 1_MiB).value();
    const Submitted submitted = queue.write(format, Lba{0}, 8, pointer(16 << 20), 1);
    ASSERT_TRUE(submitted);
    queue.ring();
    fetch();
    const std::size_t before = space->mapped();
    doomed.unregister();
    poll(queue);
    registry->reclaim();
    EXPECT_EQ(space->mapped(), before) << "in flight";
    // Later commands do not hold it up, and a timed-out one does: the controller may still use it.
    std::this_thread::sleep_for(50ms);
    while (poll(queue).empty()) {
    }
    registry->reclaim();
    EXPECT_EQ(space->mapped(), before) << "timed out is not done";
    queue.set_timeout(0ns);
    submit_one(queue, 2);
    queue.ring();
    complete(submitted.cid().value());
    poll(queue);
    registry->reclaim();
    EXPECT_EQ(space->mapped(), before - 1) << "answered, with a younger command still in flight";
}

TEST_F(QueueData, AResetLetsMemoryGo) {
    QueuePair queue = make();
    memory::Registration doomed = registry->register_memory(pointer(16 << 20), 1_MiB).value();
    ASSERT_TRUE(queue.write(format, Lba{0}, 8, pointer(16 << 20), 1));
    queue.ring();
    doomed.unregister();
    poll(queue);
    const std::size_t before = space->mapped();
    owner->disable();
    poll(queue);
    registry->reclaim();
    EXPECT_EQ(space->mapped(), before - 1);
}

} // namespace
} // namespace upcie::nvme
