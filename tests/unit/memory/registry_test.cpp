// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <upcie/memory/registry.hpp>
#include <upcie/os/system.hpp>

#include "support/scattered_space.hpp"

namespace upcie::memory {
namespace {

using namespace upcie::literals;
using test::ScatteredSpace;

// Registration never touches the memory, so made-up pointers do: they lie where a test wants them.
void* at(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}

struct RegistryTest : testing::Test {
    std::shared_ptr<ScatteredSpace> space = std::make_shared<ScatteredSpace>();
    std::shared_ptr<Registry> registry = Registry::create(os::real_system(), space).value();

    Registration add(std::uint64_t base, std::uint64_t length) {
        auto registration = registry->register_memory(at(base), ByteCount{length});
        EXPECT_TRUE(registration) << registration.error().message();
        return std::move(*registration);
    }
};

TEST_F(RegistryTest, BusAddressZeroIsAnAnswer) {
    const Registration one = add(0x7000'0000, 4096);
    const Resolution resolution = registry->attach().resolve(at(0x7000'0000), 4_KiB);
    ASSERT_TRUE(resolution);
    EXPECT_EQ(resolution.extent.address, DmaAddress{0});
    EXPECT_EQ(resolution.extent.length, 4_KiB);
}

TEST_F(RegistryTest, ARunEndsWithTheLastAddress) {
    class Edge final : public iommu::AddressSpace {
      public:
        [[nodiscard]] iommu::AddressSpaceKind kind() const noexcept override {
            return iommu::AddressSpaceKind::simulated;
        }
        [[nodiscard]] std::string describe() const override { return "the edge"; }
        [[nodiscard]] bool translating() const noexcept override { return false; }
        [[nodiscard]] Result<std::vector<iommu::IovaRange>> iova_ranges() override {
            return std::vector<iommu::IovaRange>{};
        }
        [[nodiscard]] ByteCount granule() const noexcept override { return 4_KiB; }

      protected:
        Result<Mapped> do_map_memory(void*, ByteCount, iommu::Access) override {
            return Mapped{1, {{DmaAddress{~std::uint64_t{0} - 4095}, 4_KiB}, {DmaAddress{0}, 4_KiB}}};
        }
        Result<Mapped> do_map_file(int, ByteCount, ByteCount, iommu::Access) override {
            return fail(EOPNOTSUPP, "map", "test", "");
        }
        Result<void> do_unmap(std::uint64_t, ByteCount) override { return {}; }
    };
    const auto other = Registry::create(os::real_system(), std::make_shared<Edge>()).value();
    const auto one = other->register_memory(at(0x7000'0000), 8_KiB);
    ASSERT_TRUE(one);
    EXPECT_EQ(one->extents(0_B, 8_KiB).value().size(), 2U);
}

TEST_F(RegistryTest, NothingOutsideARegistrationResolvesAlsoInItsPages) {
    // 100 bytes in the middle of a page: the page is mapped, its other bytes are a neighbour's.
    const Registration one = add(0x7000'0100, 100);
    Reader reader = registry->attach();
    EXPECT_TRUE(reader.resolve(at(0x7000'0100), 100_B));
    EXPECT_TRUE(reader.resolve(at(0x7000'0163), 1_B));
    EXPECT_EQ(reader.resolve(at(0x7000'00ff), 1_B).refusal, Refusal::not_registered);
    EXPECT_EQ(reader.resolve(at(0x7000'0164), 1_B).refusal, Refusal::not_registered);
    EXPECT_EQ(reader.resolve(at(0x7000'0100), 101_B).refusal, Refusal::out_of_bounds);
    EXPECT_EQ(reader.resolve(at(0x7000'00ff), 2_B).refusal, Refusal::not_registered);
    // What does resolve keeps its offset into the granule.
    EXPECT_EQ(reader.resolve(at(0x7000'0110), 4_B).extent.address, DmaAddress{0x110});
}

TEST_F(RegistryTest, RangesThatWrapOrAreEmptyAreRefused) {
    const Registration one = add(0x7000'0000, 1U << 20);
    Reader reader = registry->attach();
    EXPECT_EQ(reader.resolve(at(0x7000'0000), 0_B).refusal, Refusal::empty);
    EXPECT_EQ(reader.resolve(at(0x7000'1000), ByteCount{~std::uint64_t{0}}).refusal, Refusal::out_of_bounds);
    EXPECT_EQ(reader.resolve(at(0x7000'1000), ByteCount{~std::uint64_t{0} - 0x7000'0fff}).refusal,
              Refusal::out_of_bounds);
    EXPECT_EQ(reader.resolve(at(0x7000'1000), ByteCount{std::uint64_t{1} << 33}).refusal, Refusal::out_of_bounds);
    // The same low 48 bits with others set above are another pointer.
    EXPECT_EQ(reader.resolve(at(0xffff'0000'7000'0000), 4_KiB).refusal, Refusal::not_registered);
    EXPECT_EQ(reader.resolve(at(0x0001'0000'7000'0000), 4_KiB).refusal, Refusal::not_registered);
    EXPECT_EQ(one.resolve(1_MiB, 1_B).refusal, Refusal::out_of_bounds);
    EXPECT_EQ(one.resolve(ByteCount{~std::uint64_t{0}}, 2_B).refusal, Refusal::out_of_bounds);
    EXPECT_EQ(one.resolve(4_KiB, 0_B).refusal, Refusal::empty);

    EXPECT_EQ(registry->register_memory(at(0x1000), 0_B).error().code, EINVAL);
    EXPECT_EQ(registry->register_memory(at(0x1000), ByteCount{~std::uint64_t{0}}).error().code, EINVAL);
    EXPECT_EQ(registry->register_memory(at(TranslationIndex::address_limit - 4096), 8_KiB).error().code, EINVAL);
    EXPECT_TRUE(registry->register_memory(at(TranslationIndex::address_limit - 4096), 4_KiB));
}

TEST_F(RegistryTest, EnclosingOverlappingAbuttingAndRepeatedRangesAreEachTheirOwn) {
    const Registration outer = add(0x7000'0000, 64U << 10);
    Registration inner = add(0x7000'4000, 16U << 10);         // enclosed
    const Registration overlap = add(0x7000'e000, 16U << 10); // over the end
    const Registration next = add(0x7001'2000, 4096);         // abuts the overlap
    Registration again = add(0x7000'0000, 64U << 10);         // the same once more
    Reader reader = registry->attach();
    const auto address = [&](std::uint64_t pointer, ByteCount bytes) {
        const Resolution resolution = reader.resolve(at(pointer), bytes);
        EXPECT_TRUE(resolution) << pointer;
        return resolution.extent.address;
    };
    const auto base = [](const Registration& one) { return one.resolve(0_B, 1_B).extent.address; };
    // The newest that holds the whole range answers.
    EXPECT_EQ(address(0x7000'4000, 4_KiB), base(again) + 16_KiB);
    EXPECT_EQ(address(0x7000'e000, 16_KiB), base(overlap));                             // too long for `again`
    EXPECT_EQ(reader.resolve(at(0x7000'f000), 20_KiB).refusal, Refusal::out_of_bounds); // across two
    again.unregister();
    EXPECT_EQ(address(0x7000'4000, 4_KiB), base(inner));
    EXPECT_EQ(address(0x7000'4000, 32_KiB), base(outer) + 16_KiB); // inner is too short
    inner.unregister();
    EXPECT_EQ(address(0x7000'4000, 4_KiB), base(outer) + 16_KiB);
    EXPECT_EQ(address(0x7001'2000, 4_KiB), base(next));
}

TEST_F(RegistryTest, ScatteredMemoryAnswersItsRuns) {
    space = std::make_shared<ScatteredSpace>(3); // runs of 12 KiB
    registry = Registry::create(os::real_system(), space).value();
    const Registration one = add(0x7000'0800, 40U << 10); // starts inside a page: 11 pages mapped
    const auto extents = registry->resolve(at(0x7000'0800), 40_KiB);
    ASSERT_TRUE(extents);
    ASSERT_EQ(extents->size(), 4U);
    EXPECT_EQ((*extents)[0], (iommu::Extent{DmaAddress{0x800}, ByteCount{0x2800}}));
    EXPECT_EQ((*extents)[1], (iommu::Extent{DmaAddress{0x4000}, 12_KiB}));
    EXPECT_EQ((*extents)[3], (iommu::Extent{DmaAddress{0xc000}, ByteCount{0x1800}}));
    const Resolution inside = one.resolve(ByteCount{0x2700}, 4_KiB);
    EXPECT_EQ(inside.extent, (iommu::Extent{DmaAddress{0x2f00}, ByteCount{0x100}}));
    EXPECT_EQ(one.extents(0_B, 41_KiB).error().code, EFAULT);
}

TEST_F(RegistryTest, UnmappingWaitsForEveryReader) {
    Reader first = registry->attach();
    std::optional<Reader> second = registry->attach();
    Registration one = add(0x7000'0000, 4096);
    one.unregister();
    EXPECT_EQ(first.resolve(at(0x7000'0000), 4_KiB).refusal, Refusal::not_registered)
        << "gone at once for new commands";
    EXPECT_EQ(registry->reclaim(), 1U);
    EXPECT_EQ(space->mapped(), 1U) << "and mapped as long as a reader may use what it resolved before";
    ASSERT_TRUE(first.behind());
    first.announce(first.epoch());
    EXPECT_FALSE(first.behind());
    EXPECT_EQ(registry->reclaim(), 1U);
    second.reset(); // leaving counts as announcing
    EXPECT_EQ(registry->reclaim(), 0U);
    EXPECT_EQ(space->mapped(), 0U);
}

TEST_F(RegistryTest, WhatARegistrationKeepsGoesAfterItsMapping) {
    struct Witness {
        ScatteredSpace* space;
        std::size_t* mapped_at_end;
        ~Witness() { *mapped_at_end = space->mapped(); }
    };
    std::size_t mapped_at_end = 99;
    {
        auto mapping = space->map_memory(at(0x7000'0000), 8_KiB);
        auto registration =
            registry->register_mapping(at(0x7000'0800), 4_KiB, std::move(*mapping), 2_KiB,
                                       std::shared_ptr<void>{new Witness{space.get(), &mapped_at_end},
                                                             [](void* p) { delete static_cast<Witness*>(p); }});
        ASSERT_TRUE(registration);
        EXPECT_EQ(registration->resolve(0_B, 1_B).extent.address, DmaAddress{0x800});
    }
    EXPECT_EQ(mapped_at_end, 0U);
    auto small = space->map_memory(at(0x7000'0000), 4_KiB);
    EXPECT_EQ(registry->register_mapping(at(0x7000'0000), 4_KiB, std::move(*small), 1_B).error().code, EINVAL);
}

TEST_F(RegistryTest, ADetachedReaderRefuses) {
    Reader reader;
    EXPECT_EQ(reader.resolve(at(0x1000), 1_B).refusal, Refusal::no_registry);
    EXPECT_FALSE(reader.behind());
}

TEST_F(RegistryTest, LargeRegistrationsTakeNoMoreMemoryThanSmallOnes) {
    const Registration large = add(0x10'0000'0000, std::uint64_t{64} << 30);
    EXPECT_LE(registry->index_memory(), 64_KiB);
    Reader reader = registry->attach();
    EXPECT_EQ(reader.resolve(at(0x1f'ffff'f000), 4_KiB).extent.address, DmaAddress{0xf'ffff'f000});
    EXPECT_EQ(reader.resolve(at(0x1f'ffff'f000), 8_KiB).refusal, Refusal::out_of_bounds);
    // A second registration inside gets a leaf of its own and goes without a trace.
    add(0x18'0000'0000, 4096).unregister();
    EXPECT_EQ(reader.resolve(at(0x18'0000'0000), 8_KiB).extent.address, DmaAddress{0x8'0000'0000});
}

// For TSan above all: one thread registers and unregisters while others resolve.
TEST_F(RegistryTest, ResolvesWhileOthersRegister) {
    const Registration steady = add(0x7000'0000, 8192);
    const DmaAddress expected = steady.resolve(0_B, 1_B).extent.address;
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            Reader reader = registry->attach();
            while (!stop.load()) {
                const Resolution sure = reader.resolve(at(0x7000'0000), 8_KiB);
                wrong += !sure || sure.extent.address != expected ? 1 : 0;
                const Resolution maybe = reader.resolve(at(0x7000'2000), 4_KiB); // comes and goes
                wrong += maybe && maybe.extent.length != 4_KiB ? 1 : 0;
                if (reader.behind()) {
                    reader.announce(reader.epoch());
                }
            }
        });
    }
    for (int i = 0; i < 300; ++i) {
        add(0x7000'2000, 4096 + 4096 * static_cast<std::uint64_t>(i % 3)).unregister();
        add(0x7000'1800, 1024).unregister(); // shares the steady one's page
    }
    stop = true;
    for (std::thread& thread : readers) {
        thread.join();
    }
    EXPECT_EQ(wrong.load(), 0U);
}

} // namespace
} // namespace upcie::memory
