// SPDX-License-Identifier: BSD-3-Clause
// The stub GPU behaves as its manner says, which is what was measured of real ones.
#include <upcie/gpu/stub.hpp>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/os/system.hpp>

#include <support/mock_system.hpp>

namespace upcie::gpu::stub {
namespace {

using namespace upcie::literals;
using testing::HasSubstr;

static_assert(Flavour<Stub>);

Stub make(Options options = {}) {
    options.udmabuf_node.clear(); // the same on every machine
    auto made = Stub::create(os::real_system(), std::move(options));
    EXPECT_TRUE(made) << made.error().message();
    return *made;
}
Stub make(Manner manner) {
    Options options;
    options.manner = manner;
    return make(options);
}

TEST(Stub, AnAllocationIsFoundFromEveryPointerIntoIt) {
    Stub stub = make();
    const ByteCount odd = 3_MiB + 4_KiB + 100_B;
    const DevicePointer base = stub.allocate(odd).value();
    for (const ByteCount inside : {0_B, 1_B, 2_MiB, odd - 1_B}) {
        EXPECT_EQ(stub.allocation_of(base + inside).value(), (Allocation{base, odd}));
    }
    EXPECT_TRUE(stub.allocation_of(base + odd).error().is(EFAULT));
    EXPECT_TRUE(stub.allocation_of(DevicePointer{base.value() - 1}).error().is(EFAULT));
    EXPECT_TRUE(stub.allocation_of(DevicePointer{0}).error().is(EFAULT));
    ASSERT_TRUE(stub.free(base));
    EXPECT_TRUE(stub.allocation_of(base).error().is(EFAULT));
    EXPECT_TRUE(stub.free(base).error().is(EINVAL)) << "twice";
    EXPECT_TRUE(stub.allocate(0_B).error().is(EINVAL));
    EXPECT_TRUE(stub.allocate(5_GiB).error().is(ENOMEM));
}

TEST(Stub, ExactExportsDescribeJustTheRange) {
    Stub stub = make(Manner::exact);
    const DevicePointer base = stub.allocate(64_MiB).value();
    const auto whole = stub.export_range(base, 64_MiB);
    const auto piece = stub.export_range(base + 2_MiB, 4_KiB);
    ASSERT_TRUE(whole && piece);
    EXPECT_EQ(piece->size, 4_KiB);
    const auto whole_list = stub.scatter_list(*whole).value();
    const auto piece_list = stub.scatter_list(*piece).value();
    EXPECT_EQ(whole_list.segment_count(), 1024U) << "64 KiB each";
    EXPECT_EQ(whole_list.runs().size(), 1U);
    EXPECT_EQ(whole_list.kind(), dmabuf::SegmentKind::bar);
    EXPECT_EQ(piece_list.total(), 4_KiB);
    EXPECT_EQ(piece_list.runs()[0].extent.address, whole_list.runs()[0].extent.address + 2_MiB);
}

TEST(Stub, ExactExportsReachTheEndOfTheBackingAndNoFarther) {
    Stub stub = make(Manner::exact);
    const DevicePointer base = stub.allocate(3_MiB + 4_KiB).value();
    EXPECT_EQ(stub.export_range(base, 3_MiB + 4_KiB)->size, 3_MiB + 4_KiB);
    EXPECT_EQ(stub.export_range(base, 4_MiB)->size, 4_MiB) << "past the reported size, as on the H200";
    EXPECT_TRUE(stub.export_range(base, 4_MiB + 4_KiB).error().is(EINVAL));
    EXPECT_TRUE(stub.export_range(base + 512_B, 4_KiB).error().is(EINVAL));
    EXPECT_TRUE(stub.export_range(base, 5000_B).error().is(EINVAL));
    EXPECT_TRUE(stub.export_range(base, 0_B).error().is(EINVAL));
    EXPECT_TRUE(stub.export_range(DevicePointer{4096}, 4_KiB).error().is(EINVAL));
}

TEST(Stub, WholeObjectsAreDescribedFromTheirBaseWhateverIsAsked) {
    Stub stub = make(Manner::whole_object);
    const DevicePointer base = stub.allocate(3_MiB + 4_KiB).value();
    EXPECT_EQ(stub.allocation_of(base)->size, 3_MiB + 4_KiB);
    const auto asked = stub.export_range(base + 2_MiB, 4_KiB);
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->size, 4_MiB);
    const auto whole = stub.export_range(base, 3_MiB + 4_KiB);
    EXPECT_EQ(stub.scatter_list(*asked)->runs()[0], stub.scatter_list(*whole)->runs()[0]);
}

TEST(Stub, SmallAllocationsShareABackingAndStartInsidePages) {
    Stub stub = make(Manner::suballocated);
    std::vector<DevicePointer> small;
    for (int i = 0; i < 3000; ++i) {
        small.push_back(stub.allocate(ByteCount{512 + static_cast<std::uint64_t>(i) % 3000}).value());
        ASSERT_NE(small.back().value() % 4096, 0U);
    }
    EXPECT_EQ(small[1].value() - small[0].value() < 4096, true) << "in the same page";
    EXPECT_TRUE(stub.export_range(small[0], 4_KiB).error().is(EINVAL));
    const DevicePointer below{small[0].value() & ~std::uint64_t{4095}};
    EXPECT_EQ(stub.export_range(below, 4_KiB)->size, 4_KiB) << "rounded to the pages around it";
    EXPECT_EQ(stub.allocate(1_MiB)->value() % (2 << 20), 0U) << "large ones have a backing of their own";
    for (const DevicePointer one : small) {
        ASSERT_TRUE(stub.free(one));
    }
    EXPECT_TRUE(stub.export_range(below, 4_KiB).error().is(EINVAL)) << "the backing went with the last of them";
}

TEST(Stub, RunsAreLaidOutAsAskedAndNeverMeet) {
    Options options;
    options.runs = {4_KiB, 12_KiB, 64_KiB};
    options.segment = 0_B;
    Stub stub = make(options);
    const DevicePointer base = stub.allocate(2_MiB).value();
    const auto list = stub.scatter_list(stub.export_range(base, 144_KiB).value()).value();
    std::vector<std::uint64_t> lengths;
    for (const auto& run : list.runs()) {
        lengths.push_back(run.extent.length.value() >> 10);
    }
    EXPECT_THAT(lengths, testing::ElementsAre(4, 12, 64, 64));
    EXPECT_EQ(list.granule(), 4_KiB);
    const auto inside = stub.scatter_list(stub.export_range(base + 8_KiB, 12_KiB).value()).value();
    ASSERT_EQ(inside.runs().size(), 2U);
    EXPECT_EQ(inside.runs()[0].extent, (Extent{list.runs()[1].extent.address + 4_KiB, 8_KiB}));
    for (const ByteCount bad : {0_B, 5000_B}) {
        options.runs = {bad};
        EXPECT_TRUE(Stub::create(os::real_system(), options).error().is(EINVAL));
    }
}

TEST(Stub, PiecesAreAllocationsByThemselves) {
    Options options;
    options.piece = 2_MiB;
    Stub stub = make(options);
    const DevicePointer base = stub.allocate(5_MiB).value();
    EXPECT_EQ(stub.allocation_of(base)->size, 2_MiB);
    EXPECT_EQ(stub.allocation_of(base + 4_MiB).value(), (Allocation{base + 4_MiB, 1_MiB}));
    EXPECT_TRUE(stub.export_range(base, 4_MiB).error().is(EINVAL)) << "across two backings";
    EXPECT_TRUE(stub.export_range(base + 2_MiB, 2_MiB));
    ASSERT_TRUE(stub.free(base));
    EXPECT_TRUE(stub.allocation_of(base + 4_MiB).error().is(EFAULT));
}

TEST(Stub, RefusedMigratedAndRevoked) {
    Options options;
    options.exports_refused = true;
    Stub refusing = make(options);
    EXPECT_TRUE(refusing.export_range(refusing.allocate(4_KiB).value(), 4_KiB).error().is(ENOTSUP));
    options.exports_refused = false;
    options.migrates = true;
    Stub migrating = make(options);
    const auto moved = migrating.export_range(migrating.allocate(4_KiB).value(), 4_KiB).value();
    EXPECT_EQ(migrating.scatter_list(moved)->kind(), dmabuf::SegmentKind::ram);

    Stub stub = make();
    const DevicePointer base = stub.allocate(4_KiB).value();
    const auto exported = stub.export_range(base, 4_KiB).value();
    ASSERT_TRUE(stub.revoke(base + 100_B));
    EXPECT_TRUE(stub.scatter_list(exported).error().is(ESTALE));
    EXPECT_TRUE(stub.export_range(base, 4_KiB).error().is(ENODEV));
    EXPECT_TRUE(stub.revoke(DevicePointer{1}).error().is(EFAULT));
    EXPECT_TRUE(make().scatter_list(exported).error().is(EINVAL)) << "another device's";
}

TEST(Stub, CopiesAndDeviceCodeSeeTheSameBytesAndTheCpuNone) {
    Stub stub = make();
    const DevicePointer base = stub.allocate(8_KiB + 16_B).value();
    std::vector<std::uint64_t> data(1024);
    std::iota(data.begin(), data.end(), 0x1234'0000'0000'0000);
    ASSERT_TRUE(stub.copy_to_device(base + 16_B, data.data(), 8_KiB));
    EXPECT_EQ(stub.read_by_kernel(base + 24_B).value(), data[1]);
    std::vector<std::uint64_t> back(1024);
    ASSERT_TRUE(stub.copy_to_host(back.data(), base + 16_B, 8_KiB));
    EXPECT_EQ(back, data);
    EXPECT_TRUE(stub.copy_to_host(back.data(), base + 24_B, 8_KiB).error().is(EFAULT)) << "past its end";
    EXPECT_TRUE(stub.read_by_kernel(base + 1_B).error().is(EINVAL));
    EXPECT_TRUE(stub.read_by_kernel(DevicePointer{8}).error().is(EFAULT));
    EXPECT_DEATH((void)*reinterpret_cast<volatile char*>(base.value()), "") << "a device pointer is none of the CPU's";
}

TEST(Stub, RegisteredMmioIsReadByDeviceCode) {
    Stub stub = make();
    alignas(4096) static std::uint64_t registers[512] = {1, 2, 3};
    const DevicePointer seen = stub.register_mmio(registers, 4_KiB).value();
    EXPECT_EQ(stub.read_by_kernel(seen + 16_B).value(), 3U);
    EXPECT_TRUE(stub.register_mmio(registers + 1, 4_KiB).error().is(EINVAL));
    ASSERT_TRUE(stub.unregister_mmio(registers));
    EXPECT_TRUE(stub.unregister_mmio(registers).error().is(EINVAL));
    EXPECT_TRUE(stub.read_by_kernel(seen).error().is(EFAULT));
}

TEST(Stub, MannersHaveNames) {
    for (const Manner manner : {Manner::exact, Manner::whole_object, Manner::suballocated}) {
        EXPECT_EQ(parse_manner(to_string(manner)).value(), manner);
        EXPECT_THAT(make(manner).describe(), HasSubstr(std::string{to_string(manner)}));
    }
    EXPECT_THAT(parse_manner("exactly").error().message(), HasSubstr("whole-object"));
}

TEST(Stub, FailuresOfTheHostAreErrors) {
    test::MockSystem system;
    EXPECT_CALL(system, mmap).WillOnce(testing::SetErrnoAndReturn(ENOMEM, MAP_FAILED));
    EXPECT_TRUE(Stub::create(system).error().is(ENOMEM));
    EXPECT_CALL(system, mmap).Times(testing::AnyNumber());
    Options options;
    options.udmabuf_node.clear();
    Stub stub = Stub::create(system, options).value();
    EXPECT_CALL(system, memfd_create).WillOnce(test::fails_with(EMFILE));
    EXPECT_TRUE(stub.allocate(4_KiB).error().is(EMFILE));
    EXPECT_CALL(system, memfd_create).Times(testing::AnyNumber());
    EXPECT_CALL(system, ftruncate).WillOnce(test::fails_with(EFBIG)).WillRepeatedly(testing::Invoke(::ftruncate));
    EXPECT_TRUE(stub.allocate(4_KiB).error().is(EFBIG));
    EXPECT_TRUE(stub.allocate(4_KiB)) << "nothing is left of the attempts";
}

} // namespace
} // namespace upcie::gpu::stub
