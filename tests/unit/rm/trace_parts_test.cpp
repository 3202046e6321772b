// SPDX-License-Identifier: BSD-3-Clause
// Parts of the tracer that need no program to be traced.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "consulted.hpp"
#include "filter.hpp"
#include "host.hpp"
#include "nodes.hpp"
#include "process_memory.hpp"
#include "task.hpp"

namespace upcie::rm {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t this_machine = AUDIT_ARCH_X86_64;
constexpr std::uint32_t its_32_bits = AUDIT_ARCH_I386;
#else
constexpr std::uint32_t this_machine = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t its_32_bits = AUDIT_ARCH_ARM;
#endif

/// What the kernel would answer: just the instructions that the filter is made of.
std::uint32_t run(const std::vector<sock_filter>& program, const seccomp_data& data) {
    std::uint32_t accumulator = 0;
    for (std::size_t at = 0; at < program.size(); ++at) {
        const sock_filter& one = program[at];
        switch (one.code) {
        case BPF_LD | BPF_W | BPF_ABS:
            std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + one.k, sizeof accumulator);
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += accumulator == one.k ? one.jt : one.jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += (accumulator & one.k) != 0 ? one.jt : one.jf;
            break;
        case BPF_RET | BPF_K:
            return one.k;
        default:
            ADD_FAILURE() << "an instruction that this test does not know: " << one.code;
            return 0;
        }
    }
    ADD_FAILURE() << "it ends without an answer";
    return 0;
}

bool stops(long number, std::array<std::uint64_t, 6> arguments = {}, std::uint32_t machine = this_machine,
           bool memory = false) {
    seccomp_data data{};
    data.nr = static_cast<int>(number);
    data.arch = machine;
    std::copy(arguments.begin(), arguments.end(), data.args);
    const std::uint32_t answer = run(make_filter(memory), data);
    EXPECT_TRUE(answer == SECCOMP_RET_ALLOW || (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE);
    return answer != SECCOMP_RET_ALLOW;
}

TEST(TraceFilter, StopsAtWhatIsRecordedAndAtNothingElse) {
    for (const long number : {SYS_ioctl, SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_dup, SYS_dup3,
                              SYS_munmap, SYS_mremap, SYS_sendmsg, SYS_recvmsg, SYS_ppoll, SYS_newfstatat, SYS_statx}) {
        EXPECT_TRUE(stops(number)) << number;
    }
    for (const long number : {SYS_read, SYS_write, SYS_pread64, SYS_futex, SYS_getpid, SYS_brk, SYS_mprotect,
                              SYS_clock_nanosleep, SYS_exit_group, SYS_rt_sigreturn, SYS_clone, SYS_execve}) {
        EXPECT_FALSE(stops(number)) << number;
    }
}

TEST(TraceFilter, LooksAtArgumentsWhereTheNumberIsNotEnough) {
    const auto map = [](std::uint64_t flags, std::uint64_t fd) {
        return stops(SYS_mmap, {0, 4096, PROT_READ, flags, fd, 0});
    };
    EXPECT_TRUE(map(MAP_SHARED, 3));
    EXPECT_FALSE(map(MAP_PRIVATE | MAP_ANONYMOUS, ~std::uint64_t{0}));
    EXPECT_FALSE(map(MAP_PRIVATE | MAP_ANONYMOUS, 3)); // the kernel ignores it then
    EXPECT_TRUE(map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~std::uint64_t{0}));
    EXPECT_TRUE(stops(SYS_fcntl, {3, F_DUPFD, 0}));
    EXPECT_TRUE(stops(SYS_fcntl, {3, F_DUPFD_CLOEXEC, 0}));
    EXPECT_FALSE(stops(SYS_fcntl, {3, F_GETFL}));
    EXPECT_FALSE(stops(SYS_fcntl, {3, F_SETFD, 1}));
    EXPECT_TRUE(stops(SYS_prctl, {22}));
    EXPECT_FALSE(stops(SYS_prctl, {15}));
    EXPECT_TRUE(stops(SYS_exit_group, {}, this_machine, true)); // --memory
}

TEST(TraceFilter, NoticesIoctlsOfTheOther32Bits) {
    EXPECT_TRUE(stops(54, {}, its_32_bits));
    EXPECT_FALSE(stops(3, {}, its_32_bits));
    EXPECT_FALSE(stops(54, {}, AUDIT_ARCH_PPC64LE));
#if defined(__x86_64__)
    EXPECT_TRUE(stops(0x40000000 | 514));
#endif
}

