// SPDX-License-Identifier: BSD-3-Clause
// Device memory that goes, comes again, moves, or shares its pages: an address of yesterday is never handed out.
#include <array>
#include <cerrno>

#include <upcie/nvme/controller.hpp>
#include <upcie/nvme/namespace.hpp>

#include "gpu/device_bench.hpp"

namespace upcie::gpu {
namespace {

/// A drive on the bench's bus, its first block filled with 0xaa.
struct Drive {
    explicit Drive(Bench& bench)
        : controller{nvme::Controller::open(os::real_system(), bench.function).value()},
          format{nvme::Namespace::open(controller, Nsid{1}).value().format()},
          queue{controller->create_queue_pair({.depth = 16, .registry = bench.registry}).value()} {
        const std::vector<std::byte> block(4096, std::byte{0xaa});
        static_cast<sim::Function&>(*bench.function).controller()->write_medium(Nsid{1}, Lba{0}, block);
    }
    /// Reads it to device memory; false when the drive says that this failed.
    bool read(void* into) {
        if (!queue.read(format, Lba{0}, 8, into, 1)) {
            return false;
        }
        queue.ring();
        std::array<nvme::Completion, 4> done;
        while (queue.poll(done) == 0) {
            controller->function()->pause();
        }
        return done[0].ok();
    }
    std::shared_ptr<nvme::Controller> controller;
    nvme::BlockFormat format;
    nvme::QueuePair queue;
};

void* host_name(DevicePointer pointer) {
    return reinterpret_cast<void*>(pointer.value());
}

class Reuse : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Both, Reuse, testing::Values("sim:size=1M", raw_bus));

// Runtimes hand freed addresses out again. What was mapped for the memory before is another's now, also while a queue
// has not said yet that it is done with it.
TEST_P(Reuse, MemoryAllocatedAnewAtTheSameAddressIsReachedItself) {
    for (const bool drained : {true, false}) {
        SCOPED_TRACE(drained);
        Bench bench{in_manner(Manner::exact), GetParam()};
        Drive drive{bench};
        const DevicePointer before = bench.device->allocate(2_MiB).value();
        {
            const auto one = bench.add(before, 2_MiB).value();
            ASSERT_TRUE(drive.read(one.data()));
        }
        if (drained) {
            std::array<nvme::Completion, 4> none;
            static_cast<void>(drive.queue.poll(none));
        }
        ASSERT_TRUE(bench.device->free(before));
        const DevicePointer after = bench.device->allocate(2_MiB).value();
        ASSERT_EQ(after, before) << "or this test shows nothing";
        const auto again = bench.add(after, 2_MiB).value();
        ASSERT_TRUE(drive.read(again.data()));
        EXPECT_EQ(bench.device->read_by_kernel(after).value(), 0xaaaa'aaaa'aaaa'aaaaU);
        EXPECT_EQ(bench.exports->live_count(), 1U);
    }
}

TEST(DeviceLifetime, ARevokedExportServesNobodyElse) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    const DevicePointer base = bench.device->allocate(2_MiB).value();
    const auto one = bench.add(base, 2_MiB).value();
    EXPECT_TRUE(bench.add(base, 4_KiB));
    ASSERT_TRUE(bench.device->revoke(base));
    EXPECT_TRUE(bench.add(base, 4_KiB).error().is(ENODEV));
    auto other = memory::Registry::create(os::real_system(), bench.function->address_space()).value();
    EXPECT_TRUE(other->register_device_memory(*bench.exports, base, 4_KiB).error().is(ENODEV));
}

TEST(DeviceLifetime, ThatARevocationCannotBeAskedForIsAnError) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    DeviceExports::Options how;
    how.importer = [&](const Export& exported) -> Result<DeviceExports::Import> {
        return DeviceExports::Import{bench.device->scatter_list(exported).value(), nullptr,
                                     []() -> Result<bool> { return fail(EBADF, "ask", "test", "no"); }};
    };
    DeviceExports exports{bench.runtime, how};
    const DevicePointer base = bench.device->allocate(2_MiB).value();
    const auto one = bench.registry->register_device_memory(exports, base, 4_KiB).value();
    EXPECT_TRUE(bench.registry->register_device_memory(exports, base, 4_KiB).error().is(EBADF));
}

