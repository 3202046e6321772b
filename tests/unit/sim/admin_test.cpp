// SPDX-License-Identifier: BSD-3-Clause
#include "sim/raw_driver.hpp"

namespace upcie::sim::test {
namespace {

class Admin : public ::testing::Test {
  protected:
    Admin() : driver{"sim:size=16M,ns=3,mqes=63,queues=3,mdts=6,serial=ABC,thread=off"} {
        EXPECT_TRUE(driver.enable());
        page = std::make_unique<Memory>(space(), 8192);
    }
    ~Admin() override { EXPECT_EQ(driver.violations(), ""); }
    [[nodiscard]] AddressSpace& space() const { return *driver.controller->address_space(); }

    Entry identify(std::uint32_t cns, std::uint32_t nsid) {
        std::memset(page->as(), 0xee, 4096);
        nvme::Command command;
        command.opcode = 0x06;
        command.nsid = nsid;
        command.prp1 = page->address();
        command.cdw10 = cns;
        return driver.admin_run(command);
    }
    Entry features(std::uint8_t opcode, std::uint32_t cdw10, std::uint32_t cdw11 = 0) {
        nvme::Command command;
        command.opcode = opcode;
        command.cdw10 = cdw10;
        command.cdw11 = cdw11;
        return driver.admin_run(command);
    }
    Entry log(std::uint32_t identifier, std::uint32_t bytes, std::uint32_t offset = 0) {
        nvme::Command command;
        command.opcode = 0x02;
        command.nsid = ~0U;
        command.prp1 = page->address();
        command.prp2 = bytes > 4096 ? page->address(4096) : 0;
        command.cdw10 = identifier | (bytes / 4 - 1) << 16;
        command.cdw12 = offset;
        return driver.admin_run(command);
    }
    Entry erase(std::uint8_t opcode, std::uint32_t qid) {
        nvme::Command command;
        command.opcode = opcode;
        command.cdw10 = qid;
        return driver.admin_run(command);
    }

