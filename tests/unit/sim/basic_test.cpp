// SPDX-License-Identifier: BSD-3-Clause
#include "sim/raw_driver.hpp"

#include <algorithm>
#include <numeric>

namespace upcie::sim::test {
namespace {

std::string way_name(const ::testing::TestParamInfo<const char*>& way) {
    return std::string{way.param} == "thread=on" ? "threaded" : "stepped";
}

/// Everything that works, with and without a thread.
class Basic : public ::testing::TestWithParam<const char*> {
  protected:
    static std::string spec(const std::string& more = {}) { return "sim:size=16M," + more + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Both, Basic, ::testing::Values("thread=off", "thread=on"), way_name);

TEST_P(Basic, RegistersSayWhatWasAsked) {
    const RawDriver driver{spec("mqes=255,to=7,dstrd=2,mpsmin=1,mpsmax=3,")};
    const auto cap = driver.read<std::uint64_t>(0);
    EXPECT_EQ(cap & 0xffff, 255U);
    EXPECT_EQ((cap >> 16) & 1, 1U);
    EXPECT_EQ((cap >> 24) & 0xff, 7U);
    EXPECT_EQ((cap >> 32) & 15, 2U);
    EXPECT_EQ((cap >> 37) & 1, 1U);
    EXPECT_EQ((cap >> 48) & 15, 1U);
    EXPECT_EQ((cap >> 52) & 15, 3U);
    EXPECT_EQ(driver.read(0x08), 0x20000U);
    EXPECT_EQ(driver.read(0x1c), 0U);
}

TEST_P(Basic, EnablesDisablesAndShutsDown) {
    RawDriver driver{spec()};
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(driver.enable());
        driver.write<std::uint32_t>(0x14, driver.read(0x14) | 1U << 14);
        EXPECT_TRUE(driver.wait([&] { return ((driver.read(0x1c) >> 2) & 3) == 2; }));
        ASSERT_TRUE(driver.disable());
        EXPECT_EQ(driver.read(0x1c), 0U);
        driver.write<std::uint32_t>(0x14, 0);
    }
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, ReadyTakesItsTime) {
    RawDriver driver{spec("ready=30ms,")};
    EXPECT_EQ(driver.enable(), driver.controller->options().threaded);
    driver.controller->advance(std::chrono::milliseconds{30});
    EXPECT_EQ(driver.read(0x1c), 1U);
}

TEST_P(Basic, WritesAndReadsBackThroughTwoQueues) {
    RawDriver driver{spec("lba=4096,")};
    ASSERT_TRUE(driver.enable());
    const auto first = driver.queue(1);
    const auto second = driver.queue(2);
    Memory out{*driver.controller->address_space(), 8192};
    Memory in{*driver.controller->address_space(), 8192};
    std::iota(out.as(), out.as() + 8192, std::uint8_t{7});
    EXPECT_EQ(driver.run(*first, RawDriver::io(1, 5, 2, out.address(), out.address(4096))).code(), 0U);
    EXPECT_EQ(driver.run(*second, RawDriver::io(2, 5, 2, in.address(), in.address(4096))).code(), 0U);
    EXPECT_EQ(std::memcmp(out.as(), in.as(), 8192), 0);
    std::vector<std::byte> medium(8192);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{5}, medium));
    EXPECT_EQ(std::memcmp(out.as(), medium.data(), 8192), 0);
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, CompletionsGoRoundTheRingManyTimes) {
    RawDriver driver{spec()};
    ASSERT_TRUE(driver.enable(2));
    const auto rings = driver.queue(1, 5);
    Memory data{*driver.controller->address_space(), 4096};
    for (unsigned i = 0; i < 333; ++i) {
        ASSERT_EQ(driver.run(*rings, RawDriver::io(2, i, 1, data.address())).code(), 0U);
    }
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, OneDoorbellForManyCommands) {
    RawDriver driver{spec()};
    ASSERT_TRUE(driver.enable());
    const auto rings = driver.queue(1, 16);
    Memory data{*driver.controller->address_space(), 4096};
    const auto before = driver.controller->counters().doorbells;
    for (std::uint16_t i = 0; i < 15; ++i) {
        nvme::Command command = RawDriver::io(2, i, 1, data.address());
        command.cid = static_cast<std::uint16_t>(1000 + i);
        driver.place(*rings, command);
    }
    driver.ring(*rings);
    for (std::uint16_t i = 0; i < 15; ++i) {
        const auto entry = driver.next(*rings);
        ASSERT_TRUE(entry);
        EXPECT_EQ(entry->cid, 1000 + i);
        EXPECT_EQ(entry->sqid, 1);
    }
    EXPECT_EQ(driver.controller->counters().doorbells, before + 1);
    EXPECT_EQ(driver.violations(), "");
}

