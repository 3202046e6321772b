// SPDX-License-Identifier: BSD-3-Clause
// What the CUDA flavour must do, whatever is behind it: run against the tests' own library (unit level) and against
// NVIDIA's on a GPU (device level). What differs between drivers is the probes' business and not asserted here.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <upcie/gpu/checksum.hpp>
#include <upcie/gpu/cuda.hpp>
#include <upcie/gpu/flavour.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>

namespace upcie::gpu::cuda {
namespace {

using namespace upcie::literals;

static_assert(Flavour<Cuda>);

class CudaSuite : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        auto opened = Cuda::open(os::real_system());
        if (opened) {
            cuda_ = std::move(*opened);
        } else {
            why_ = opened.error().message();
        }
    }
    static void TearDownTestSuite() { cuda_.reset(); }
    void SetUp() override { ASSERT_TRUE(cuda_) << why_; }

    static Cuda& cuda() { return *cuda_; }
    static void expect_vendor(const Error& error, int code, std::string_view name) {
        EXPECT_EQ(error.domain, ErrorDomain::vendor) << error.message();
        EXPECT_EQ(error.code, code) << error.message();
        EXPECT_EQ(error.code_name, name);
        EXPECT_NE(error.message().find(name), std::string::npos);
    }
    /// An export of it has just the size asked.
    static void expect_exported(DevicePointer start, ByteCount length) {
        const auto made = cuda().export_range(start, length);
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_EQ(made->size, length);
        EXPECT_EQ(made->file_offset, 0_B);
        EXPECT_EQ(made->start, start);
    }
    static void expect_refused(DevicePointer start, ByteCount length) {
        const auto made = cuda().export_range(start, length);
        ASSERT_FALSE(made);
        expect_vendor(made.error(), 1, "CUDA_ERROR_INVALID_VALUE");
    }

    static std::optional<Cuda> cuda_;
    static std::string why_;
};
std::optional<Cuda> CudaSuite::cuda_;
std::string CudaSuite::why_;

TEST_F(CudaSuite, SaysWhatItIs) {
    const Identity& identity = cuda().identity();
    EXPECT_FALSE(identity.name.empty());
    EXPECT_EQ(identity.pci.size(), 12U) << identity.pci;
    EXPECT_GE(identity.driver_api, 11070);
    EXPECT_GT(identity.memory, 1_MiB);
    EXPECT_TRUE(identity.dma_buf);
    EXPECT_NE(identity.uuid, (std::array<std::uint8_t, 16>{}));
    EXPECT_NE(cuda().describe().find(identity.name), std::string::npos);
    EXPECT_EQ(cuda().reported_granularity(), 2_MiB);
}

TEST_F(CudaSuite, FromEveryPointerItsAllocation) {
    for (const ByteCount size : {512_B, 4_KiB, 140_KiB, 3_MiB + 4_KiB, 64_MiB}) {
        const auto base = cuda().allocate(size);
        ASSERT_TRUE(base) << base.error().message();
        for (const ByteCount inside : {0_B, 1_B, ByteCount{size.value() / 2}, size - 1_B}) {
            const auto found = cuda().allocation_of(*base + inside);
            ASSERT_TRUE(found) << found.error().message();
            EXPECT_EQ(*found, (Allocation{*base, size})) << inside.value();
        }
        EXPECT_TRUE(cuda().free(*base));
        EXPECT_FALSE(cuda().allocation_of(*base)) << "freed";
    }
    EXPECT_FALSE(cuda().allocation_of(DevicePointer{64}));
    EXPECT_EQ(cuda().allocation_of(DevicePointer{64}).error().domain, ErrorDomain::vendor);
}

