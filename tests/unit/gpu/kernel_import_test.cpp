// SPDX-License-Identifier: BSD-3-Clause
// Device memory by way of the kernel module: what it answers is what resolves, for as long as the registration lives.
#include <cerrno>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>

#include <support/fake_dma_buf.hpp>
#include <support/fake_importer.hpp>
#include <support/mock_system.hpp>
#include <support/scattered_space.hpp>

namespace upcie::gpu {
namespace {

using namespace upcie::literals;
using stub::Stub;
using testing::IsEmpty;
using testing::SizeIs;

class KernelImport : public testing::Test {
  protected:
    KernelImport() {
        test::show_fdinfo(system_, "size:\t12288\nexp_name:\tnv_dmabuf\n", folder_);
        module_.segments = {{0x8000, 8192, uapi::dmabuf_import_kind_bar, 0},
                            {0xf000, 4096, uapi::dmabuf_import_kind_bar, 0}};
        stub::Options options;
        options.udmabuf_node.clear();
        runtime_ = std::make_shared<FlavourRuntime<Stub>>(Stub::create(os::real_system(), options).value());
        auto importer = std::make_shared<dmabuf::Importer>(dmabuf::Importer::open(system_).value());
        memory::DeviceExports::Options how;
        how.importer = memory::import_by_kernel(system_, importer, {0, 1, 2, 3});
        exports_ = std::make_unique<memory::DeviceExports>(runtime_, how);
        base_ = runtime_->allocate(12_KiB).value();
    }
    test::MockSystem system_;
    test::FakeImporter module_{system_};
    test::TempDirectory folder_;
    std::shared_ptr<FlavourRuntime<Stub>> runtime_;
    std::unique_ptr<memory::DeviceExports> exports_;
    DevicePointer base_;
    // Nothing translates in it, so that the module's addresses are what counts.
    std::shared_ptr<memory::Registry> registry_ =
        memory::Registry::create(os::real_system(), std::make_shared<test::ScatteredSpace>(1)).value();
};

TEST_F(KernelImport, TheModulesAddressesResolveAndItsHandleLivesAsLong) {
    auto one = registry_->register_device_memory(*exports_, base_ + 100_B, 12_KiB - 100_B);
    ASSERT_TRUE(one) << one.error().message();
    ASSERT_THAT(module_.imports, SizeIs(1));
    EXPECT_EQ(module_.imports[0].bus, 1U);
    EXPECT_EQ(module_.imports[0].function, 3U);
    const auto extents = one->extents(0_B, 12_KiB - 100_B);
    ASSERT_TRUE(extents);
    EXPECT_THAT(*extents,
                testing::ElementsAre(Extent{DmaAddress{0x8064}, 8_KiB - 100_B}, Extent{DmaAddress{0xf000}, 4_KiB}));
    EXPECT_THAT(module_.handles, SizeIs(1));
    one->unregister();
    registry_->reclaim();
    EXPECT_THAT(module_.handles, IsEmpty()) << "the import is let go of with the last registration";
}

// Where the host's memory is in hugepages (uio and pagemap), a GPU's pages are as small as ever.
TEST_F(KernelImport, TheGranuleOfTheHostsMemoryIsNotTheDevices) {
    constexpr std::uint64_t hugepage = std::uint64_t{2} << 20;
    const auto registry =
        memory::Registry::create(os::real_system(), std::make_shared<test::ScatteredSpace>(1, hugepage)).value();
    const auto one = registry->register_device_memory(*exports_, base_ + 100_B, 9000_B);
    ASSERT_TRUE(one) << one.error().message();
    EXPECT_THAT(one->extents(0_B, 9000_B).value(),
                testing::ElementsAre(Extent{DmaAddress{0x8064}, 8_KiB - 100_B}, Extent{DmaAddress{0xf000}, 908_B}));
}

TEST_F(KernelImport, WhatTheModuleRefusesIsNotRegistered) {
    module_.facts.addressing = uapi::dmabuf_import_addressing_default_domain;
    EXPECT_TRUE(registry_->register_device_memory(*exports_, base_, 4_KiB).error().is(EOPNOTSUPP));
    module_.facts.addressing = uapi::dmabuf_import_addressing_physical;
    module_.segments[1].kind = uapi::dmabuf_import_kind_ram;
    EXPECT_TRUE(registry_->register_device_memory(*exports_, base_, 4_KiB).error().is(EREMOTE));
    module_.segments.pop_back();
    EXPECT_TRUE(registry_->register_device_memory(*exports_, base_, 4_KiB).error().is(ERANGE));
    EXPECT_THAT(module_.handles, IsEmpty());
    EXPECT_CALL(system_, fcntl).WillOnce(test::fails_with(EMFILE));
    EXPECT_TRUE(registry_->register_device_memory(*exports_, base_, 4_KiB).error().is(EMFILE));
}

} // namespace
} // namespace upcie::gpu
