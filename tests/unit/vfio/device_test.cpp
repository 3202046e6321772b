// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/device.hpp>

#include <sys/mman.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_address_space.hpp>
#include <support/fake_iommufd.hpp>
#include <support/fake_sysfs.hpp>
#include <support/fake_vfio_device.hpp>

namespace upcie::vfio {
namespace {

using test::FakeIommufd;
using test::FakeVfioDevice;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;

class Device : public testing::Test {
  protected:
    Device() {
        function_.driver = "vfio-pci";
        function_.iommu_group = 7;
        function_.vfio_name = "vfio0";
        function_.vfio_node = true;
        sysfs_.add(function_);
        ON_CALL(system_, close(FakeIommufd::fd)).WillByDefault([this](int) {
            device_.events.emplace_back("close iommufd");
            return 0;
        });
    }
    pci::FunctionInfo info() { return *pci::find_function(system_, *pci::Bdf::parse("01:00.0"), sysfs_.roots()); }
    Result<std::unique_ptr<VfioFunction>> open() {
        return VfioFunction::open_cdev(system_, info(), nullptr, sysfs_.roots());
    }

    test::FakeFunction function_;
    test::FakeSysfs sysfs_;
    test::MockSystem system_;
    FakeIommufd iommufd_{system_};
    FakeVfioDevice device_{system_, sysfs_.path("dev/vfio/devices/vfio0")};
};

TEST_F(Device, BindsAndAttachesToAnIoasOfItsOwn) {
    auto f = open();
    ASSERT_TRUE(f) << f.error().message();
    EXPECT_EQ(device_.bound_to, static_cast<unsigned>(FakeIommufd::fd));
    EXPECT_EQ(device_.attached_to, *iommufd_.objects.begin());
    EXPECT_EQ((*f)->device_id(), 11U);
    EXPECT_EQ((*f)->identity().class_code, 0x010802U);
    EXPECT_EQ((*f)->path(), "vfio cdev + iommufd");
    EXPECT_EQ((*f)->address_space()->kind(), iommu::AddressSpaceKind::iommufd);
}

TEST_F(Device, TheEndIsInOrder) {
    {
        auto f = open();
        ASSERT_TRUE(f);
        const std::array fds{5, 6};
        ASSERT_TRUE((*f)->set_bus_master(true) && (*f)->enable_interrupts(fds));
        device_.events.clear();
    }
    EXPECT_THAT(device_.events, ElementsAre("interrupts off 2", "bus master off", "close device", "close iommufd"));
    EXPECT_TRUE(iommufd_.objects.empty()) << "and the IOAS is destroyed";
}

TEST_F(Device, SharesTheAddressSpaceItIsGiven) {
    auto fd = iommu::Iommufd::open(system_);
    auto space = iommu::IoasAddressSpace::create(*fd);
    ASSERT_TRUE(space);
    auto f = VfioFunction::open_cdev(system_, info(), *space, sysfs_.roots());
    ASSERT_TRUE(f) << f.error().message();
    EXPECT_EQ((*f)->address_space(), *space);
    EXPECT_EQ(device_.attached_to, (*space)->ioas_id());
    EXPECT_EQ(iommufd_.objects.size(), 1U);
}

TEST_F(Device, ABindRefusedNamesTheOtherDevices) {
    test::FakeFunction other;
    other.bdf = "0000:01:00.1";
    other.driver = "ahci";
    other.class_code = "0x010601";
    other.iommu_group = 7;
    sysfs_.add(other);
    device_.failures[uapi::vfio_device_bind_iommufd] = EPERM;
    auto f = open();
    ASSERT_FALSE(f);
    EXPECT_THAT(f.error().message(), HasSubstr("0000:01:00.1 (ahci)"));
    EXPECT_THAT(device_.events, ElementsAre("close device", "close iommufd")) << "nothing is left open";
    EXPECT_TRUE(iommufd_.objects.empty());
}

TEST_F(Device, EachFailingStepClosesEverything) {
    for (const auto request :
         {uapi::vfio_device_bind_iommufd, uapi::vfio_device_attach_iommufd_pt, uapi::vfio_device_get_info}) {
        device_.events.clear();
        device_.failures = {{request, EINVAL}};
        EXPECT_FALSE(open());
        EXPECT_EQ(std::count(device_.events.begin(), device_.events.end(), "close device"), 1) << request;
        EXPECT_EQ(device_.events.back(), "close iommufd") << request;
        EXPECT_TRUE(iommufd_.objects.empty()) << request;
    }
}

TEST_F(Device, AnotherDriverIsNamed) {
    sysfs_.add_driver("nvme");
    sysfs_.set_driver("0000:01:00.0", "nvme");
    auto f = open();
    ASSERT_FALSE(f);
    EXPECT_TRUE(f.error().is(ENODEV));
    EXPECT_THAT(f.error().message(), HasSubstr("bound to nvme"));
}

TEST_F(Device, AnAdoptedFunctionLeavesWhatItFound) {
    device_.config[4] = 6; // the owner's bus master
    auto space = std::make_shared<test::FakeAddressSpace>(iommu::AddressSpaceKind::iommufd);
    {
        auto f = VfioFunction::adopt(system_, os::Fd{system_, FakeVfioDevice::fd}, space, "0000:01:00.0");
        ASSERT_TRUE(f) << f.error().message();
        EXPECT_EQ((*f)->identity().vendor, 0x1b36);
        EXPECT_EQ((*f)->identity().device, 0x0010);
        EXPECT_EQ((*f)->identity().class_code, 0x010802U);
        EXPECT_EQ((*f)->identity().bdf, (pci::Bdf{0, 1, 0, 0}));
        EXPECT_TRUE((*f)->disable_interrupts()) << "those of the owner are none of its";
    }
    EXPECT_THAT(device_.events, ElementsAre("close device"));
    EXPECT_EQ(device_.config[4], 6);
    EXPECT_EQ(device_.bound_to, 0U) << "a passed descriptor is bound already";

    auto missing = VfioFunction::adopt(system_, os::Fd{system_, FakeVfioDevice::fd}, nullptr, "x");
    ASSERT_FALSE(missing);
    EXPECT_TRUE(missing.error().is(EINVAL));
}

TEST_F(Device, MapsOnlyInsideAnArea) {
    auto f = open();
    ASSERT_TRUE(f);
    EXPECT_CALL(system_, mmap(_, 0x1000, _, _, FakeVfioDevice::fd, 0x3000))
        .WillOnce(testing::Return(reinterpret_cast<void*>(0x10000)));
    EXPECT_CALL(system_, munmap(_, 0x1000)).WillOnce(testing::Return(0));
    EXPECT_TRUE((*f)->map_region(0, ByteCount{0x3000}, ByteCount{0x1000}));
    for (const auto& [offset, length] :
         {std::pair<std::uint64_t, std::uint64_t>{0x3000, 0x1001}, std::pair<std::uint64_t, std::uint64_t>{0x4000, 1},
          std::pair<std::uint64_t, std::uint64_t>{0, 0}, std::pair<std::uint64_t, std::uint64_t>{~0ULL, 2},
          std::pair<std::uint64_t, std::uint64_t>{0x1000, ~0ULL}}) {
        const auto refused = (*f)->map_region(0, ByteCount{offset}, ByteCount{length});
        ASSERT_FALSE(refused) << offset;
        EXPECT_TRUE(refused.error().is(EINVAL));
        EXPECT_THAT(refused.error().message(), HasSubstr("[0x0, 0x4000)"));
    }
    EXPECT_TRUE((*f)->map_region(2, ByteCount{0}, ByteCount{1}).error().is(ENOTSUP)) << "not implemented";
    EXPECT_TRUE((*f)->map_region(8, ByteCount{0}, ByteCount{1}).error().is(EINVAL));
}

TEST_F(Device, AccessesOutsideAreRefused) {
    auto f = open();
    ASSERT_TRUE(f);
    for (const auto& [offset, width] :
         {std::pair{4096U, 4U}, std::pair{2U, 4U}, std::pair{0U, 3U}, std::pair{0U, 8U}}) {
        EXPECT_TRUE((*f)->read_config(offset, width).error().is(EINVAL)) << offset;
        EXPECT_TRUE((*f)->write_config(offset, width, 0).error().is(EINVAL)) << offset;
    }
    EXPECT_TRUE((*f)->read_region(0, ByteCount{0x4000}, 1).error().is(EINVAL));
    EXPECT_TRUE((*f)->read_region(0, ByteCount{~0ULL}, 1).error().is(EINVAL));
    EXPECT_TRUE((*f)->read_region(7, ByteCount{0}, 4).error().is(EINVAL)) << "config space is no region";
    EXPECT_TRUE((*f)->region(7).error().is(EINVAL));
    EXPECT_EQ(*(*f)->read_config(8, 4) >> 8, 0x010802U);
}

TEST_F(Device, InterruptsPreferMsixAndAreReplacedWhole) {
    auto f = open();
    ASSERT_TRUE(f);
    device_.events.clear();
    const std::array fds{5, 6, 7, 8, 9};
    const std::span<const int> all{fds};
    EXPECT_EQ(*(*f)->interrupt_count(), 4U);
    EXPECT_TRUE((*f)->enable_interrupts(all.first(4)));
    EXPECT_TRUE((*f)->enable_interrupts(all.first(1)));
    EXPECT_THAT(device_.events, ElementsAre("interrupts on 2", "interrupts off 2", "interrupts on 2"));
    EXPECT_TRUE((*f)->enable_interrupts(all).error().is(EINVAL));
    EXPECT_TRUE((*f)->enable_interrupts({}).error().is(EINVAL));
    EXPECT_TRUE((*f)->disable_interrupts());
    device_.msix_count = 0;
    EXPECT_EQ(*(*f)->interrupt_count(), 1U) << "MSI then";
    device_.msi_count = 0;
    EXPECT_TRUE((*f)->enable_interrupts(all.first(1)).error().is(ENOTSUP));
}

TEST_F(Device, AHotResetThatHitsOthersIsRefusedByName) {
    auto f = open();
    ASSERT_TRUE(f);
    device_.events.clear();
    device_.hot_reset_devid = uapi::vfio_pci_devid_not_owned;
    const auto refused = (*f)->hot_reset();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(EPERM));
    EXPECT_THAT(refused.error().message(), HasSubstr("0000:01:00.1"));
    EXPECT_TRUE(device_.events.empty());
    device_.hot_reset_devid = 12;
    EXPECT_TRUE((*f)->hot_reset());
    EXPECT_THAT(device_.events, ElementsAre("hot reset"));
}

TEST_F(Device, NoResetIsENOTSUP) {
    auto f = open();
    ASSERT_TRUE(f && (*f)->reset());
    device_.failures[uapi::vfio_device_reset] = EINVAL;
    EXPECT_TRUE((*f)->reset().error().is(ENOTSUP));
    device_.failures[uapi::vfio_device_reset] = EAGAIN;
    EXPECT_TRUE((*f)->reset().error().is(EAGAIN));
}

TEST_F(Device, AnExportStaysInsideTheBar) {
    auto f = open();
    ASSERT_TRUE(f);
    EXPECT_TRUE((*f)->export_bar(0, ByteCount{0x3000}, ByteCount{0x2000}).error().is(EINVAL));
    EXPECT_TRUE((*f)->export_bar(0, ByteCount{~0ULL}, ByteCount{1}).error().is(EINVAL));
    EXPECT_TRUE((*f)->export_bar(0, ByteCount{0}, ByteCount{0x1000}).error().is(ENOTTY)) << "as an old kernel says";
    EXPECT_EQ((*f)->probe(Feature::dma_buf).state, FeatureState::kernel_too_old);
}

} // namespace
} // namespace upcie::vfio