TEST_F(CudaSuite, WhatCannotBeAllocatedOrFreed) {
    EXPECT_TRUE(cuda().allocate(0_B).error().is(EINVAL));
    expect_vendor(cuda().allocate(ByteCount{std::uint64_t{1} << 50}).error(), 2, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(cuda().free(DevicePointer{4096}).error().domain, ErrorDomain::vendor);
}

TEST_F(CudaSuite, ExportsAreJustTheRangeAsked) {
    const DevicePointer base = cuda().allocate(64_MiB).value();
    for (const ByteCount length : {4_KiB, 64_KiB, 2_MiB, 3_MiB, 64_MiB}) {
        expect_exported(base, length);
    }
    expect_exported(base + 4_KiB, 4_KiB);
    expect_exported(base + 2_MiB, 2_MiB);
    EXPECT_TRUE(cuda().free(base));
}

TEST_F(CudaSuite, ExportsReachPastTheReportedSizeToTheBackingsEnd) {
    const DevicePointer base = cuda().allocate(3_MiB + 4_KiB).value();
    expect_exported(base, 3_MiB + 4_KiB);
    expect_exported(base, 4_MiB);
    EXPECT_TRUE(cuda().free(base));
}

TEST_F(CudaSuite, WhatIsNotExported) {
    const DevicePointer base = cuda().allocate(4_MiB).value();
    expect_refused(base + 512_B, 4_KiB);
    expect_refused(base, 5000_B);
    expect_refused(base, 0_B);
    expect_refused(base, ByteCount{std::uint64_t{1} << 40});
    expect_vendor(cuda().export_range(base, 4_KiB, ExportMapping::pcie).error(), 801, "CUDA_ERROR_NOT_SUPPORTED");
    EXPECT_TRUE(cuda().free(base));
}

TEST_F(CudaSuite, SmallAllocationsAreExportedByWholePagesAroundThem) {
    std::vector<DevicePointer> made;
    for (int i = 0; i < 16; ++i) {
        made.push_back(cuda().allocate(ByteCount{1000U + static_cast<unsigned>(i) * 4096}).value());
        const Allocation found = cuda().allocation_of(made.back()).value();
        const std::uint64_t first = found.base.value() & ~std::uint64_t{4095};
        const std::uint64_t end = (found.base.value() + found.size.value() + 4095) & ~std::uint64_t{4095};
        expect_exported(DevicePointer{first}, ByteCount{end - first});
    }
    for (const DevicePointer base : made) {
        EXPECT_TRUE(cuda().free(base));
    }
}

TEST_F(CudaSuite, KindsOfMemory) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm}) {
        SCOPED_TRACE(to_string(kind));
        const auto base = cuda().allocate(kind, 4_MiB);
        ASSERT_TRUE(base) << base.error().message();
        EXPECT_EQ(cuda().allocation_of(*base + 100_B).value().base, *base);
        expect_exported(*base, 2_MiB);
        EXPECT_TRUE(cuda().free(kind, *base));
    }
    for (const MemoryKind kind : {MemoryKind::managed, MemoryKind::host}) {
        SCOPED_TRACE(to_string(kind));
        const auto base = cuda().allocate(kind, 4_MiB);
        ASSERT_TRUE(base) << base.error().message();
        expect_refused(*base, 4_KiB);
        EXPECT_TRUE(cuda().free(kind, *base));
    }
    EXPECT_FALSE(cuda().free(MemoryKind::vmm, DevicePointer{4096}));
    EXPECT_FALSE(cuda().free(MemoryKind::host, DevicePointer{4096}));
}

TEST_F(CudaSuite, CopiesAndKernelsSeeTheSameBytes) {
    std::vector<std::uint64_t> words(8192);
    std::iota(words.begin(), words.end(), 0x1122'3344'0000'0000);
    const DevicePointer base = cuda().allocate(64_KiB).value();
    ASSERT_TRUE(cuda().copy_to_device(base, words.data(), 64_KiB));
    std::vector<std::uint64_t> back(8192);
    ASSERT_TRUE(cuda().copy_to_host(back.data(), base, 64_KiB));
    EXPECT_EQ(back, words);
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{8191}}) {
        const auto value = cuda().read_by_kernel(base + ByteCount{index * 8});
        ASSERT_TRUE(value) << value.error().message();
        EXPECT_EQ(*value, words[index]);
    }
    EXPECT_TRUE(cuda().read_by_kernel(base + 4_B).error().is(EINVAL));
    EXPECT_TRUE(cuda().free(base));
}

// Both by the kernels that nvcc built, where there was one, and by those that are shipped in PTX.
TEST_F(CudaSuite, ChecksumsAreThoseOfTheHost) {
    Options options;
    options.shipped_kernels = true;
    auto shipped = Cuda::open(os::real_system(), options);
    ASSERT_TRUE(shipped) << shipped.error().message();
    EXPECT_EQ(shipped->kernels().value(), "kernels in PTX 6.4");
    EXPECT_NE(cuda().kernels().value(), "");
    RecordProperty("kernels", cuda().kernels().value());
    constexpr ByteCount size = 16_MiB;
    std::vector<std::byte> bytes(size.value());
    std::uint64_t state = 4711;
    for (std::byte& byte : bytes) {
        state = state * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<std::byte>(state >> 56);
    }
    const DevicePointer base = cuda().allocate(size).value();
    ASSERT_TRUE(cuda().copy_to_device(base, bytes.data(), size));
    for (Cuda* const one : {&cuda(), &*shipped}) {
        for (const auto& [offset, length] : std::vector<std::pair<ByteCount, ByteCount>>{
                 {0_B, 0_B}, {0_B, 8_B}, {8_B, 8_B}, {4_KiB, 512_B}, {24_B, 1_MiB}, {0_B, size}}) {
            const auto sum = one->checksum(base + offset, length);
            ASSERT_TRUE(sum) << sum.error().message();
            EXPECT_EQ(*sum, checksum(std::span{bytes}.subspan(offset.value(), length.value()))) << length.value();
        }
        EXPECT_TRUE(one->checksum(base + 4_B, 8_B).error().is(EINVAL));
        EXPECT_TRUE(one->checksum(base, 12_B).error().is(EINVAL));
        EXPECT_TRUE(one->checksum(base, ByteCount{std::uint64_t{1} << 40}).error().is(EFAULT));
        EXPECT_TRUE(one->checksum(DevicePointer{64}, 8_B).error().is(EFAULT));
    }
    std::swap(bytes[8], bytes[16]);
    EXPECT_NE(cuda().checksum(base, size).value(), checksum(bytes)) << "the same bytes in another order";
    EXPECT_TRUE(cuda().free(base));
}