    RawDriver driver;
    std::unique_ptr<Memory> page;
};

TEST_F(Admin, IdentifiesControllerAndNamespaces) {
    ASSERT_EQ(identify(1, 0).code(), 0U);
    EXPECT_EQ(std::string(page->as<char>(4), 20), "ABC                 ");
    EXPECT_EQ(page->as()[77], 6);
    EXPECT_EQ(page->as()[512], 0x66);
    EXPECT_EQ(*page->as<std::uint32_t>(516), 3U);
    ASSERT_EQ(identify(0, 2).code(), 0U);
    EXPECT_EQ(*page->as<std::uint64_t>(0), 32768U);
    EXPECT_EQ(page->as()[128 + 2], 9);
    EXPECT_EQ(page->as()[132 + 2], 12);
    ASSERT_EQ(identify(2, 1).code(), 0U);
    EXPECT_EQ(page->as<std::uint32_t>()[0], 2U);
    EXPECT_EQ(page->as<std::uint32_t>()[1], 3U);
    EXPECT_EQ(page->as<std::uint32_t>()[2], 0U);
    ASSERT_EQ(identify(3, 1).code(), 0U);
    EXPECT_EQ(page->as()[0], 1);
    EXPECT_EQ(page->as()[12], 3);
    EXPECT_EQ(identify(0, 4).code(), 0x00bU);
    EXPECT_EQ(identify(0, 0).code(), 0x00bU);
    EXPECT_EQ(identify(3, 0).code(), 0x00bU);
    EXPECT_EQ(identify(0x7f, 1).code(), 0x002U);
}

TEST_F(Admin, NegotiatesQueues) {
    EXPECT_EQ(features(0x0a, 7).dword0, 0x00020002U);
    EXPECT_EQ(features(0x09, 7, 0x00000000).dword0, 0U);
    Rings second{space(), 2, 8};
    EXPECT_EQ(driver.create_cq(second).code(), 0x101U); // beyond what was granted
    EXPECT_EQ(features(0x09, 7, 0x00ff00ff).dword0, 0x00020002U);
    EXPECT_EQ(features(0x09, 7, 0xffff0000).code(), 0x002U);
    EXPECT_EQ(driver.create_cq(second).code(), 0U);
    EXPECT_EQ(features(0x09, 7, 0).code(), 0x00cU); // too late
    EXPECT_EQ(erase(0x04, 2).code(), 0U);
}

TEST_F(Admin, RefusesWrongQueues) {
    const Rings zero{space(), 0, 8};
    EXPECT_EQ(driver.create_cq(zero).code(), 0x101U);
    const Rings fourth{space(), 4, 8};
    EXPECT_EQ(driver.create_cq(fourth).code(), 0x101U);
    Rings large{space(), 1, 65};
    EXPECT_EQ(driver.create_cq(large).code(), 0x102U);
    Rings single{space(), 1, 1};
    EXPECT_EQ(driver.create_cq(single).code(), 0x102U);
    Rings good{space(), 1, 64};
    EXPECT_EQ(driver.create_cq(good, 1 | 2 | 4U << 16).code(), 0x108U); // vectors 0 to 3
    EXPECT_EQ(driver.create_sq(good).code(), 0x100U);                   // no such completion queue
    EXPECT_EQ(driver.create_cq(good, 1 | 2 | 3U << 16).code(), 0U);
    EXPECT_EQ(driver.create_cq(good).code(), 0x101U); // there is one
    EXPECT_EQ(driver.create_sq(good, 9).code(), 0x101U);
    EXPECT_EQ(driver.create_sq(good).code(), 0U);
    EXPECT_EQ(driver.create_sq(good).code(), 0x101U);
    EXPECT_EQ(erase(0x04, 1).code(), 0x10cU); // in use
    EXPECT_EQ(erase(0x00, 2).code(), 0x101U);
    EXPECT_EQ(erase(0x04, 0).code(), 0x101U);
    EXPECT_EQ(erase(0x00, 1).code(), 0U);
    EXPECT_EQ(erase(0x04, 1).code(), 0U);
    EXPECT_EQ(erase(0x04, 1).code(), 0x101U);
    const auto again = driver.queue(1); // an identifier is free again
    Memory data{space(), 4096};
    EXPECT_EQ(driver.run(*again, RawDriver::io(2, 0, 1, data.address())).code(), 0U);
}

TEST_F(Admin, Features) {
    EXPECT_EQ(features(0x0a, 6).dword0, 1U);
    EXPECT_EQ(features(0x09, 6, 0).code(), 0U);
    EXPECT_EQ(features(0x0a, 6).dword0, 0U);
    EXPECT_EQ(features(0x0a, 6 | 1U << 8).dword0, 1U); // default
    EXPECT_EQ(features(0x0a, 6 | 3U << 8).dword0, 4U); // capabilities
    EXPECT_EQ(features(0x0a, 6 | 4U << 8).code(), 0x002U);
    EXPECT_EQ(features(0x09, 6 | 1U << 31, 0).code(), 0x10dU);
    EXPECT_EQ(features(0x0a, 9, 2).dword0, 2U);
    EXPECT_EQ(features(0x09, 9, 2 | 1U << 16).code(), 0U);
    EXPECT_EQ(features(0x0a, 9, 2).dword0, 2U | 1U << 16);
    EXPECT_EQ(features(0x0a, 9, 77).code(), 0x002U);
    EXPECT_EQ(features(0x09, 2, 3).code(), 0x002U);
    EXPECT_EQ(features(0x0a, 0x77).code(), 0x002U);
    EXPECT_EQ(features(0x09, 0x77).code(), 0x002U);
}

TEST_F(Admin, LogPages) {
    nvme::Command unknown;
    unknown.opcode = 0x7e;
    const Entry refused = driver.admin_run(unknown);
    EXPECT_EQ(refused.code(), 0x001U);
    ASSERT_EQ(log(1, 128).code(), 0U);
    EXPECT_EQ(*page->as<std::uint64_t>(0), 1U);
    EXPECT_EQ(*page->as<std::uint16_t>(10), refused.cid);
    EXPECT_EQ(*page->as<std::uint16_t>(12) >> 1, refused.status);
    EXPECT_EQ(*page->as<std::uint64_t>(64), 0U);
    ASSERT_EQ(log(2, 512).code(), 0U);
    EXPECT_EQ(*page->as<std::uint64_t>(176), 1U);
    ASSERT_EQ(log(3, 16).code(), 0U);
    EXPECT_EQ(std::string(page->as<char>(8), 8), "1.0     ");
    ASSERT_EQ(log(3, 8, 8).code(), 0U);
    EXPECT_EQ(std::string(page->as<char>(0), 8), "1.0     ");
    ASSERT_EQ(log(1, 8192).code(), 0U);
    EXPECT_EQ(log(3, 16, 2).code(), 0x002U);
    EXPECT_EQ(log(3, 16, 4096).code(), 0x002U);
    EXPECT_EQ(log(0x99, 16).code(), 0x109U);
}

TEST_F(Admin, AsynchronousEvents) {
    nvme::Command request;
    request.opcode = 0x0c;
    for (std::uint16_t i = 0; i < 4; ++i) {
        request.cid = static_cast<std::uint16_t>(100 + i);
        driver.submit(*driver.admin, request);
    }
    EXPECT_FALSE(driver.next(*driver.admin));
    EXPECT_EQ(driver.admin_run(request).code(), 0x105U);
    driver.controller->raise_event(1, 2, 2);
    auto told = driver.next(*driver.admin);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->cid, 100);
    EXPECT_EQ(told->dword0, 0x020201U);
    driver.controller->raise_event(1, 0, 2); // silent until the log was read
    EXPECT_FALSE(driver.next(*driver.admin));
    driver.controller->raise_event(2, 0, 4); // another type is not
    told = driver.next(*driver.admin);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->dword0, 0x040002U);
    nvme::Command read_log;
    read_log.opcode = 0x02;
    read_log.nsid = ~0U;
    read_log.prp1 = page->address();
    read_log.cdw10 = 2 | 127U << 16;
    read_log.cid = 200;
    driver.submit(*driver.admin, read_log);
    // The event's completion and the log's, in whatever order.
    const auto one = driver.next(*driver.admin);
    const auto two = driver.next(*driver.admin);
    ASSERT_TRUE(one && two);
    EXPECT_EQ(one->cid + two->cid, 102 + 200);
}

