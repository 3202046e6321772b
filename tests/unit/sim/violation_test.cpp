// SPDX-License-Identifier: BSD-3-Clause
#include "sim/raw_driver.hpp"

namespace upcie::sim::test {
namespace {

/// A driver that breaks one rule a test, and is told just that one.
class Violations : public ::testing::Test {
  protected:
    explicit Violations(const char* spec = "sim:size=16M,thread=off") : driver{spec} {
        EXPECT_TRUE(driver.enable());
        rings = driver.queue(1);
        EXPECT_EQ(driver.violations(), "");
    }
    [[nodiscard]] AddressSpace& space() const { return *driver.controller->address_space(); }

    RawDriver driver;
    std::unique_ptr<Rings> rings;
};

TEST_F(Violations, UnmappedDataIsNotTouched) {
    Memory data{space(), 4096};
    const std::uint64_t address = data.address();
    std::memset(data.as(), 0xa5, 4096);
    ASSERT_TRUE(data.mapping().unmap());
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 8, address)).code(), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
    for (std::size_t i = 0; i < 4096; ++i) {
        ASSERT_EQ(data.as()[i], 0xa5);
    }
}

TEST_F(Violations, DataThatRunsOutOfItsMappingIsNotTouched) {
    Memory data{space(), 4096};
    std::memset(data.as(), 0xa5, 4096);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 8, data.address(512), data.address() + 4096)).code(), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
    EXPECT_EQ(*data.as(512), 0xa5);
}

TEST_F(Violations, ReadOnlyMemoryIsNotWritten) {
    Memory data{space(), 4096, iommu::Access::read};
    std::memset(data.as(), 0xa5, 4096);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(1, 0, 8, data.address())).code(), 0U);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 8, data.address())).code(), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
    EXPECT_EQ(*data.as(), 0xa5);
}

TEST_F(Violations, WriteOnlyMemoryIsNotRead) {
    Memory data{space(), 4096, iommu::Access::write};
    EXPECT_EQ(driver.run(*rings, RawDriver::io(1, 0, 8, data.address())).code(), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
}

TEST_F(Violations, UnmappedPrpList) {
    Memory data{space(), 16384};
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 32, data.address(), 0xdead000)).code(), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
}

TEST_F(Violations, UnmappedRingIsFatal) {
    ASSERT_TRUE(rings->sq.mapping().unmap());
    driver.doorbell(1, false, 1);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
    EXPECT_EQ(driver.read(0x1c) & 2, 2U);
}

TEST_F(Violations, TailBeyondTheQueue) {
    driver.doorbell(1, false, 16);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_value));
}

TEST_F(Violations, TailOverUnfetchedCommands) {
    // Fifteen may be outstanding; with their completions lost, the head that the host knows of never moves.
    driver.controller->set_faults(*FaultScript::parse("lost@io"));
    nvme::Command flush;
    flush.nsid = 1;
    for (std::uint16_t i = 0; i < 15; ++i) {
        flush.cid = i;
        driver.place(*rings, flush);
    }
    driver.ring(*rings);
    driver.controller->step();
    EXPECT_EQ(driver.violations(), "");
    driver.doorbell(1, false, 0);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_value));
}

TEST_F(Violations, HeadBeyondTheQueue) {
    driver.doorbell(1, true, 100);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_value));
}

TEST_F(Violations, HeadPastThePostedEntries) {
    nvme::Command flush;
    flush.nsid = 1;
    driver.submit(*rings, flush);
    driver.controller->step();
    driver.doorbell(1, true, 2);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_value));
}

TEST_F(Violations, DoorbellsOfQueuesThatDoNotExist) {
    driver.doorbell(3, false, 1);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
    driver.doorbell(3, true, 1);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
    driver.doorbell(9, false, 1); // behind the last
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
}

TEST_F(Violations, QueueUsedAfterItsDeletion) {
    nvme::Command erase;
    erase.opcode = 0x00;
    erase.cdw10 = 1;
    EXPECT_EQ(driver.admin_run(erase).code(), 0U);
    driver.doorbell(1, false, 1);
    driver.controller->step();
    const auto found = driver.controller->violations();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].text.find("deleted"), std::string::npos) << found[0].text;
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
}

TEST_F(Violations, DoorbellWhileDisabled) {
    ASSERT_TRUE(driver.disable());
    driver.doorbell(0, false, 1);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
}