// The controller must not write into a full completion ring: completions wait until the host has taken some.
TEST_P(Basic, CompletionsWaitForRoom) {
    RawDriver driver{spec()};
    ASSERT_TRUE(driver.enable());
    Rings small{*driver.controller->address_space(), 1, 2};
    Rings large{*driver.controller->address_space(), 1, 16};
    ASSERT_EQ(driver.create_cq(small).code(), 0U);
    ASSERT_EQ(driver.create_sq(large, 1).code(), 0U);
    for (std::uint16_t i = 0; i < 10; ++i) {
        nvme::Command command;
        command.nsid = 1; // flush
        command.cid = i;
        driver.place(large, command);
    }
    driver.ring(large);
    for (std::uint16_t i = 0; i < 10; ++i) {
        const auto entry = driver.next(small);
        ASSERT_TRUE(entry) << i;
        EXPECT_EQ(entry->cid, i);
    }
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, WideDoorbellStride) {
    RawDriver driver{spec("dstrd=3,")};
    ASSERT_TRUE(driver.enable());
    const auto rings = driver.queue(4, 4);
    Memory data{*driver.controller->address_space(), 4096};
    EXPECT_EQ(driver.run(*rings, RawDriver::io(2, 0, 1, data.address())).code(), 0U);
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, FunctionLevelResetForgetsEverythingButTheMedium) {
    RawDriver driver{spec()};
    ASSERT_TRUE(driver.enable());
    const auto rings = driver.queue(1);
    Memory data{*driver.controller->address_space(), 4096};
    *data.as() = 0x5a;
    EXPECT_EQ(driver.run(*rings, RawDriver::io(1, 0, 1, data.address())).code(), 0U);
    ASSERT_TRUE(driver.function->reset());
    EXPECT_EQ(driver.read(0x1c), 0U);
    EXPECT_EQ(driver.read(0x14), 0U);
    EXPECT_EQ(driver.read(0x1000 + 8), 0U);
    EXPECT_FALSE(driver.controller->bus_master());
    ASSERT_TRUE(driver.enable());
    const auto again = driver.queue(1);
    *data.as() = 0;
    EXPECT_EQ(driver.run(*again, RawDriver::io(2, 0, 1, data.address())).code(), 0U);
    EXPECT_EQ(*data.as(), 0x5a);
    EXPECT_EQ(driver.violations(), "");
}

TEST_P(Basic, ScatteredAddressesAndAddressZero) {
    RawDriver driver{spec("scatter=4,iova=0..0xffffffff,zero=on,seed=9,")};
    Memory first{*driver.controller->address_space(), 4096};
    EXPECT_EQ(first.address(), 0U);
    ASSERT_TRUE(driver.enable());
    const auto rings = driver.queue(1);
    EXPECT_EQ(driver.run(*rings, RawDriver::io(1, 0, 1, first.address())).code(), 0U);
    EXPECT_EQ(driver.violations(), "");
}

} // namespace
} // namespace upcie::sim::test
