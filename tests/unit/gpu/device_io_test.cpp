// SPDX-License-Identifier: BSD-3-Clause
// From a device pointer to data in device memory: the stub's exports, the registry, PRPs, and a simulated controller
// that refuses every address it was not given.
#include <cerrno>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/os/system.hpp>
#include <upcie/sim/function.hpp>

#include "gpu/device_bench.hpp"

namespace upcie::gpu {
namespace {

using testing::HasSubstr;

class EveryManner : public testing::TestWithParam<std::tuple<Manner, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, EveryManner,
                         testing::Combine(testing::Values(Manner::exact, Manner::whole_object, Manner::suballocated),
                                          testing::Values("sim:size=64M,mdts=9", raw_bus)));

TEST_P(EveryManner, APointerResolvesToItsOwnBytes) {
    const auto& [manner, sim] = GetParam();
    Bench bench{in_manner(manner, {8_KiB, 64_KiB}), sim};
    for (const ByteCount size : {512_B, 4_KiB, 140_KiB, 3_MiB + 4_KiB}) {
        const DevicePointer base = bench.device->allocate(size).value();
        number(*bench.device, base, size);
        // From the base, from inside, at the end; odd starts and odd lengths.
        for (const ByteCount inside : {0_B, 8_B, ByteCount{size.value() / 16 * 8}, size - 16_B}) {
            const auto one = bench.add(base + inside, size - inside);
            ASSERT_TRUE(one) << one.error().message();
            ByteCount done;
            const auto extents = one->extents(0_B, size - inside);
            ASSERT_TRUE(extents);
            for (const Extent& extent : *extents) {
                // The first word of each extent and the last: that it begins well says nothing of its end.
                const std::uint64_t first = (inside + done).value() / 8;
                const std::uint64_t last = first + extent.length.value() / 8 - 1;
                EXPECT_EQ(bench.bus_read(extent.address), base.value() + first)
                    << size.value() << " + " << inside.value();
                EXPECT_EQ(bench.bus_read(extent.address + (extent.length - 8_B)), base.value() + last)
                    << size.value() << " + " << inside.value();
                done += extent.length;
            }
            EXPECT_EQ(done, size - inside);
            memory::Reader reader = bench.registry->attach();
            const void* const past = reinterpret_cast<const void*>(base.value() + size.value());
            EXPECT_FALSE(reader.resolve(past, 1_B)) << "the rest of the page is a neighbour's";
            if (inside != 0_B) {
                EXPECT_FALSE(reader.resolve(reinterpret_cast<const void*>(base.value()), 1_B));
            }
        }
    }
    EXPECT_EQ(bench.exports->live_count(), 0U) << "exports go with the last registration";
}

TEST_P(EveryManner, TheDriveReadsIntoDeviceMemoryAndWritesFromIt) {
    const auto& [manner, sim] = GetParam();
    Bench bench{in_manner(manner, {4_KiB, 12_KiB, 64_KiB}), sim};
    const auto controller = nvme::Controller::open(os::real_system(), bench.function).value();
    const nvme::BlockFormat format = nvme::Namespace::open(controller, Nsid{1}).value().format();
    auto queue = controller->create_queue_pair({.depth = 16}).value();
    ASSERT_TRUE(queue.attach(*bench.registry));
    const ByteCount size = 2_MiB - 512_B;
    const DevicePointer source = bench.device->allocate(size).value();
    const DevicePointer target = bench.device->allocate(size + 8_KiB).value();
    number(*bench.device, source, size);
    const auto from = bench.add(source, size).value();
    const auto into = bench.add(target, size + 8_KiB).value();
    const auto finish = [&](const nvme::Submitted& submitted) {
        ASSERT_TRUE(submitted) << submitted.error("transfer", "queue").message();
        queue.ring();
        std::array<nvme::Completion, 1> done;
        while (queue.poll(done) == 0) {
            bench.function->pause();
        }
        ASSERT_TRUE(done[0].ok()) << done[0].status().name();
    };
    const auto blocks = static_cast<std::uint32_t>(size.value() / 512);
    finish(queue.write(format, Lba{7}, blocks, from.data(), 1));
    finish(queue.read(format, Lba{7}, blocks, into.data() + 512, 2)); // from inside a page
    std::vector<std::uint64_t> got(size.value() / 8);
    ASSERT_TRUE(bench.device->copy_to_host(got.data(), target + 512_B, size));
    for (std::uint64_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], source.value() + i) << "word " << i;
    }
    EXPECT_EQ(bench.device->read_by_kernel(target + 504_B).value(), 0U) << "nothing before it";
    EXPECT_EQ(bench.device->read_by_kernel(target + 512_B + size).value(), 0U) << "and nothing behind";
}