// Two small allocations in one page: each is exported with the page, and both are on the bus at once.
TEST(DeviceLifetime, NeighboursInOnePageRegisterAndStayApart) {
    Bench bench{in_manner(Manner::suballocated, {4_KiB}), raw_bus};
    std::vector<DevicePointer> made;
    std::vector<memory::Registration> live;
    for (const ByteCount size : {6000_B, 6000_B, 512_B, 512_B, 20'000_B}) {
        made.push_back(bench.device->allocate(size).value());
        auto one = bench.add(made.back(), size);
        ASSERT_TRUE(one) << one.error().message();
        live.push_back(std::move(*one));
        const std::uint64_t mark = made.back().value();
        ASSERT_TRUE(bench.device->copy_to_device(made.back(), &mark, 8_B));
    }
    const auto expect_reached = [&] {
        for (std::size_t i = 0; i < live.size(); ++i) {
            if (live[i]) {
                EXPECT_EQ(bench.bus_read(live[i].resolve(0_B, 8_B).extent.address), made[i].value());
            }
        }
    };
    expect_reached();
    for (const std::size_t gone : {std::size_t{1}, std::size_t{0}, std::size_t{4}}) { // not in the order of coming
        live[gone].unregister();
        bench.registry->reclaim();
        expect_reached();
    }
    live.clear();
    bench.registry->reclaim();
    const auto& space = static_cast<const sim::AddressSpace&>(*bench.function->address_space());
    EXPECT_EQ(space.mapping_count(), 0U);
}

TEST(DeviceLifetime, TwoDevicesOnOneBusAreTwo) {
    Bench first{in_manner(Manner::exact), raw_bus};
    Bench second{in_manner(Manner::exact), raw_bus};
    second.function = first.function;
    second.registry = first.registry;
    Drive drive{first};
    const DevicePointer one = first.device->allocate(1_MiB).value();
    const DevicePointer two = second.device->allocate(1_MiB).value();
    const auto a = first.add(one, 1_MiB).value();
    const auto b = second.add(two, 1_MiB).value();
    ASSERT_TRUE(drive.read(host_name(two)));
    EXPECT_EQ(first.device->read_by_kernel(one).value(), 0U);
    EXPECT_EQ(second.device->read_by_kernel(two).value(), 0xaaaa'aaaa'aaaa'aaaaU);
}

// Where an importer lies about a place, the bus does not believe it.
TEST(DeviceLifetime, OtherMemoryAtTheSamePlaceOnTheBusIsRefused) {
    Bench bench{in_manner(Manner::exact), raw_bus};
    std::optional<dmabuf::ScatterList> told;
    DeviceExports::Options how;
    how.importer = [&](const Export& exported) -> Result<DeviceExports::Import> {
        if (!told) {
            told = bench.device->scatter_list(exported).value();
        }
        return DeviceExports::Import{*told, nullptr};
    };
    DeviceExports exports{bench.runtime, how};
    const DevicePointer one = bench.device->allocate(2_MiB).value();
    const DevicePointer two = bench.device->allocate(2_MiB).value();
    const auto held = bench.registry->register_device_memory(exports, one, 2_MiB);
    ASSERT_TRUE(held);
    EXPECT_TRUE(bench.registry->register_device_memory(exports, two, 2_MiB).error().is(EEXIST));
    EXPECT_EQ(bench.bus_read(held->resolve(0_B, 8_B).extent.address), 0U) << "what was there stays";
}

TEST(DeviceLifetime, MigratedMemoryLiesBesideHostMemory) {
    stub::Options options = in_manner(Manner::exact);
    options.migrates = true;
    Bench bench{options, "sim:size=1M,scatter=1", true, false};
    const auto buffer = memory::Buffer::allocate(os::real_system(), 64_MiB).value();
    const auto host = bench.registry->register_buffer(buffer);
    ASSERT_TRUE(host);
    EXPECT_TRUE(bench.add(bench.device->allocate(1024_MiB).value(), 1024_MiB));
}

TEST(DeviceLifetime, TheStubHandsFreedMemoryOutAgain) {
    const auto create = [](ByteCount memory) {
        stub::Options options;
        options.memory = memory;
        return Stub::create(os::real_system(), options);
    };
    auto device = create(8_MiB).value();
    for (int i = 0; i < 100; ++i) {
        const DevicePointer a = device.allocate(3_MiB).value();
        const DevicePointer b = device.allocate(4_MiB).value();
        EXPECT_TRUE(device.allocate(1_MiB).error().is(ENOMEM)) << "4 MiB are with each";
        ASSERT_TRUE(device.free(i % 2 == 0 ? a : b));
        ASSERT_TRUE(device.free(i % 2 == 0 ? b : a));
        ASSERT_TRUE(device.free(device.allocate(8_MiB).value())) << "gaps that meet are one";
    }
    EXPECT_TRUE(create(ByteCount{~std::uint64_t{0}}).error().is(EINVAL));
    EXPECT_TRUE(create(0_B).error().is(EINVAL));
    EXPECT_TRUE(device.register_mmio(reinterpret_cast<void*>(~std::uint64_t{0} - 4095), 8_KiB).error().is(EINVAL));
}

} // namespace
} // namespace upcie::gpu
