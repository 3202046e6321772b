// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/enumeration.hpp>

#include <cerrno>

#include <gtest/gtest.h>

#include <support/fake_sysfs.hpp>

namespace upcie::pci {
namespace {

using test::FakeFunction;
using test::FakeSysfs;

class Enumeration : public testing::Test {
  protected:
    Result<FunctionInfo> find(const char* bdf) { return find_function(system_, *Bdf::parse(bdf), sysfs_.roots()); }

    FakeSysfs sysfs_;
    os::System& system_ = os::real_system();
};

TEST_F(Enumeration, ReadsIdsDriverAndBars) {
    FakeFunction nvme;
    nvme.driver = "nvme";
    nvme.resource = "0x00000000fe200000 0x00000000fe203fff 0x0000000000140204\n"
                    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                    "0x00000038000000000 0x000000387ffffffff 0x000000000014220c\n"
                    "0x000000000000c000 0x000000000000c07f 0x0000000000040101\n"
                    "0x0000000000000000 0x000000000007ffff 0x0000000020046200\n"
                    "0x00000000fe300000 0x00000000fe3fffff 0x0000000000140204\n";
    sysfs_.add(nvme);
    const auto info = find("0000:01:00.0");
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->vendor, 0x1b36);
    EXPECT_EQ(info->device, 0x0010);
    EXPECT_EQ(info->subsystem_vendor, 0x1af4);
    EXPECT_EQ(info->subsystem_device, 0x1100);
    EXPECT_EQ(info->revision, 2);
    EXPECT_EQ(info->class_code, 0x010802U);
    EXPECT_TRUE(info->is_nvme());
    EXPECT_EQ(info->driver, "nvme");
    EXPECT_EQ(info->driver_override, "");
    EXPECT_EQ(info->numa_node, -1);
    EXPECT_EQ(info->root_bus, "pci0000:00");
    EXPECT_FALSE(info->link);

    ASSERT_EQ(info->bars.size(), 4U) << "lines after the ROM belong to SR-IOV and must not be taken for BARs";
    const BarInfo* bar0 = info->bar(0);
    ASSERT_NE(bar0, nullptr);
    EXPECT_EQ(bar0->address, BusAddress{0xfe200000});
    EXPECT_EQ(bar0->size, ByteCount{0x4000});
    EXPECT_TRUE(bar0->is_64bit);
    EXPECT_FALSE(bar0->prefetchable);
    EXPECT_FALSE(bar0->io);
    EXPECT_EQ(info->bar(1), nullptr);
    const BarInfo* bar4 = info->bar(4);
    ASSERT_NE(bar4, nullptr);
    EXPECT_EQ(bar4->size, ByteCount{0x800000000}) << "32 GiB: sizes are 64-bit";
    EXPECT_TRUE(bar4->prefetchable);
    EXPECT_TRUE(info->bar(5)->io);
    EXPECT_TRUE(info->bar(6)->unassigned);
}

TEST_F(Enumeration, NoDriverNoGroupIsNoError) {
    sysfs_.add({});
    const auto info = find("0000:01:00.0");
    ASSERT_TRUE(info);
    EXPECT_EQ(info->driver, "");
    EXPECT_FALSE(info->iommu_group);
    EXPECT_EQ(info->vfio_name, "");
    EXPECT_EQ(info->vfio_cdev, "");
}

TEST_F(Enumeration, FollowsTopologyThroughVmd) {
    FakeFunction drive;
    drive.bdf = "10000:e1:00.0";
    drive.under = "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0";
    sysfs_.add(drive);
    const auto info = find("10000:e1:00.0");
    ASSERT_TRUE(info) << info.error().message();
    const std::vector<Bdf> expected{{0x10000, 0xe0, 6, 0}, {0, 0, 0xe, 0}};
    EXPECT_EQ(info->parents, expected);
    EXPECT_EQ(info->root_bus, "pci0000:00");
}

TEST_F(Enumeration, SortsByNumberNotByText) {
    FakeFunction function;
    for (const char* bdf : {"10000:00:00.0", "2000:00:00.0", "0000:02:00.0", "0000:01:00.1"}) {
        function.bdf = bdf;
        sysfs_.add(function);
    }
    const auto all = enumerate(system_, sysfs_.roots());
    ASSERT_TRUE(all);
    std::vector<std::string> names;
    for (const auto& info : *all) {
        names.push_back(info.bdf.to_string());
    }
    const std::vector<std::string> expected{"0000:01:00.1", "0000:02:00.0", "2000:00:00.0", "10000:00:00.0"};
    EXPECT_EQ(names, expected);
}

TEST_F(Enumeration, NamesTheGroupItsTypeAndItsMembers) {
    FakeFunction first;
    first.iommu_group = 17;
    first.group_type = "identity";
    FakeFunction second = first;
    second.bdf = "0000:01:00.1";
    second.driver = "ahci";
    sysfs_.add(first);
    sysfs_.add(second);
    const auto info = find("0000:01:00.0");
    ASSERT_TRUE(info && info->iommu_group);
    EXPECT_EQ(info->iommu_group->number, 17U);
    EXPECT_EQ(info->iommu_group->type, "identity");
    EXPECT_FALSE(info->iommu_group->noiommu);
    const std::vector<Bdf> members{{0, 1, 0, 0}, {0, 1, 0, 1}};
    EXPECT_EQ(info->iommu_group->members, members);
}

TEST_F(Enumeration, TellsTheGroupOfNoIommuModeFromARealOne) {
    FakeFunction function;
    function.iommu_group = 0;
    function.group_name = "vfio-noiommu";
    sysfs_.add(function);
    EXPECT_TRUE(find("0000:01:00.0")->iommu_group->noiommu);
}

TEST_F(Enumeration, TheCdevCountsOnlyWhenItsNodeExists) {
    FakeFunction function;
    function.driver = "vfio-pci";
    function.vfio_name = "vfio0";
    sysfs_.add(function);
    auto info = find("0000:01:00.0");
    EXPECT_EQ(info->vfio_name, "vfio0");
    EXPECT_EQ(info->vfio_cdev, "") << "sysfs has the entry also in kernels without the cdev";
    sysfs_.write("dev/vfio/devices/vfio0", "");
    info = find("0000:01:00.0");
    EXPECT_EQ(info->vfio_cdev, sysfs_.path("dev/vfio/devices/vfio0"));
}

TEST_F(Enumeration, FindsTheFunctionBehindACdevName) {
    FakeFunction function;
    function.bdf = "10000:e1:00.0";
    function.vfio_name = "noiommu-vfio3";
    sysfs_.add(function);
    const auto info = find_by_vfio_name(system_, "noiommu-vfio3", sysfs_.roots());
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->bdf.to_string(), "10000:e1:00.0");
    for (const char* wrong : {"vfio9", "", "../vfio-dev/noiommu-vfio3"}) {
        const auto missing = find_by_vfio_name(system_, wrong, sysfs_.roots());
        ASSERT_FALSE(missing) << wrong;
        EXPECT_TRUE(missing.error().is(ENODEV));
    }
}