TEST(TraceMappings, AreCutWhereTheyAreUnmapped) {
    AddressSpace space;
    const NodeName node{Node::gpu, "/dev/nvidia0"};
    space.add(0x10000, {0x4000, node, 0x100000, 3, {}, false});
    EXPECT_TRUE(space.touches(0x13fff, 1));
    EXPECT_FALSE(space.touches(0x14000, 0x1000));
    EXPECT_FALSE(space.touches(0xf000, 0x1000));
    EXPECT_TRUE(space.touches(0xf000, 0x1001)); // whole pages
    EXPECT_TRUE(space.touches(0, ~std::uint64_t{0}));
    space.remove(0x11000, 0x1000);
    ASSERT_EQ(space.mappings.size(), 2U);
    EXPECT_EQ(space.mappings.at(0x10000).length, 0x1000U);
    EXPECT_EQ(space.mappings.at(0x12000).length, 0x2000U);
    EXPECT_EQ(space.mappings.at(0x12000).offset, 0x102000U);
    space.remove(0, ~std::uint64_t{0});
    EXPECT_TRUE(space.mappings.empty());
    space.add(0x10000, {1, node, 0, 3, {}, false});
    EXPECT_EQ(space.mappings.at(0x10000).length, 4096U);
}

TEST(TraceFiles, ThatLibrariesConsultAreTold) {
    EXPECT_EQ(interest_in("/proc/driver/nvidia/params"), Interest::content);
    EXPECT_EQ(interest_in("/sys/module/nvidia/initstate"), Interest::content);
    EXPECT_EQ(interest_in("/proc/devices"), Interest::content);
    EXPECT_EQ(interest_in("/sys/devices/system/memory/block_size_bytes"), Interest::content);
    EXPECT_EQ(interest_in("/etc/nvidia/nvidia-application-profiles-rc"), Interest::content);
    EXPECT_EQ(interest_in("/dev/nvidiactl"), Interest::named);
    EXPECT_EQ(interest_in("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), Interest::named);
    EXPECT_EQ(interest_in("/etc/passwd"), Interest::none);
    EXPECT_EQ(interest_in("/home/somebody/data"), Interest::none);
    EXPECT_EQ(library_version("/usr/lib/libcuda.so.580.159.04"), "580.159.04");
    EXPECT_EQ(library_version("/usr/lib/libnvidia-ml.so.1"), "1");
    EXPECT_EQ(library_version("/usr/lib/libcuda.so"), "");
    EXPECT_FALSE(library_version("/usr/lib/libc.so.6"));
    EXPECT_FALSE(library_version("/dev/nvidiactl"));
}

TEST(TraceHost, FindsTheDriversVersionInEitherWording) {
    EXPECT_EQ(
        driver_version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Fri May 30\nGCC version: 12.2"),
        "535.261.03");
    EXPECT_EQ(driver_version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"),
              "580.159.04");
    EXPECT_EQ(driver_version_in(""), "");
    EXPECT_EQ(driver_version_in("nothing of the kind"), "");
}

TEST(TraceNodes, ArePretendedByPathAndKind) {
    const auto node = parse_pretended_node("/tmp/a=b=uvm");
    ASSERT_TRUE(node);
    EXPECT_EQ(node->path, "/tmp/a=b");
    EXPECT_EQ(node->kind, Node::uvm);
    EXPECT_EQ(parse_pretended_node("x=device")->kind, Node::gpu);
    for (const char* wrong : {"", "/tmp/a", "=uvm", "/tmp/a=", "/tmp/a=toaster"}) {
        EXPECT_FALSE(parse_pretended_node(wrong)) << wrong;
    }
}

TEST(TraceMemory, ReadsWhatIsThereAndSaysWhereItEnds) {
    auto* const pages =
        static_cast<char*>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(::munmap(pages + 4096, 4096), 0);
    std::fill_n(pages, 4096, 'x');
    const ProcessMemory memory{::getpid()};
    const auto address = reinterpret_cast<std::uint64_t>(pages);
    const Capture half = memory.read(address + 4000, 200);
    if (half.error == EPERM) {
        GTEST_SKIP() << "process_vm_readv is forbidden here";
    }
    EXPECT_EQ(half.bytes, std::vector<std::byte>(96, std::byte{'x'}));
    EXPECT_EQ(half.error, EFAULT);
    const Capture beyond = memory.read(~std::uint64_t{0} - 4, 100);
    EXPECT_TRUE(beyond.bytes.empty());
    EXPECT_EQ(beyond.error, EFAULT);
    EXPECT_FALSE(memory.text(address)); // no zero before the end
    pages[4095] = 0;
    EXPECT_EQ(memory.text(address + 4090), "xxxxx");
    Capture first;
    Capture second;
    const std::array<ProcessMemory::Wanted, 2> wanted{{{address, 2, &first}, {address + 4094, 10, &second}}};
    memory.read_all(wanted);
    EXPECT_EQ(first.bytes.size(), 2U);
    EXPECT_EQ(first.error, 0);
    EXPECT_EQ(second.bytes.size(), 2U);
    EXPECT_EQ(second.error, EFAULT);
    ::munmap(pages, 4096);
}

} // namespace
} // namespace upcie::rm
