// SPDX-License-Identifier: BSD-3-Clause
// GPUs by name, buffers of their memory, and simulated drives that reach it by copies.
#include <upcie/gpu/open.hpp>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/sim/device_memory.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::gpu {
namespace {
namespace by_name {

using namespace upcie::literals;
using memory::Buffer;
using memory::DeviceExports;
using testing::HasSubstr;

TEST(GpuName, WhatPeopleWrite) {
    const auto cuda = Name::parse("cuda").value();
    EXPECT_EQ(cuda.flavour, Name::Flavour::cuda);
    EXPECT_EQ(cuda.device, 0);
    EXPECT_EQ(Name::parse("cuda:12").value().device, 12);
    EXPECT_EQ(Name::parse("hip:1").value().flavour, Name::Flavour::hip);
    EXPECT_EQ(Name::parse("hip:1").value().device, 1);
    EXPECT_EQ(Name::parse("stub").value().manner, stub::Manner::exact);
    EXPECT_EQ(Name::parse("stub:suballocated").value().manner, stub::Manner::suballocated);
    for (const char* const text : {"", ":", "cuda:", "cuda: 1", "cuda:+1", "cuda:0x1", "cuda:1024", "cuda:00", "hip:01",
                                   "CUDA", "stub:", "stub:0"}) {
        const auto wrong = Name::parse(text);
        ASSERT_FALSE(wrong) << text;
        EXPECT_TRUE(wrong.error().is(EINVAL));
        EXPECT_THAT(wrong.error().message(), HasSubstr("stub:whole-object"));
    }
}

TEST(GpuOpen, EachFlavour) {
    const auto made = open(os::real_system(), Name::parse("stub:whole-object").value());
    ASSERT_TRUE(made);
    EXPECT_THAT((*made)->describe(), HasSubstr("whole-object"));
    ::setenv("UPCIE_CUDA_LIBRARY", UPCIE_FAKE_GPU_FOLDER "/libfake_cuda.so", 1);
    const auto cuda = open(os::real_system(), Name::parse("cuda:0").value());
    ASSERT_TRUE(cuda) << cuda.error().message();
    EXPECT_THAT((*cuda)->describe(), HasSubstr("CUDA 13.0"));
    EXPECT_TRUE(open(os::real_system(), Name::parse("cuda:3").value()).error().is(ENODEV));
    ::setenv("UPCIE_HIP_LIBRARY", UPCIE_FAKE_GPU_FOLDER "/libfake_hip.so", 1);
    const auto hip = open(os::real_system(), Name::parse("hip").value());
    ASSERT_TRUE(hip) << hip.error().message();
    EXPECT_THAT((*hip)->describe(), HasSubstr("HIP 7"));
    EXPECT_TRUE((*hip)->checksum(DevicePointer{4096}, 8_B).error().is(ENOTSUP)) << "to be copied";
    ::unsetenv("UPCIE_HIP_LIBRARY");
    ::unsetenv("UPCIE_CUDA_LIBRARY");
}

struct DeviceBuffers : testing::Test {
    static stub::Stub make() {
        stub::Options options;
        options.udmabuf_node.clear();
        return stub::Stub::create(os::real_system(), options).value();
    }
    stub::Stub device = make();
    std::shared_ptr<FlavourRuntime<stub::Stub>> runtime = std::make_shared<FlavourRuntime<stub::Stub>>(device);
    std::shared_ptr<DeviceExports> exports = std::make_shared<DeviceExports>(runtime, DeviceExports::Options{});
};

TEST_F(DeviceBuffers, AllocatedOnesAreFreedAndTheApplicationsAreNot) {
    DevicePointer start;
    {
        auto buffer = Buffer::allocate_on_device(exports, 1_MiB);
        ASSERT_TRUE(buffer) << buffer.error().message();
        EXPECT_TRUE(*buffer);
        EXPECT_TRUE(buffer->on_device());
        EXPECT_EQ(buffer->backing(), memory::Backing::device);
        EXPECT_EQ(buffer->size(), 1_MiB);
        EXPECT_EQ(buffer->fd(), -1);
        EXPECT_TRUE(buffer->bytes().empty()) << "the CPU has no way there";
        start = DevicePointer{reinterpret_cast<std::uintptr_t>(buffer->data())};
        const Buffer moved = std::move(*buffer);
        EXPECT_TRUE(device.allocation_of(start));
        const auto part = Buffer::of_device_memory(exports, start + 100_B, 1000_B).value();
        EXPECT_EQ(part.size(), 1000_B);
        EXPECT_EQ(part.data(), moved.data() + 100);
    }
    EXPECT_TRUE(device.allocation_of(start).error().is(EFAULT)) << "freed with its buffer";
    start = device.allocate(8_KiB).value();
    EXPECT_TRUE(Buffer::of_device_memory(exports, start, 8_KiB));
    EXPECT_TRUE(device.free(start)) << "the application's own";
}

TEST_F(DeviceBuffers, WhatIsNone) {
    EXPECT_TRUE(Buffer::allocate_on_device(exports, 0_B).error().is(EINVAL));
    const DevicePointer start = device.allocate(8_KiB).value();
    EXPECT_TRUE(Buffer::of_device_memory(exports, start, 0_B).error().is(EINVAL));
    EXPECT_TRUE(Buffer::of_device_memory(exports, start, ByteCount{~std::uint64_t{0}}).error().is(EINVAL));
    const auto beyond = Buffer::of_device_memory(exports, start, 8_KiB + 1_B);
    ASSERT_FALSE(beyond);
    EXPECT_TRUE(beyond.error().is(EFAULT));
    EXPECT_THAT(beyond.error().message(), HasSubstr("stub"));
    const auto space = sim::AddressSpace::create().value();
    const auto mapped = memory::DmaBuffer::map(Buffer::of_device_memory(exports, start, 8_KiB).value(), space);
    ASSERT_FALSE(mapped);
    EXPECT_TRUE(mapped.error().is(ENOTSUP));
    EXPECT_THAT(mapped.error().message(), HasSubstr("Registry"));
}

/// Reached by copies: what the drive writes is there, wherever in the allocation, and nothing beside it.
TEST_F(DeviceBuffers, ASimulatedDriveReachesThemByCopies) {
    for (const unsigned pages_per_run : {0U, 1U}) {
        SCOPED_TRACE(pages_per_run);
        sim::AddressSpaceOptions how;
        how.pages_per_run = pages_per_run;
        const auto space = sim::AddressSpace::create(how).value();
        DeviceExports::Options options;
        options.importer = sim::import_by_copies(space, runtime);
        const auto reached = std::make_shared<DeviceExports>(runtime, options);
        const auto registry = memory::Registry::create(os::real_system(), space).value();
        const Buffer whole = Buffer::allocate_on_device(reached, 3_MiB + 4_KiB).value();
        const auto base = reinterpret_cast<std::uintptr_t>(whole.data());
        const Buffer part = Buffer::of_device_memory(reached, DevicePointer{base + 100}, 3_MiB).value();
        auto registration = registry->register_buffer(part);
        ASSERT_TRUE(registration) << registration.error().message();
        std::uint64_t word = 0x1111;
        for (const ByteCount at : {0_B, 1_MiB - 108_B, 2_MiB, 3_MiB - 8_B}) {
            const auto found = registration->resolve(at, 8_B);
            ASSERT_TRUE(found);
            EXPECT_FALSE(space->write(found.extent.address, std::as_bytes(std::span{&word, 1})));
            std::uint64_t seen = 0;
            ASSERT_TRUE(device.copy_to_host(&seen, DevicePointer{base + 100 + at.value()}, 8_B));
            EXPECT_EQ(seen, word);
            seen = 0;
            EXPECT_FALSE(space->read(found.extent.address, std::as_writable_bytes(std::span{&seen, 1})));
            EXPECT_EQ(seen, word);
            EXPECT_FALSE(space->write_zeroes(found.extent.address, 8_B));
            ASSERT_TRUE(device.copy_to_host(&seen, DevicePointer{base + 100 + at.value()}, 8_B));
            EXPECT_EQ(seen, 0U);
            ++word;
        }
        const auto dword = registration->resolve(28_B, 4_B); // a multiple of 4 with the 100 before it
        EXPECT_FALSE(space->store_release(dword.extent.address, 0xabcd));
        std::uint32_t stored = 0;
        ASSERT_TRUE(device.copy_to_host(&stored, DevicePointer{base + 128}, 4_B));
        EXPECT_EQ(stored, 0xabcdU);
        const auto last = registration->resolve(3_MiB - 8_B, 8_B);
        const DmaAddress address = last.extent.address;
        registration->unregister();
        registry->reclaim();
        const auto gone = space->read(address, std::as_writable_bytes(std::span{&word, 1}));
        ASSERT_TRUE(gone);
        EXPECT_STREQ(gone->reason, "not mapped");
    }
}

TEST_F(DeviceBuffers, AFailingCopyIsAFaultOfTheAccess) {
    const auto space = sim::AddressSpace::create().value();
    DeviceExports::Options options;
    options.importer = sim::import_by_copies(space, runtime);
    const auto reached = std::make_shared<DeviceExports>(runtime, options);
    const auto registry = memory::Registry::create(os::real_system(), space).value();
    const DevicePointer start = device.allocate(8_KiB).value();
    auto registration = registry->register_device_memory(*reached, start, 8_KiB).value();
    const DmaAddress address = registration.resolve(0_B, 8_B).extent.address;
    ASSERT_TRUE(device.free(start)); // too early, which is the application's fault
    std::uint64_t word = 0;
    for (const auto& fault : {space->read(address, std::as_writable_bytes(std::span{&word, 1})),
                              space->write(address, std::as_bytes(std::span{&word, 1})),
                              space->write_zeroes(address, 8_B), space->store_release(address, 1)}) {
        ASSERT_TRUE(fault);
        EXPECT_THAT(fault->reason, HasSubstr("does not reach it"));
    }
    EXPECT_TRUE(space->reach_by(-1, {}).error().is(EBADF));
}

} // namespace by_name
} // namespace
} // namespace upcie::gpu
