// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <unistd.h>

#include "identity.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using testing::_;

const char* const status_text =
    "Name:\tprobe\nPid:\t77\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t4 24 27 \n"
    "VmPin:\t     20 kB\nVmLck:\t      8 kB\nCapInh:\t0000000000000000\n"
    "CapPrm:\t0000000000204000\nCapEff:\t0000000000004000\nCapBnd:\t000001ffffffffff\n";

TEST(Identity, ReadsWhatTheKernelWrites) {
    const Result<Identity> who = parse_status(status_text);
    ASSERT_TRUE(who);
    EXPECT_EQ(who->uid, 1000U);
    EXPECT_EQ(who->effective_uid, 1001U);
    EXPECT_EQ(who->gid, 5U);
    EXPECT_EQ(who->effective_gid, 6U);
    EXPECT_EQ(who->groups, (std::vector<std::uint32_t>{4, 24, 27}));
    EXPECT_EQ(who->locked, 8U * 1024);
    EXPECT_EQ(who->pinned, 20U * 1024);
    EXPECT_TRUE(who->capable(CAP_IPC_LOCK)) << "bit 14";
    EXPECT_FALSE(who->capable(CAP_SYS_ADMIN)) << "permitted is not effective";
    EXPECT_EQ(who->permitted_capabilities, 0x204000U);
}

TEST(Identity, AMissingLineIsNamed) {
    for (const char* name : {"Uid", "Gid", "Groups", "VmPin", "VmLck", "CapPrm", "CapEff", "CapBnd"}) {
        std::string text = status_text;
        const std::size_t place = text.find(std::string{"\n"} + name + ":");
        ASSERT_NE(place, std::string::npos);
        text.replace(place + 1, 1, "?");
        const Result<Identity> who = parse_status(text);
        ASSERT_FALSE(who) << name;
        EXPECT_TRUE(who.error().is(EPROTO));
        EXPECT_NE(who.error().hint.find(name), std::string::npos) << name;
    }
}

TEST(Identity, OfThisProcess) {
    const Result<Identity> who = who_am_i(os::real_system());
    ASSERT_TRUE(who);
    EXPECT_EQ(who->pid, ::getpid());
    EXPECT_EQ(who->uid, ::getuid());
    EXPECT_EQ(who->effective_gid, ::getegid());
    EXPECT_EQ(who->json()["pid"], ::getpid());
}

TEST(Identity, UnlimitedIsSaidInWords) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, getrlimit(RLIMIT_MEMLOCK, _)).WillByDefault([](int, rlimit* limit) {
        *limit = {RLIM_INFINITY, RLIM_INFINITY};
        return 0;
    });
    const Result<Identity> who = who_am_i(system);
    ASSERT_TRUE(who);
    EXPECT_FALSE(who->memlock.has_value());
    EXPECT_EQ(who->json()["memlock_bytes"], "unlimited");
}

TEST(Memlock, LowersTheSoftLimitAndLeavesTheHardOne) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, getrlimit(RLIMIT_MEMLOCK, _)).WillByDefault([](int, rlimit* limit) {
        *limit = {1 << 23, 1 << 24};
        return 0;
    });
    EXPECT_CALL(system, setrlimit(RLIMIT_MEMLOCK, _)).WillOnce([](int, const rlimit* limit) {
        EXPECT_EQ(limit->rlim_cur, 4096U);
        EXPECT_EQ(limit->rlim_max, rlim_t{1} << 24);
        return 0;
    });
    EXPECT_TRUE(limit_memlock(system, 4096));
}

TEST(Memlock, RaisesTheHardLimitWhereItMust) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, getrlimit(RLIMIT_MEMLOCK, _)).WillByDefault([](int, rlimit* limit) {
        *limit = {1 << 23, 1 << 23};
        return 0;
    });
    EXPECT_CALL(system, setrlimit(RLIMIT_MEMLOCK, _)).WillOnce([](int, const rlimit* limit) {
        EXPECT_EQ(limit->rlim_max, rlim_t{1} << 24);
        errno = EPERM;
        return -1;
    });
    EXPECT_TRUE(limit_memlock(system, std::uint64_t{1} << 24).error().is(EPERM));
}

} // namespace
} // namespace upcie::probes