TEST(DeviceMemory, OneExportServesEveryRegistrationOfAnAllocation) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    const DevicePointer base = bench.device->allocate(8_MiB).value();
    auto outer = bench.add(base, 8_MiB).value();
    auto inner = bench.add(base + 4_KiB, 64_KiB).value();
    auto again = bench.add(base + 4_KiB, 64_KiB).value();
    EXPECT_EQ(bench.imports, 1U);
    EXPECT_EQ(bench.exports->live_count(), 1U);
    EXPECT_EQ(inner.resolve(0_B, 8_B).extent.address, outer.resolve(4_KiB, 8_B).extent.address);
    outer.unregister();
    EXPECT_TRUE(inner.resolve(0_B, 64_KiB)) << "stays mapped";
    EXPECT_EQ(bench.exports->live_count(), 1U);
    inner.unregister();
    again.unregister();
    EXPECT_EQ(bench.exports->live_count(), 0U);
    // Another registry on the same bus: the export is shared, the mapping is not.
    auto other = memory::Registry::create(os::real_system(), bench.function->address_space()).value();
    auto first = bench.add(base, 4_KiB).value();
    auto second = other->register_device_memory(*bench.exports, base, 4_KiB).value();
    EXPECT_EQ(bench.exports->live_count(), 1U);
    first.unregister();
    EXPECT_EQ(bench.bus_read(second.resolve(0_B, 8_B).extent.address), 0U);
}

TEST(DeviceMemory, MemoryFreedAndAllocatedAnewIsExportedAnew) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    const DevicePointer base = bench.device->allocate(2_MiB).value();
    bench.add(base, 2_MiB).value().unregister();
    ASSERT_TRUE(bench.device->free(base));
    EXPECT_TRUE(bench.add(base, 4_KiB).error().is(EFAULT));
    const DevicePointer next = bench.device->allocate(2_MiB).value();
    EXPECT_TRUE(bench.add(next, 2_MiB));
    EXPECT_EQ(bench.imports, 2U);
}

TEST(DeviceMemory, ARegistrationMaySpanAllocationsThatFollowEachOther) {
    stub::Options options = in_manner(Manner::exact, {64_KiB});
    options.piece = 2_MiB;
    for (const char* sim : {"sim:size=64M", raw_bus}) {
        Bench bench{options, sim};
        const DevicePointer base = bench.device->allocate(5_MiB).value();
        for (std::uint64_t piece = 0; piece < 3; ++piece) {
            number(*bench.device, base + ByteCount{piece << 21}, piece < 2 ? 2_MiB : 1_MiB);
        }
        const auto one = bench.add(base + 1_MiB, 4_MiB);
        ASSERT_TRUE(one) << one.error().message();
        EXPECT_EQ(bench.imports, 3U) << "each piece by itself";
        for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1} << 20, (std::uint64_t{3} << 20) + 64}) {
            const std::uint64_t inside = (at + (1 << 20)) % (2 << 20);
            const std::uint64_t piece = base.value() + at + (1 << 20) - inside;
            EXPECT_EQ(bench.bus_read(one->resolve(ByteCount{at}, 8_B).extent.address), piece + inside / 8);
        }
        const auto across = one->resolve(1_MiB - 4_KiB, 8_KiB);
        EXPECT_EQ(across.extent.length, 4_KiB) << "not contiguous where the pieces meet";
        const auto beyond = bench.add(base + 4_MiB, 2_MiB);
        ASSERT_FALSE(beyond);
        EXPECT_TRUE(beyond.error().is(EFAULT));
        EXPECT_THAT(beyond.error().message(), HasSubstr("leaves its allocations after 1048576 bytes"));
    }
}