TEST_F(CudaSuite, VmmMemoryGoesOutAndInAsAShareableHandle) {
    const DevicePointer base = cuda().allocate(MemoryKind::vmm, 2_MiB).value();
    const auto fd = cuda().export_shareable(base);
    ASSERT_TRUE(fd) << fd.error().message();
    const auto again = cuda().import_external(ExternalHandle::shareable_handle, fd->get(), 2_MiB);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_NE(*again, base);
    EXPECT_TRUE(cuda().release_external(*again));
    EXPECT_TRUE(cuda().release_external(*again).error().is(EINVAL)) << "twice";
    EXPECT_TRUE(cuda().free(MemoryKind::vmm, base));
    EXPECT_TRUE(cuda().export_shareable(base).error().is(EINVAL)) << "freed";
    EXPECT_TRUE(cuda().import_external(ExternalHandle::dma_buf_fd, -1, 4_KiB).error().is(EBADF));
}

TEST_F(CudaSuite, KernelsReachOrdinaryMemoryOnceItIsRegistered) {
    const os::Fd file{os::real_system(), ::memfd_create("cuda-suite", MFD_CLOEXEC)};
    ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
    const auto memory = os::Mapping::map(os::real_system(), file.get(), 0, 8_KiB);
    ASSERT_TRUE(memory) << memory.error().message();
    constexpr std::uint64_t word = 0x0123'4567'89ab'cdef;
    std::memcpy(memory->data() + 4096, &word, sizeof word);
    const auto reached = cuda().register_host(memory->data(), 8_KiB);
    ASSERT_TRUE(reached) << reached.error().message();
    const auto value = cuda().read_by_kernel(*reached + 4_KiB);
    ASSERT_TRUE(value) << value.error().message();
    EXPECT_EQ(*value, word);
    const auto released = cuda().unregister_host(memory->data());
    EXPECT_TRUE(released) << released.error().message();
    EXPECT_EQ(cuda().unregister_host(memory->data()).error().domain, ErrorDomain::vendor) << "twice";
    EXPECT_TRUE(cuda().register_host(memory->data(), 0_B).error().is(EINVAL));
}

TEST_F(CudaSuite, OnePeerReachesTheOther) {
    Options options;
    options.device = 1;
    auto other = Cuda::open(os::real_system(), options);
    if (!other) {
        GTEST_SKIP() << "one GPU alone: " << other.error().message();
    }
    const auto reaches = cuda().can_reach(*other);
    ASSERT_TRUE(reaches) << reaches.error().message();
    const DevicePointer here = cuda().allocate(4_KiB).value();
    const DevicePointer there = other->allocate(4_KiB).value();
    constexpr std::uint64_t word = 0x1234'5678'9abc'def0;
    ASSERT_TRUE(other->copy_to_device(there, &word, 8_B));
    const auto copied = cuda().copy_from_peer(here, *other, there, 8_B);
    ASSERT_TRUE(copied) << copied.error().message();
    EXPECT_EQ(cuda().read_by_kernel(here).value(), word);
    if (*reaches) {
        for (int i = 0; i < 2; ++i) {
            const auto enabled = cuda().enable_peer_access(*other);
            ASSERT_TRUE(enabled) << enabled.error().message();
        }
        EXPECT_EQ(cuda().read_by_kernel(there).value(), word) << "over the link";
    }
    EXPECT_TRUE(cuda().free(here));
    EXPECT_TRUE(other->free(there));
}

TEST_F(CudaSuite, ThreadsAllocateExportAndFreeAtOnce) {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&failures, t] {
            for (unsigned i = 0; i < 50; ++i) {
                const ByteCount size{512U + (t * 50 + i) * 3000};
                const auto base = cuda().allocate(size);
                if (!base || cuda().allocation_of(*base).value().size != size || !cuda().free(*base)) {
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
TEST_F(CudaSuite, EachAllocationIsExportedOnceFromSeveralThreads) {
    const auto runtime = std::make_shared<FlavourRuntime<Cuda>>(cuda());
    const auto exports = std::make_shared<memory::DeviceExports>(runtime, memory::DeviceExports::Options{});
    std::vector<DevicePointer> made;
    for (unsigned i = 0; i < 64; ++i) {
        made.push_back(runtime->allocate(ByteCount{512U << (i % 10)}).value());
    }
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (const DevicePointer base : made) {
                const auto one = exports->export_at(base + 100_B);
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
    EXPECT_EQ(exports->live_count(), 0U);
    for (const DevicePointer base : made) {
        EXPECT_TRUE(runtime->free(base));
    }
}

} // namespace
} // namespace upcie::gpu::cuda
