// SPDX-License-Identifier: BSD-3-Clause
// What the HIP flavour must do, whatever is behind it: run against the tests' own library (unit level) and against
// AMD's on a GPU (device level). What differs between runtimes is the probes' business and not asserted here.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/hip.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/os/system.hpp>

namespace upcie::gpu::hip {
namespace {

using namespace upcie::literals;

static_assert(Flavour<Hip>);

class HipSuite : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        auto opened = Hip::open(os::real_system());
        if (opened) {
            hip_ = std::move(*opened);
        } else {
            why_ = opened.error().message();
        }
    }
    static void TearDownTestSuite() { hip_.reset(); }
    void SetUp() override { ASSERT_TRUE(hip_) << why_; }

    static Hip& hip() { return *hip_; }
    /// HIP 7 is the first that exports.
    static bool exports() { return hip().identity().runtime_version >= 70'000'000; }
    static void expect_vendor(const Error& error, int code, std::string_view name) {
        EXPECT_EQ(error.domain, ErrorDomain::vendor) << error.message();
        EXPECT_EQ(error.code, code) << error.message();
        EXPECT_EQ(error.code_name, name);
        EXPECT_NE(error.message().find(name), std::string::npos);
    }
    /// An export of it has at least the size asked: how much more is the runtime's choice.
    static void expect_exported(DevicePointer start, ByteCount length) {
        const auto made = hip().export_range(start, length);
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_GE(made->size, length);
        EXPECT_EQ(made->file_offset, 0_B);
    }

    static std::optional<Hip> hip_;
    static std::string why_;
};
std::optional<Hip> HipSuite::hip_;
std::string HipSuite::why_;

TEST_F(HipSuite, SaysWhatItIs) {
    const Identity& identity = hip().identity();
    EXPECT_FALSE(identity.name.empty());
    EXPECT_EQ(identity.pci.size(), 12U) << identity.pci;
    EXPECT_EQ(identity.arch.substr(0, 3), "gfx");
    EXPECT_GE(identity.runtime_version, 50'000'000);
    EXPECT_GE(identity.driver_version, 50'000'000);
    EXPECT_GT(identity.memory, 1_MiB);
    EXPECT_NE(identity.uuid, (std::array<std::uint8_t, 16>{}));
    EXPECT_NE(hip().describe().find(identity.name), std::string::npos);
    EXPECT_NE(hip().describe().find(identity.arch), std::string::npos);
    EXPECT_GE(hip().reported_granularity(), 4_KiB);
}

TEST_F(HipSuite, FromEveryPointerItsAllocation) {
    for (const ByteCount size : {512_B, 4_KiB, 140_KiB, 3_MiB + 4_KiB, 64_MiB}) {
        const auto base = hip().allocate(size);
        ASSERT_TRUE(base) << base.error().message();
        for (const ByteCount inside : {0_B, 1_B, ByteCount{size.value() / 2}, size - 1_B}) {
            const auto found = hip().allocation_of(*base + inside);
            ASSERT_TRUE(found) << found.error().message();
            EXPECT_EQ(*found, (Allocation{*base, size})) << inside.value();
        }
        EXPECT_TRUE(hip().free(*base));
        EXPECT_FALSE(hip().allocation_of(*base)) << "freed";
    }
    const auto nowhere = hip().allocation_of(DevicePointer{64});
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().domain, ErrorDomain::vendor);
}

TEST_F(HipSuite, WhatCannotBeAllocatedOrFreed) {
    EXPECT_TRUE(hip().allocate(0_B).error().is(EINVAL));
    expect_vendor(hip().allocate(ByteCount{std::uint64_t{1} << 50}).error(), 2, "hipErrorOutOfMemory");
    EXPECT_EQ(hip().free(DevicePointer{4096}).error().domain, ErrorDomain::vendor);
    const DevicePointer base = hip().allocate(8_KiB).value();
    EXPECT_TRUE(hip().free(base + 4_KiB).error().is(EINVAL)) << "HIP itself frees it";
    EXPECT_TRUE(hip().allocation_of(base));
    EXPECT_TRUE(hip().free(base));
}

TEST_F(HipSuite, AnyRangeOfAnAllocationIsExported) {
    if (!exports()) {
        GTEST_SKIP() << "hipMemGetHandleForAddressRange comes with HIP 7";
    }
    const DevicePointer base = hip().allocate(64_MiB).value();
    for (const ByteCount length : {4_KiB, 64_KiB, 2_MiB, 3_MiB, 64_MiB}) {
        expect_exported(base, length);
    }
    expect_exported(base + 4_KiB, 4_KiB);
    expect_exported(base + 2_MiB, 2_MiB);
    EXPECT_TRUE(hip().free(base));
    const DevicePointer odd = hip().allocate(3_MiB + 4_KiB).value();
    expect_exported(odd, 3_MiB + 4_KiB);
    EXPECT_TRUE(hip().free(odd));
}