TEST_F(Violations, InvalidDoorbellRaisesAnEvent) {
    nvme::Command event;
    event.opcode = 0x0c;
    event.cid = 77;
    driver.submit(*driver.admin, event);
    EXPECT_FALSE(driver.next(*driver.admin));
    driver.doorbell(1, false, 16);
    const auto told = driver.next(*driver.admin);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->cid, 77);
    EXPECT_EQ(told->dword0, 0x010100U); // error log page, invalid value, type error
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_value));
}

TEST_F(Violations, ReadOnlyRegisters) {
    for (const std::uint64_t offset : {0x00U, 0x04U, 0x08U, 0x1cU, 0x20U}) {
        const std::uint32_t before = driver.read(offset);
        driver.write<std::uint32_t>(offset, 0x12345678);
        driver.controller->step();
        EXPECT_TRUE(driver.violated(ViolationKind::register_write)) << offset;
        EXPECT_EQ(driver.read(offset), before);
    }
}

TEST_F(Violations, RegistersThatMayNotChangeWhileEnabled) {
    for (const std::uint64_t offset : {0x24U, 0x28U, 0x34U}) {
        driver.write<std::uint32_t>(offset, 0x7000);
        driver.controller->step();
        EXPECT_TRUE(driver.violated(ViolationKind::register_write)) << offset;
    }
    driver.write<std::uint32_t>(0x14, 0x004600a1); // CC.MPS
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::register_write));
}

TEST_F(Violations, EnabledWithAPageSizeThatIsNotOffered) {
    ASSERT_TRUE(driver.disable());
    EXPECT_FALSE(driver.enable(32, 0x00460001 | 5U << 7));
    EXPECT_TRUE(driver.violated(ViolationKind::controller_setup));
    EXPECT_EQ(driver.read(0x1c) & 3, 2U);
}

TEST_F(Violations, EnabledWithoutBusMaster) {
    ASSERT_TRUE(driver.disable());
    ASSERT_TRUE(driver.function->set_bus_master(false));
    driver.write<std::uint32_t>(0x14, 0x00460001);
    driver.controller->step();
    const auto found = driver.controller->violations();
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].kind, ViolationKind::dma_while_not_master);
}

TEST_F(Violations, WorkWithoutBusMaster) {
    ASSERT_TRUE(driver.function->set_bus_master(false));
    nvme::Command flush;
    flush.nsid = 1;
    driver.submit(*rings, flush);
    EXPECT_FALSE(driver.next(*rings));
    EXPECT_TRUE(driver.violated(ViolationKind::dma_while_not_master));
    ASSERT_TRUE(driver.function->set_bus_master(true));
    EXPECT_TRUE(driver.next(*rings));
}

TEST_F(Violations, AdminQueueInsideAPage) {
    ASSERT_TRUE(driver.disable());
    driver.write<std::uint64_t>(0x28, driver.admin->sq.address() + 64);
    driver.write<std::uint32_t>(0x14, 0x00460001);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::queue_memory));
    EXPECT_EQ(driver.read(0x1c) & 3, 2U);
}

TEST_F(Violations, CompletionRingNotZeroed) {
    Rings dirty{space(), 2, 16};
    dirty.cq.as<std::uint32_t>()[7 * 4 + 3] = 0x10000;
    EXPECT_EQ(driver.create_cq(dirty).code(), 0U);
    EXPECT_TRUE(driver.violated(ViolationKind::queue_not_zeroed));
}

TEST_F(Violations, RingsThatAreNotOnePieceOrOverlap) {
    Rings second{space(), 2, 16};
    EXPECT_EQ(driver.create_cq(second, 0).code(), 0x002U); // PC 0
    EXPECT_TRUE(driver.violated(ViolationKind::queue_memory));

    nvme::Command command;
    command.opcode = 0x05;
    command.prp1 = second.cq.address() + 8;
    command.cdw10 = 2 | 15U << 16;
    command.cdw11 = 1;
    EXPECT_EQ(driver.admin_run(command).code(), 0x013U);
    EXPECT_TRUE(driver.violated(ViolationKind::queue_memory));

    command.prp1 = second.cq.address();
    command.cdw10 = 2 | 256U << 16; // 257 entries run out of the page
    EXPECT_EQ(driver.admin_run(command).code(), 0x002U);
    EXPECT_TRUE(driver.violated(ViolationKind::queue_memory));

    command.prp1 = rings->cq.address();
    command.cdw10 = 2 | 15U << 16;
    EXPECT_EQ(driver.admin_run(command).code(), 0x002U);
    EXPECT_TRUE(driver.violated(ViolationKind::queue_memory));
}