TEST(DeviceMemory, WhatCannotBeTranslatedIsRefusedWithItsReason) {
    {
        Bench bench{in_manner(Manner::exact), raw_bus, false};
        const auto none = bench.add(bench.device->allocate(4_KiB).value(), 4_KiB);
        EXPECT_TRUE(none.error().is(EOPNOTSUPP));
        EXPECT_THAT(none.error().message(), HasSubstr("importer"));
    }
    stub::Options options = in_manner(Manner::exact);
    options.exports_refused = true;
    Bench refusing{options};
    EXPECT_TRUE(refusing.add(refusing.device->allocate(4_KiB).value(), 4_KiB).error().is(ENOTSUP));

    options.exports_refused = false;
    options.migrates = true;
    Bench migrating{options, raw_bus};
    const auto moved = migrating.add(migrating.device->allocate(4_KiB).value(), 4_KiB);
    EXPECT_TRUE(moved.error().is(EREMOTE));
    EXPECT_THAT(moved.error().message(), HasSubstr("system memory"));
    Bench allowed{options, raw_bus, true, false};
    EXPECT_TRUE(allowed.add(allowed.device->allocate(4_KiB).value(), 4_KiB));

    Bench bench{in_manner(Manner::exact), raw_bus};
    const DevicePointer base = bench.device->allocate(4_KiB).value();
    EXPECT_TRUE(bench.add(base, 0_B).error().is(EINVAL));
    EXPECT_TRUE(bench.add(base, ByteCount{~std::uint64_t{0}}).error().is(EINVAL));
    EXPECT_TRUE(bench.add(DevicePointer{0x1000}, 4_KiB).error().is(EFAULT));
    EXPECT_TRUE(bench.add(base + 1_B, 4_KiB).error().is(EFAULT)) << "a byte past the end";
    const DevicePointer odd = bench.device->allocate(5000_B).value();
    EXPECT_TRUE(bench.add(odd, 5000_B));
    EXPECT_TRUE(bench.add(odd, 5001_B).error().is(EFAULT)) << "a byte past the end, in a page that is exported";
}

TEST(DeviceMemory, AnImportOfLessThanWasAskedIsRefused) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    DeviceExports::Options how;
    how.importer = [&](const Export& exported) -> Result<DeviceExports::Import> {
        const auto whole = bench.device->scatter_list(exported).value();
        const dmabuf::Segment cut{whole.runs()[0].extent.address, exported.size - 4_KiB, dmabuf::SegmentKind::bar};
        return DeviceExports::Import{dmabuf::ScatterList::from_segments({&cut, 1}, "cut").value(), nullptr};
    };
    DeviceExports exports{bench.runtime, how};
    const DevicePointer base = bench.device->allocate(64_KiB).value();
    const auto less = bench.registry->register_device_memory(exports, base, 4_KiB);
    ASSERT_FALSE(less);
    EXPECT_TRUE(less.error().is(ERANGE));
    EXPECT_THAT(less.error().message(), HasSubstr("describes 61440 bytes"));
}

// For TSan above all.
TEST(DeviceMemory, ThreadsRegisterTheSameAllocationAtOnce) {
    for (const char* sim : {"sim:size=64M", raw_bus}) {
        Bench bench{in_manner(Manner::suballocated, {4_KiB, 16_KiB}), sim};
        const DevicePointer small = bench.device->allocate(3000_B).value();
        const DevicePointer large = bench.device->allocate(4_MiB).value();
        std::vector<std::thread> threads;
        std::atomic<unsigned> wrong{0};
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                for (int round = 0; round < 40; ++round) {
                    const auto one = bench.add(small, 3000_B);
                    const auto two = bench.add(large + ByteCount{static_cast<std::uint64_t>(round) * 8}, 1_MiB);
                    wrong += one && two && one->resolve(0_B, 100_B) && two->resolve(0_B, 100_B) ? 0 : 1;
                }
            });
        }
        for (auto& thread : threads) {
            thread.join();
        }
        EXPECT_EQ(wrong.load(), 0U);
        EXPECT_EQ(bench.exports->live_count(), 0U);
    }
}

} // namespace
} // namespace upcie::gpu