TEST_F(Admin, FormatChangesTheBlockSizeAndErases) {
    std::vector<std::byte> block(512, std::byte{0x77});
    ASSERT_TRUE(driver.controller->write_medium(Nsid{2}, Lba{3}, block));
    nvme::Command format;
    format.opcode = 0x80;
    format.nsid = 2;
    format.cdw10 = 1;
    EXPECT_EQ(driver.admin_run(format).code(), 0U);
    ASSERT_EQ(identify(0, 2).code(), 0U);
    EXPECT_EQ(*page->as<std::uint64_t>(0), 4096U);
    EXPECT_EQ(page->as()[26], 1);
    std::vector<std::byte> large(4096, std::byte{1});
    ASSERT_TRUE(driver.controller->read_medium(Nsid{2}, Lba{0}, large));
    EXPECT_EQ(large, std::vector<std::byte>(4096));
    EXPECT_FALSE(driver.controller->read_medium(Nsid{2}, Lba{0}, block)); // no whole block
    format.cdw10 = 2;
    EXPECT_EQ(driver.admin_run(format).code(), 0x10aU);
    format.nsid = 9;
    EXPECT_EQ(driver.admin_run(format).code(), 0x00bU);
    format.nsid = 1;
    format.cdw10 = 7U << 9;
    EXPECT_EQ(driver.admin_run(format).code(), 0x002U);
}

TEST_F(Admin, IoStatuses) {
    const auto rings = driver.queue(1);
    Memory data{space(), 512 * 1024};
    Memory list{space(), 4096};
    for (std::size_t i = 1; i < 65; ++i) {
        list.as<std::uint64_t>()[i - 1] = data.address(i * 4096);
    }
    const auto run = [&](const nvme::Command& command) { return driver.run(*rings, command).code(); };
    EXPECT_EQ(run(RawDriver::io(2, 32767, 1, data.address())), 0U);
    EXPECT_EQ(run(RawDriver::io(2, 32768, 1, data.address())), 0x080U);
    EXPECT_EQ(run(RawDriver::io(2, 32767, 2, data.address())), 0x080U);
    EXPECT_EQ(run(RawDriver::io(2, ~std::uint64_t{0}, 2, data.address())), 0x080U);
    EXPECT_EQ(run(RawDriver::io(2, 0, 512, data.address(), list.address())), 0U);
    EXPECT_EQ(run(RawDriver::io(2, 0, 513, data.address(), list.address())), 0x002U); // MDTS 6: 256 KiB
    nvme::Command command = RawDriver::io(2, 0, 1, data.address());
    command.nsid = 4;
    EXPECT_EQ(run(command), 0x00bU);
    command.nsid = 0;
    EXPECT_EQ(run(command), 0x00bU);
    command.nsid = ~0U;
    EXPECT_EQ(run(command), 0x00bU);
    command.opcode = 0x7e;
    command.nsid = 1;
    EXPECT_EQ(run(command), 0x001U);
    nvme::Command flush;
    flush.nsid = ~0U;
    EXPECT_EQ(run(flush), 0U);
    EXPECT_EQ(run(RawDriver::io(8, 32000, 1000)), 0x080U);
}

TEST_F(Admin, ZeroesAndDeallocation) {
    const auto rings = driver.queue(1);
    Memory ranges{space(), 4096};
    std::vector<std::byte> ones(4096 * 512, std::byte{1});
    ASSERT_TRUE(driver.controller->write_medium(Nsid{1}, Lba{0}, ones));
    EXPECT_EQ(driver.run(*rings, RawDriver::io(8, 10, 2000)).code(), 0U);
    auto* range = ranges.as<std::uint32_t>();
    range[1] = 3;
    range[2] = 3000;
    range[5] = 1;
    range[6] = 4000;
    nvme::Command command = RawDriver::io(9, 1, 1, ranges.address()); // cdw10: two ranges
    command.cdw11 = 4;
    command.cdw12 = 0;
    EXPECT_EQ(driver.run(*rings, command).code(), 0U);
    std::vector<std::byte> seen(4096 * 512);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{0}, seen));
    for (std::size_t block = 0; block < 4096; ++block) {
        const bool zero = (block >= 10 && block < 2010) || (block >= 3000 && block < 3003) || block == 4000;
        ASSERT_EQ(seen[block * 512], zero ? std::byte{0} : std::byte{1}) << block;
        ASSERT_EQ(seen[block * 512 + 511], seen[block * 512]) << block;
    }
    range[2] = 32766;
    EXPECT_EQ(driver.run(*rings, command).code(), 0x080U);
}

} // namespace
} // namespace upcie::sim::test