TEST_F(Violations, CommandIdentifierInUse) {
    driver.controller->set_faults(*FaultScript::parse("lost@io&once"));
    nvme::Command flush;
    flush.nsid = 1;
    flush.cid = 9;
    driver.submit(*rings, flush);
    EXPECT_FALSE(driver.next(*rings));
    driver.submit(*rings, flush);
    const auto entry = driver.next(*rings);
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->code(), 0x003U);
    EXPECT_TRUE(driver.violated(ViolationKind::cid_in_use));
}

TEST_F(Violations, ReservedFields) {
    Memory data{space(), 4096};
    const auto with = [&](auto&& change, unsigned status) {
        nvme::Command command = RawDriver::io(2, 0, 1, data.address());
        change(command);
        EXPECT_EQ(driver.run(*rings, command).code(), status);
        EXPECT_TRUE(driver.violated(ViolationKind::reserved_field));
    };
    with([](nvme::Command& command) { command.flags = 1; }, 0x002);
    with([](nvme::Command& command) { command.flags = 0x40; }, 0x002);
    with([](nvme::Command& command) { command.flags = 0x04; }, 0);
    with([](nvme::Command& command) { command.cdw2 = 1; }, 0);
    with([](nvme::Command& command) { command.cdw3 = 1; }, 0);
    with([&](nvme::Command& command) { command.mptr = data.address(); }, 0);
    nvme::Command flush;
    flush.nsid = 1;
    flush.prp1 = data.address();
    EXPECT_EQ(driver.run(*rings, flush).code(), 0U);
    EXPECT_TRUE(driver.violated(ViolationKind::reserved_field));
}

TEST_F(Violations, MisalignedPrps) {
    Memory data{space(), 64 * 1024};
    Memory lists{space(), 8192};
    const auto refused = [&](std::uint32_t blocks, std::uint64_t prp1, std::uint64_t prp2) {
        EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, blocks, prp1, prp2)).code(), 0x013U);
        EXPECT_TRUE(driver.violated(ViolationKind::prp_misaligned));
    };
    refused(1, data.address(2), 0);                        // no dword
    refused(16, data.address(), data.address(4096 + 512)); // second page with an offset
    refused(32, data.address(), lists.address(4));         // list not at a qword
    for (std::size_t i = 0; i < 8; ++i) {
        lists.as<std::uint64_t>()[i] = data.address(4096 * (i + 1)) + (i == 2 ? 512 : 0);
    }
    refused(64, data.address(), lists.address()); // entry with an offset
    // The list begins at the last entry of a page, so that it is a link; that must lead to a page's start.
    lists.as<std::uint64_t>()[511] = lists.address(4096 + 8);
    refused(64, data.address(), lists.address(511 * 8));
}

TEST_F(Violations, SecondPrpEntryThatIsNotNeeded) {
    Memory data{space(), 8192};
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 8, data.address(), data.address(4096))).code(), 0U);
    EXPECT_TRUE(driver.violated(ViolationKind::prp_unused));
}

TEST_F(Violations, CommandAfterShutdown) {
    driver.write<std::uint32_t>(0x14, driver.read(0x14) | 1U << 14);
    driver.controller->step();
    nvme::Command flush;
    flush.nsid = 1;
    driver.submit(*rings, flush);
    EXPECT_FALSE(driver.next(*rings));
    EXPECT_TRUE(driver.violated(ViolationKind::after_shutdown));
}

// Both are seen in the same look at the registers; the doorbell was first.
TEST_F(Violations, CommandJustBeforeShutdownIsNone) {
    nvme::Command flush;
    flush.nsid = 1;
    driver.submit(*rings, flush);
    driver.write<std::uint32_t>(0x14, driver.read(0x14) | 1U << 14);
    EXPECT_TRUE(driver.next(*rings));
    EXPECT_EQ((driver.read(0x1c) >> 2) & 3, 2U);
    EXPECT_EQ(driver.violations(), "");
}

TEST_F(Violations, PinInterruptMaskWithMsix) {
    const int none = -1;
    ASSERT_TRUE(driver.function->enable_interrupts({&none, 1}));
    driver.write<std::uint32_t>(0x0c, 1);
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::register_write));
}

class WideStride : public Violations {
  protected:
    WideStride() : Violations{"sim:size=16M,thread=off,dstrd=2"} {}
};

TEST_F(WideStride, DoorbellsAtTheWrongStride) {
    driver.write<std::uint32_t>(0x1004, 1); // where stride 4 would have the admin queue's head
    driver.controller->step();
    EXPECT_TRUE(driver.violated(ViolationKind::doorbell_without_queue));
}

} // namespace
} // namespace upcie::sim::test
