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

TEST_F(QueueData, AnSglDescribesWhatPrpsCannot) {
    QueuePair queue = make(0ns, true, SglSupport::bytes);
    const auto descriptor = [&](const Command& entry) {
        SglDescriptor one;
        std::memcpy(static_cast<void*>(&one), &entry.prp1, sizeof one);
        return one;
    };
    // An address that is no multiple of 4, by pointer and by extent.
    const std::uint64_t base = queue.read(format, Lba{0}, 1, pointer(), 0) ? submission[0].prp1 : 0;
    EXPECT_EQ(submission[0].flags, 0) << "PRPs where they will do";
    ASSERT_TRUE(queue.read(format, Lba{9}, 2, pointer(4097), 1));
    EXPECT_EQ(submission[1].flags, psdt_sgl);
    EXPECT_EQ(descriptor(submission[1]).address, base + 4097);
    EXPECT_EQ(descriptor(submission[1]).length, 1024U);
    EXPECT_EQ(descriptor(submission[1]).kind, static_cast<std::uint8_t>(SglKind::data_block));
    EXPECT_EQ(submission[1].cdw10, 9U);
    const iommu::Extent odd{DmaAddress{base + 3}, 512_B};
    ASSERT_TRUE(queue.write(format, Lba{0}, 1, odd, 2));
    EXPECT_EQ(submission[2].flags, psdt_sgl);
    EXPECT_EQ(descriptor(submission[2]).address, base + 3);
    // Pieces that do not meet at pages; a command of the caller's own keeps its other flags.
    const std::vector<iommu::Extent> pieces{{DmaAddress{0x1000}, 100_B}, {DmaAddress{0x2003}, 412_B}};
    ASSERT_TRUE(queue.transfer(IoOpcode::read, format, Lba{0}, 1, pieces, 3));
    EXPECT_EQ(submission[3].flags, psdt_sgl);
    const SglDescriptor link = descriptor(submission[3]);
    EXPECT_EQ(link.kind, static_cast<std::uint8_t>(SglKind::last_segment));
    EXPECT_EQ(link.length, 32U);
    const auto index = (link.address - 0x9000'0000) / 4096;
    EXPECT_EQ(index, 3U * 2) << "in the list pages of its own slot";
    SglDescriptor listed[2];
    std::memcpy(static_cast<void*>(listed), lists.data() + index * 512, sizeof listed);
    EXPECT_EQ(listed[0].address, 0x1000U);
    EXPECT_EQ(listed[0].length, 100U);
    EXPECT_EQ(listed[1].address, 0x2003U);
    EXPECT_EQ(listed[1].length, 412U);
    Command own;
    own.opcode = 0x81;
    own.flags = 1;
    ASSERT_TRUE(queue.submit(own, pieces, 512_B, 4));
    EXPECT_EQ(submission[4].flags, psdt_sgl | 1);
    // The entry's next tenant has PRPs again.
    queue.ring();
    for (const Command& command : fetch()) {
        complete(command.cid);
    }
    EXPECT_EQ(poll(queue).size(), 5U);
    for (std::uint64_t i = 0; i < entries - 1; ++i) {
        ASSERT_TRUE(queue.read(format, Lba{0}, 1, pointer(i * 4096), i));
    }
    for (const Command& entry : submission) {
        EXPECT_EQ(entry.flags & psdt_sgl, entry.cid == submission[4].cid && entry.opcode == 0x81 ? psdt_sgl : 0);
    }
}

TEST_F(QueueData, WhatAnSglCannotDescribeIsRefused) {
    QueuePair queue = make(0ns, true, SglSupport::dwords);
    EXPECT_EQ(queue.read(format, Lba{0}, 1, pointer(2), 0).refusal(), Refusal::misaligned);
    const std::vector<iommu::Extent> pieces{{DmaAddress{0x1000}, 100_B}, {DmaAddress{0x2003}, 412_B}};
    EXPECT_EQ(queue.transfer(IoOpcode::read, format, Lba{0}, 1, pieces, 0).refusal(), Refusal::segment_misaligned);
    std::vector<iommu::Extent> many;
    for (std::uint64_t i = 0; i < 1024; ++i) {
        many.push_back({DmaAddress{0x10000 + i * 1024}, 512_B});
    }
    const Submitted refused = queue.transfer(IoOpcode::read, format, Lba{0}, 1024, many, 0);
    EXPECT_EQ(refused.refusal(), Refusal::too_many_segments);
    EXPECT_NE(refused.error("read", "queue 5").message().find("segment 511"), std::string::npos)
        << refused.error("read", "queue 5").message();
    many.resize(511);
    EXPECT_TRUE(queue.transfer(IoOpcode::read, format, Lba{0}, 511, many, 0));
    EXPECT_EQ(queue.outstanding(), 1U);
    EXPECT_EQ(queue.read(format, Lba{0}, 1, pointer(8 << 20), 0).refusal(), Refusal::not_registered);
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
