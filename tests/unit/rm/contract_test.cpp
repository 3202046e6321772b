// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <gtest/gtest.h>
#include <upcie/rm/contract.hpp>

#include "trace_builder.hpp"

namespace upcie::rm::test {
namespace {

using Kind = Ask::Kind;

TEST(RmContract, AsksBelongToTheirPoints) {
    EXPECT_EQ(point_of({Kind::escape, 210}), Point::control_device);
    EXPECT_EQ(point_of({Kind::escape, 0x29}), Point::objects);
    EXPECT_EQ(point_of({Kind::allocation, 0x80}), Point::objects);
    EXPECT_EQ(point_of({Kind::control, 0x20800170}), Point::topology);
    EXPECT_EQ(point_of({Kind::allocation, 0x40}), Point::memory);
    EXPECT_EQ(point_of({Kind::control, 0x20801303}), Point::memory);
    EXPECT_EQ(point_of({Kind::control, 0x3d05}), Point::memory);
    EXPECT_EQ(point_of({Kind::uvm, 33}), Point::memory);
    EXPECT_EQ(point_of({Kind::allocation, 0xc86f}), Point::channels);
    EXPECT_EQ(point_of({Kind::control, 0xc36f0108}), Point::channels);
    EXPECT_EQ(point_of({Kind::control, 0x80170d}), Point::channels);
    EXPECT_EQ(point_of({Kind::uvm, 27}), Point::channels);
    EXPECT_EQ(point_of({Kind::allocation, 0x79}), Point::events);
    EXPECT_EQ(point_of({Kind::escape, 206}), Point::events);
    EXPECT_EQ(point_of({Kind::allocation, 0xcbc0}), Point::execution);
    EXPECT_EQ(point_of({Kind::escape, 0x99}), Point::control_device);
    EXPECT_EQ(point_of({Kind::allocation, 0xfedc}), Point::objects);
}

TEST(RmContract, SmallestSetLeavesOutWhatTheDriverRefused) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.control(made.subdevice, 0x20800170, Words{340}.bytes());
    builder.control(made.subdevice, 0x20801fff, Words{4}.bytes(), {}, 0x56);
    const Contract contract = contract_of({&builder.trace});
    EXPECT_TRUE(contract.smallest.contains({Kind::control, 0x20800170}));
    EXPECT_FALSE(contract.smallest.contains({Kind::control, 0x20801fff}));
    EXPECT_TRUE(contract.smallest.contains({Kind::escape, 0x2a}));
    EXPECT_TRUE(contract.asks.at({Kind::control, 0x20801fff}).unknown);
    EXPECT_EQ(contract.asks.at({Kind::control, 0x20800170}).sizes, (std::set<std::uint64_t>{340}));
    EXPECT_EQ(contract.channels, 1U);
}

TEST(RmContract, ConsumedValuesWereMeasuredOn550Alone) {
    for (const char* driver : {"550.163.01", "580.159.04"}) {
        TraceBuilder::Run run;
        run.driver = driver;
        TraceBuilder builder{run};
        builder.control(1, 0x101, Words{40}.bytes());
        builder.control(1, 0x20800142, Words{4}.bytes());
        const Contract contract = contract_of({&builder.trace});
        EXPECT_EQ(contract.consumed_measured_here, run.driver == "550.163.01");
        EXPECT_FALSE(contract.asks.at({Kind::control, 0x101}).consumed.empty());
        EXPECT_TRUE(contract.asks.at({Kind::control, 0x20800142}).consumed.empty());
    }
}

TEST(RmContract, SeveralTracesAreOneContract) {
    TraceBuilder a;
    TraceBuilder b;
    a.control(1, 0x101, Words{40}.bytes());
    b.control(1, 0x20800142, Words{4}.bytes());
    EXPECT_EQ(contract_of({&a.trace, &b.trace}).asks.size(), 2U);
}

TEST(RmAllowList, RefusesWhatItDoesNotName) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.control(made.subdevice, 0x20800170, Words{340}.bytes());
    builder.control(made.subdevice, 0x2080a1ff, Words{4}.bytes());
    builder.uvm(33, Words{9264}.bytes());
    const Contract contract = contract_of({&builder.trace});
    const auto refused = [&](std::string_view text) {
        const auto list = read_allow_list(text, "table");
        EXPECT_TRUE(list) << (list ? "" : list.error().message());
        return list ? refused_by(contract, *list).size() : 999;
    };
    EXPECT_EQ(refused("escape *\ncontrol *\nclass *\nuvm *\n"), 0U);
    EXPECT_EQ(refused(""), contract.asks.size());
    EXPECT_EQ(refused("escape *\ncontrol 0x20800170 # engines\nclass *\nuvm UVM_MAP_EXTERNAL_ALLOCATION"), 1U);
    EXPECT_EQ(refused("escape *\ncontrol NV2080_CTRL_CMD_GPU_GET_ENGINES_V2\ncontrol legacy\nclass *\nuvm 33"), 0U);
    // A control that is allowed needs the escape that carries it.
    EXPECT_EQ(refused("escape NV_ESC_RM_ALLOC\ncontrol *\nclass *\nuvm *"), 2U);
}

TEST(RmAllowList, ANumberThatMatchesNothingIsAnError) {
    const auto why = [](const std::string& rule) {
        const auto list = read_allow_list("uvm 1\n" + rule + "\n", "table");
        return list ? std::string{} : list.error().message();
    };
    for (const char* good : {"escape 0xff", "escape 255", "control 0xffffffff", "class 4294967295", "uvm 0xffffffff"}) {
        EXPECT_EQ(why(good), "") << good;
    }
    for (const char* bad : {"escape 0x100", "escape 256", "escape 0xc030462b", "escape 99999999999999999999999"}) {
        EXPECT_NE(why(bad).find("table, line 2"), std::string::npos) << bad << why(bad);
        EXPECT_NE(why(bad).find("escape numbers go from 0 to 0xff"), std::string::npos) << bad << why(bad);
    }
    for (const std::string word : {"control", "class", "uvm"}) {
        for (const char* number : {"0x100000000", "4294967296", "0x11111111111111111"}) {
            const std::string said = why(word + " " + number);
            EXPECT_NE(said.find("table, line 2"), std::string::npos) << word << number << said;
            EXPECT_NE(said.find(word + " numbers go from 0 to 0xffffffff"), std::string::npos) << said;
        }
    }
    for (const std::string word : {"escape", "control", "class", "uvm"}) {
        EXPECT_NE(why(word + " NO_SUCH").find("\"NO_SUCH\" is the name of no " + word), std::string::npos);
    }
}

TEST(RmAllowList, ErrorsNameTheLine) {
    for (const char* bad :
         {"escape\n", "\nfoo 1\n", "class NO_SUCH_CLASS\n", "control 1 2\n", "uvm 0x\n", "uvm legacy\n"}) {
        const auto list = read_allow_list(bad, "table");
        ASSERT_FALSE(list) << bad;
        EXPECT_NE(list.error().message().find("table, line"), std::string::npos) << list.error().message();
    }
}

} // namespace
} // namespace upcie::rm::test
