// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/uio_function.hpp>

#include <cerrno>

#include <sys/mman.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_address_space.hpp>
#include <support/fake_sysfs.hpp>
#include <support/mock_system.hpp>

namespace upcie::pci {
namespace {

using testing::_;
using testing::EndsWith;
using testing::HasSubstr;

class Uio : public testing::Test {
  protected:
    Uio() {
        function_.driver = "uio_pci_generic";
        sysfs_.add(function_);
        const std::string directory = "sys/devices/pci0000:00/0000:01:00.0/";
        sysfs_.write(directory + "uio/uio0/name", "uio_pci_generic\n");
        sysfs_.write("dev/uio0", "");
        std::string config(4096, '\0');
        config[4] = 0x06; // memory and bus master
        config[8] = 0x02;
        sysfs_.write(directory + "config", config);
        sysfs_.write(directory + "resource0", std::string(0x4000, '\x11'));
        sysfs_.write(directory + "reset", "");
    }
    Result<std::unique_ptr<UioFunction>> open() {
        const auto info = find_function(system_, *Bdf::parse("01:00.0"), sysfs_.roots());
        return UioFunction::open(system_, *info, space_, sysfs_.roots());
    }
    int command() { return sysfs_.read("sys/devices/pci0000:00/0000:01:00.0/config")[4]; }

    test::FakeFunction function_;
    test::FakeSysfs sysfs_;
    test::MockSystem system_;
    std::shared_ptr<iommu::AddressSpace> space_ =
        std::make_shared<test::FakeAddressSpace>(iommu::AddressSpaceKind::hugepage_pagemap);
};

TEST_F(Uio, OpensReadsAndWrites) {
    auto function = open();
    ASSERT_TRUE(function) << function.error().message();
    EXPECT_EQ((*function)->identity().name, "0000:01:00.0");
    EXPECT_EQ((*function)->identity().class_code, 0x010802U);
    EXPECT_EQ(*(*function)->interrupt_count(), 0U);
    EXPECT_EQ(*(*function)->read_config(8, 1), 2U);
    EXPECT_EQ(*(*function)->read_region(0, ByteCount{0x10}, 8), 0x1111111111111111U);
    ASSERT_TRUE((*function)->write_region(0, ByteCount{0x14}, 4, 0xdeadbeef));
    EXPECT_EQ(*(*function)->read_region(0, ByteCount{0x10}, 8), 0xdeadbeef11111111U);
    auto mapping = (*function)->map_region(0, ByteCount{0x1000}, ByteCount{0x1000});
    ASSERT_TRUE(mapping) << mapping.error().message();
    EXPECT_EQ(mapping->data()[0], std::byte{0x11});
    EXPECT_TRUE((*function)->reset());
    EXPECT_EQ(sysfs_.read("sys/devices/pci0000:00/0000:01:00.0/reset"), "1");
}

TEST_F(Uio, BusMasterGoesOffAtTheEnd) {
    {
        auto function = open();
        ASSERT_TRUE(function && (*function)->set_bus_master(true));
        EXPECT_EQ(command() & 4, 4);
    }
    EXPECT_EQ(command(), 2) << "memory decode stays, DMA does not";
}

TEST_F(Uio, ASecondOpenerGetsEbusyAndAThirdAfterTheFirstIsGone) {
    auto first = open();
    ASSERT_TRUE(first);
    const auto second = open();
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().is(EBUSY));
    EXPECT_THAT(second.error().message(), HasSubstr("fuser"));
    first->reset();
    EXPECT_TRUE(open());
}

TEST_F(Uio, ATranslatingGroupIsRefusedWithTheWayOut) {
    function_.iommu_group = 4;
    function_.group_type = "DMA-FQ";
    sysfs_.add(function_);
    const auto refused = open();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(EPERM));
    EXPECT_THAT(refused.error().message(), HasSubstr("/sys/kernel/iommu_groups/4/type"));
    function_.group_type = "identity";
    sysfs_.add(function_);
    EXPECT_TRUE(open());
}

TEST_F(Uio, AnAddressSpaceOfIovasIsRefused) {
    space_ = std::make_shared<test::FakeAddressSpace>(iommu::AddressSpaceKind::iommufd);
    const auto refused = open();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(EINVAL));
}

TEST_F(Uio, NoAddressSpaceIsRefused) {
    space_ = nullptr;
    auto function = open();
    ASSERT_FALSE(function);
    EXPECT_TRUE(function.error().is(EINVAL)) << function.error().message();
}

TEST_F(Uio, AnotherDriverIsRefused) {
    sysfs_.add_driver("nvme");
    sysfs_.set_driver("0000:01:00.0", "nvme");
    const auto refused = open();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENODEV));
    EXPECT_THAT(refused.error().message(), HasSubstr("nvme"));
}

TEST_F(Uio, AccessesOutsideAreRefused) {
    auto function = open();
    ASSERT_TRUE(function);
    auto& f = **function;
    EXPECT_FALSE(f.read_config(4096, 4));
    EXPECT_FALSE(f.read_config(2, 4));
    EXPECT_FALSE(f.read_config(0, 3));
    EXPECT_FALSE(f.write_config(4096, 1, 0));
    EXPECT_FALSE(f.read_region(0, ByteCount{0x4000}, 1));
    EXPECT_FALSE(f.read_region(0, ByteCount{0xffffffffffffffff}, 1));
    EXPECT_FALSE(f.read_region(0, ByteCount{4}, 8));
    EXPECT_FALSE(f.read_region(1, ByteCount{0}, 4)) << "absent";
    EXPECT_FALSE(f.read_region(7, ByteCount{0}, 4));
    EXPECT_FALSE(f.region(7));
    EXPECT_FALSE(f.map_region(0, ByteCount{0x4000}, ByteCount{1}));
    EXPECT_FALSE(f.map_region(0, ByteCount{0}, ByteCount{0x4001}));
    EXPECT_FALSE(f.map_region(0, ByteCount{0}, ByteCount{0}));
    EXPECT_TRUE(f.map_region(1, ByteCount{0}, ByteCount{1}).error().is(ENOTSUP));
    EXPECT_TRUE(f.enable_interrupts({}).error().is(ENOTSUP));
}

TEST_F(Uio, LockdownIsNamed) {
    auto function = open();
    ASSERT_TRUE(function);
    EXPECT_CALL(system_, mmap(_, _, _, _, _, _)).WillOnce(testing::SetErrnoAndReturn(EPERM, MAP_FAILED));
    EXPECT_THAT((*function)->map_region(0, ByteCount{0}, ByteCount{0x1000}).error().message(),
                HasSubstr("locked down"));
    EXPECT_CALL(system_, pwrite(_, _, _, _)).WillRepeatedly(test::fails_with(EPERM));
    EXPECT_THAT((*function)->write_config(4, 2, 0).error().message(), HasSubstr("locked down"));
}

TEST_F(Uio, NoResetIsENOTSUP) {
    auto function = open();
    ASSERT_TRUE(function);
    sysfs_.remove("sys/devices/pci0000:00/0000:01:00.0/reset");
    EXPECT_TRUE((*function)->reset().error().is(ENOTSUP));
}

} // namespace
} // namespace upcie::pci