TEST_F(Enumeration, ReadsTheLink) {
    sysfs_.add({});
    const std::string directory = "sys/devices/pci0000:00/0000:01:00.0/";
    sysfs_.write(directory + "current_link_speed", "8.0 GT/s PCIe\n");
    sysfs_.write(directory + "current_link_width", "2\n");
    sysfs_.write(directory + "max_link_speed", "16.0 GT/s PCIe\n");
    sysfs_.write(directory + "max_link_width", "4\n");
    sysfs_.write(directory + "numa_node", "1\n");
    const auto info = find("0000:01:00.0");
    ASSERT_TRUE(info && info->link);
    EXPECT_EQ(info->link->speed, "8.0 GT/s PCIe");
    EXPECT_EQ(info->link->width, 2U);
    EXPECT_EQ(info->link->max_speed, "16.0 GT/s PCIe");
    EXPECT_EQ(info->link->max_width, 4U);
    EXPECT_EQ(info->numa_node, 1);
}

TEST_F(Enumeration, DriverOverrideIsReportedAndNullIsNone) {
    sysfs_.add({});
    EXPECT_EQ(find("0000:01:00.0")->driver_override, "");
    sysfs_.write("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
    EXPECT_EQ(find("0000:01:00.0")->driver_override, "vfio-pci");
}

TEST_F(Enumeration, AMissingFunctionIsENODEV) {
    const auto info = find("0000:99:00.0");
    ASSERT_FALSE(info);
    EXPECT_TRUE(info.error().is(ENODEV));
    EXPECT_NE(info.error().message().find("0000:99:00.0"), std::string::npos);
}

TEST_F(Enumeration, AFunctionThatVanishesIsLeftOutAndABadOneIsNot) {
    sysfs_.add({});
    sysfs_.link("sys/bus/pci/devices/0000:02:00.0", "../../../devices/gone");
    EXPECT_EQ(enumerate(system_, sysfs_.roots())->size(), 1U);
    sysfs_.write("sys/devices/pci0000:00/0000:01:00.0/vendor", "nonsense\n");
    EXPECT_FALSE(enumerate(system_, sysfs_.roots()));
}

TEST_F(Enumeration, MalformedResourceLinesAreSkipped) {
    FakeFunction function;
    function.resource = "garbage\n"
                        "0x0000000000001000 0x0000000000000fff 0x0000000000040200\n"
                        "0x0000000000001000 0x0000000000001fff\n"
                        "0x00000000fe200000 0x00000000fe203fff 0x0000000000040200\n";
    sysfs_.add(function);
    const auto info = find("0000:01:00.0");
    ASSERT_TRUE(info);
    ASSERT_EQ(info->bars.size(), 1U);
    EXPECT_EQ(info->bars[0].index, 3U);
}

TEST_F(Enumeration, NoPciAtAllSaysSo) {
    Roots roots = sysfs_.roots();
    roots.sysfs += "/nowhere";
    const auto all = enumerate(system_, roots);
    ASSERT_FALSE(all);
    EXPECT_TRUE(all.error().is(ENOENT));
}

} // namespace
} // namespace upcie::pci
