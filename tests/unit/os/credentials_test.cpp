// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <support/mock_system.hpp>
#include <upcie/os/credentials.hpp>

namespace upcie::os {
namespace {

using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Return;
using testing::StrEq;
using namespace upcie::literals;

TEST(Capabilities, AreNamed) {
    const CapabilitySet set{(1ULL << 0) | (1ULL << 14) | (1ULL << 21) | (1ULL << 40) | (1ULL << 63)};
    EXPECT_THAT(set.names(),
                ElementsAre("CAP_CHOWN", "CAP_IPC_LOCK", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE", "CAP_63"));
    EXPECT_TRUE(set.has("CAP_SYS_ADMIN"));
    EXPECT_FALSE(set.has("CAP_SYS_RAWIO"));
    EXPECT_FALSE(set.has("CAP_NONSENSE"));
    EXPECT_TRUE(set.has(63U));
    EXPECT_FALSE(set.has(64U));
}

constexpr const char* status_text =
    "Name:\tupcie\nUmask:\t0022\nState:\tR (running)\nPid:\t4711\nPPid:\t1\n"
    "Uid:\t1000\t1001\t1002\t1003\nGid:\t100\t101\t102\t103\nFDSize:\t64\n"
    "Groups:\t4 20 998 \nVmPeak:\t    1000 kB\nVmLck:\t      64 kB\nVmPin:\t    8192 kB\n"
    "CapInh:\t0000000000000001\nCapPrm:\t0000000000204000\nCapEff:\t0000000000004000\n"
    "CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

class CredentialsTest : public testing::Test {
  protected:
    void status(const std::string& text) {
        const int file = real_system().memfd_create("status", MFD_CLOEXEC);
        ASSERT_EQ(real_system().pwrite(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
        EXPECT_CALL(system_, open(StrEq("/proc/self/status"), _, _)).WillOnce(Return(file));
    }
    MockSystem system_;
};

TEST_F(CredentialsTest, ReadsEveryLine) {
    status(status_text);
    EXPECT_CALL(system_, prctl(PR_GET_DUMPABLE, _)).WillOnce(Return(2));
    const auto who = read_credentials(system_);
    ASSERT_TRUE(who) << who.error().message();
    EXPECT_EQ(who->pid, 4711);
    EXPECT_EQ(who->real_uid, 1000U);
    EXPECT_EQ(who->effective_uid, 1001U);
    EXPECT_EQ(who->saved_uid, 1002U);
    EXPECT_EQ(who->real_gid, 100U);
    EXPECT_EQ(who->effective_gid, 101U);
    EXPECT_EQ(who->saved_gid, 102U);
    EXPECT_THAT(who->groups, ElementsAre(4U, 20U, 998U));
    EXPECT_EQ(who->inheritable.bits(), 1U);
    EXPECT_THAT(who->permitted.names(), ElementsAre("CAP_IPC_LOCK", "CAP_SYS_ADMIN"));
    EXPECT_THAT(who->effective.names(), ElementsAre("CAP_IPC_LOCK"));
    EXPECT_EQ(who->bounding.bits(), 0x1ffffffffffU);
    EXPECT_TRUE(who->ambient.names().empty());
    EXPECT_TRUE(who->no_new_privileges);
    EXPECT_EQ(who->dumpable, 2);
    EXPECT_EQ(who->memory.locked, 64_KiB);
    EXPECT_EQ(who->memory.pinned, 8_MiB);
}

TEST_F(CredentialsTest, NoSupplementaryGroupsAreNoFault) {
    std::string text = status_text;
    text.replace(text.find("Groups:\t4 20 998 "), 17, "Groups:\t");
    status(text);
    EXPECT_TRUE(read_credentials(system_)->groups.empty());
}

TEST_F(CredentialsTest, AMissingOrBrokenLineIsNamed) {
    for (const char* name : {"Pid", "Uid", "Gid", "Groups", "VmLck", "VmPin", "CapInh", "CapPrm", "CapEff", "CapBnd",
                             "CapAmb", "NoNewPrivs"}) {
        for (const bool broken : {false, true}) {
            std::string text = status_text;
            const auto at = text.find(std::string{"\n"} + name + ":") + 1;
            text.replace(at, broken ? std::strlen(name) + 2 : 1, broken ? std::string{name} + ":\t?" : "X");
            status(text);
            const auto who = read_credentials(system_);
            ASSERT_FALSE(who) << name;
            EXPECT_TRUE(who.error().is(EPROTO));
            EXPECT_THAT(who.error().hint, HasSubstr(name));
        }
    }
}

TEST_F(CredentialsTest, AgreesWithTheKernelAboutThisProcess) {
    const auto who = read_credentials(real_system());
    ASSERT_TRUE(who) << who.error().message();
    EXPECT_EQ(who->pid, ::getpid());
    EXPECT_EQ(who->effective_uid, ::geteuid());
    EXPECT_EQ(who->saved_gid, ::getegid());
    std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
    ::getgroups(static_cast<int>(groups.size()), groups.data());
    EXPECT_EQ(who->groups.size(), groups.size());
    EXPECT_TRUE(read_memory_accounting(real_system()));
}

TEST_F(CredentialsTest, MemlockIsReadAndSet) {
    EXPECT_CALL(system_, getrlimit(RLIMIT_MEMLOCK, _)).WillOnce([](int, struct rlimit* limit) {
        *limit = {65536, RLIM_INFINITY};
        return 0;
    });
    EXPECT_EQ(*memlock_limit(system_), (MemlockLimit{64_KiB, std::nullopt}));
    EXPECT_CALL(system_, setrlimit(RLIMIT_MEMLOCK, _))
        .WillOnce([](int, const struct rlimit* limit) {
            return limit->rlim_cur == 4096 && limit->rlim_max == RLIM_INFINITY ? 0 : -1;
        })
        .WillOnce(fails_with(EPERM))
        .WillOnce(fails_with(EINVAL));
    EXPECT_TRUE(set_memlock_limit(system_, {4_KiB, std::nullopt}));
    EXPECT_THAT(set_memlock_limit(system_, {}).error().hint, HasSubstr("CAP_SYS_RESOURCE"));
    EXPECT_THAT(set_memlock_limit(system_, {}).error().hint, HasSubstr("soft limit"));
}

} // namespace
} // namespace upcie::os