TEST_F(HipSuite, WhatIsNotExported) {
    if (!exports()) {
        GTEST_SKIP() << "hipMemGetHandleForAddressRange comes with HIP 7";
    }
    const DevicePointer base = hip().allocate(4_MiB).value();
    const auto nothing = hip().export_range(base, 0_B);
    ASSERT_FALSE(nothing);
    expect_vendor(nothing.error(), 1, "hipErrorInvalidValue");
    EXPECT_TRUE(hip().free(base));
    const auto nowhere = hip().export_range(DevicePointer{4096}, 4_KiB);
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().domain, ErrorDomain::vendor);
}

TEST_F(HipSuite, KindsOfMemory) {
    for (const MemoryKind kind :
         {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::managed, MemoryKind::host}) {
        SCOPED_TRACE(to_string(kind));
        const auto base = hip().allocate(kind, 4_MiB);
        ASSERT_TRUE(base) << base.error().message();
        EXPECT_EQ(hip().allocation_of(*base + 100_B).value().base, *base);
        // Which of them are exported is the probe's to tell; a refusal is HIP's own, or the version's.
        if (const auto made = hip().export_range(*base, 4_KiB); !made) {
            EXPECT_NE(made.error().code_name.empty(), exports()) << made.error().message();
        }
        EXPECT_TRUE(hip().free(kind, *base));
    }
    EXPECT_FALSE(hip().free(MemoryKind::vmm, DevicePointer{4096}));
    EXPECT_FALSE(hip().free(MemoryKind::host, DevicePointer{4096}));
}

TEST_F(HipSuite, CopiesAndKernelsSeeTheSameBytes) {
    std::vector<std::uint64_t> words(8192);
    std::iota(words.begin(), words.end(), 0x1122'3344'0000'0000);
    const DevicePointer base = hip().allocate(64_KiB).value();
    ASSERT_TRUE(hip().copy_to_device(base, words.data(), 64_KiB));
    std::vector<std::uint64_t> back(8192);
    ASSERT_TRUE(hip().copy_to_host(back.data(), base, 64_KiB));
    EXPECT_EQ(back, words);
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{8191}}) {
        const DevicePointer at = base + ByteCount{index * 8};
        EXPECT_EQ(hip().read_by_copy(at).value(), words[index]);
        const auto value = hip().read_by_kernel(at);
        ASSERT_TRUE(value) << value.error().message();
        EXPECT_EQ(*value, words[index]);
    }
    EXPECT_TRUE(hip().read_by_kernel(base + 4_B).error().is(EINVAL));
    EXPECT_TRUE(hip().copy_to_host(back.data(), base + 8_B, 64_KiB).error().is(EFAULT));
    EXPECT_TRUE(hip().free(base));
    EXPECT_FALSE(hip().read_by_kernel(base)) << "freed: an error, and not the end of the process";
}

TEST_F(HipSuite, OrdinaryMemoryIsReachedByTheDevice) {
    const os::Fd file{os::real_system(), ::memfd_create("hip-suite", MFD_CLOEXEC)};
    ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
    const auto memory = os::Mapping::map(os::real_system(), file.get(), 0, 8_KiB).value();
    constexpr std::uint64_t word = 0x0123'4567'89ab'cdef;
    std::memcpy(memory.data() + 4096, &word, sizeof word);
    const auto reached = hip().register_host(memory.data(), 8_KiB);
    ASSERT_TRUE(reached) << reached.error().message();
    const auto seen = hip().read_by_copy(*reached + 4_KiB);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(*seen, word);
    EXPECT_TRUE(hip().unregister_host(memory.data()));
    EXPECT_EQ(hip().unregister_host(memory.data()).error().domain, ErrorDomain::vendor) << "twice";
}

TEST_F(HipSuite, ThreadsAllocateExportAndFreeAtOnce) {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&failures, t] {
            for (unsigned i = 0; i < 50; ++i) {
                const ByteCount size{512U + (t * 50 + i) * 3000};
                const auto base = hip().allocate(size);
                if (!base || hip().allocation_of(*base).value().size != size || !hip().free(*base)) {
                    ++failures;
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures, 0);
}

// Many small allocations from several threads, as background threads of an application register them.
TEST_F(HipSuite, EachAllocationIsExportedOnceFromSeveralThreads) {
    if (!exports()) {
        GTEST_SKIP() << "hipMemGetHandleForAddressRange comes with HIP 7";
    }
    const auto runtime = std::make_shared<FlavourRuntime<Hip>>(hip());
    const auto device_exports = std::make_shared<memory::DeviceExports>(runtime, memory::DeviceExports::Options{});
    std::vector<DevicePointer> made;
    for (unsigned i = 0; i < 64; ++i) {
        made.push_back(runtime->allocate(ByteCount{512U << (i % 10)}).value());
    }
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (const DevicePointer base : made) {
                const auto one = device_exports->export_at(base + 100_B);
                if (!one || (*one)->allocation.base != base || (*one)->start > base) {
                    ++failures;
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(device_exports->live_count(), 0U);
    for (const DevicePointer base : made) {
        EXPECT_TRUE(runtime->free(base));
    }
}

} // namespace
} // namespace upcie::gpu::hip
