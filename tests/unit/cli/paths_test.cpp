// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/mock_system.hpp>

#include "command.hpp"
#include "kernel_config.hpp"
#include "paths.hpp"

namespace upcie::cli {
namespace {

/// A machine on which every path is ready but for what a test takes away.
class Paths : public ::testing::Test {
  protected:
    Paths() : context_{std::cout, std::cerr, system_, test::roots_of(fake_), false} {
        host_.release = "7.3.4";
        host_.major = 7;
        host_.minor = 3;
        host_.capabilities = ~std::uint64_t{0};
        host_.iommu_groups = 5;
        host_.iommu_tables = {"DMAR"};
        host_.dev_iommu = {true, true, 0600, 0, 0};
        host_.dev_vfio = {true, true, 0666, 0, 0};
        host_.unsafe_noiommu = true;
        host_.hugepages = {{2048, -1, 64, 64}};
        for (const char* name : {"vfio_pci", "vfio_iommu_type1", "iommufd", "uio_pci_generic"}) {
            host_.modules.emplace_back(name, ModuleState::loaded);
        }
        for (const char* node : {"dev/iommu", "dev/vfio/vfio", "dev/vfio/7"}) {
            fake_.write(node, "");
        }
        fake_.write("dev/vfio/devices/vfio0", "");
        drive_.bdf = pci::Bdf{0, 1, 0, 0};
        drive_.class_code = 0x010802;
        drive_.driver = "vfio-pci";
        drive_.vfio_name = "vfio0";
        drive_.vfio_cdev = fake_.path("dev/vfio/devices/vfio0");
        drive_.iommu_group = pci::IommuGroupInfo{7, "DMA", false, {drive_.bdf}};
    }

    PathAssessment assess(Path path) {
        const auto paths = assess_paths(host_, drive_, context_);
        const auto found = std::find_if(paths.begin(), paths.end(), [&](const auto& one) { return one.path == path; });
        return found == paths.end() ? PathAssessment{} : *found;
    }
    void without_module(std::string_view name) {
        for (auto& [module, state] : host_.modules) {
            state = module == name ? ModuleState::absent : state;
        }
    }
    void without_iommu() {
        host_.iommu_groups = 0;
        drive_.iommu_group.reset();
    }

    upcie::test::FakeSysfs fake_;
    upcie::test::MockSystem system_;
    Context context_;
    HostFacts host_;
    pci::FunctionInfo drive_;
};

TEST_F(Paths, EveryPathOfVfioIsReadyWhereNothingIsMissing) {
    EXPECT_EQ(assess(Path::cdev).state, PathState::ready) << assess(Path::cdev).reason;
    EXPECT_EQ(assess(Path::group).state, PathState::ready) << assess(Path::group).reason;
    EXPECT_TRUE(assess(Path::cdev).fix.empty());
}

TEST_F(Paths, TheKernelDriverIsNamedAndBindFixesIt) {
    drive_.driver = "nvme";
    drive_.vfio_name.clear();
    drive_.vfio_cdev.clear();
    const auto cdev = assess(Path::cdev);
    EXPECT_EQ(cdev.state, PathState::after_bind);
    EXPECT_EQ(cdev.reason, "bound to nvme, not to vfio-pci");
    EXPECT_EQ(cdev.fix, "upcie bind 0000:01:00.0");
    without_iommu();
    EXPECT_EQ(assess(Path::uio).fix, "upcie bind 0000:01:00.0 --driver uio_pci_generic");
}

TEST_F(Paths, WithoutDevIommuTheKernelsOfDebianAreNamed) {
    host_.dev_iommu = {};
    const auto cdev = assess(Path::cdev);
    EXPECT_EQ(cdev.state, PathState::blocked);
    EXPECT_EQ(cdev.reason, "/dev/iommu does not exist");
    EXPECT_NE(cdev.fix.find("CONFIG_IOMMUFD"), std::string::npos);
    EXPECT_NE(cdev.fix.find("--path group"), std::string::npos);
    EXPECT_EQ(assess(Path::group).state, PathState::ready);
    host_.modules.emplace_back("iommufd", ModuleState::loadable);
    host_.modules.erase(
        std::remove_if(host_.modules.begin(), host_.modules.end(),
                       [](const auto& m) { return m.first == "iommufd" && m.second != ModuleState::loadable; }),
        host_.modules.end());
    EXPECT_EQ(assess(Path::cdev).fix, "modprobe iommufd");
}

TEST_F(Paths, ASiblingOnItsKernelDriverIsNamedBeforeTheBindAndAfter) {
    upcie::test::FakeFunction sibling;
    sibling.bdf = "0000:01:00.1";
    sibling.class_code = "0x020000";
    sibling.driver = "e1000e";
    sibling.iommu_group = 7;
    fake_.add(sibling);
    drive_.iommu_group->members.push_back(pci::Bdf{0, 1, 0, 1});
    for (const char* driver : {"vfio-pci", "nvme"}) {
        drive_.driver = driver;
        for (const Path path : {Path::cdev, Path::group}) {
            const auto assessment = assess(path);
            EXPECT_EQ(assessment.state, PathState::blocked);
            EXPECT_EQ(assessment.reason, "group 7 is not viable: a kernel driver has 0000:01:00.1 (e1000e)");
            EXPECT_EQ(assessment.fix, "upcie bind 0000:01:00.1");
        }
    }
    drive_.driver = "vfio-pci";
    fake_.add_driver("vfio-pci");
    fake_.set_driver("0000:01:00.1", "vfio-pci");
    EXPECT_EQ(assess(Path::group).state, PathState::ready);
}

TEST_F(Paths, ADeviceWithoutItsNodeIsAKernelWithoutCdevs) {
    drive_.vfio_cdev.clear();
    const auto cdev = assess(Path::cdev);
    EXPECT_EQ(cdev.state, PathState::blocked);
    EXPECT_NE(cdev.fix.find("CONFIG_VFIO_DEVICE_CDEV"), std::string::npos);
}

TEST_F(Paths, APermissionThatIsMissingNamesNodeAndFix) {
    const std::string node = fake_.path("dev/iommu");
    EXPECT_CALL(system_, access(::testing::_, ::testing::_)).Times(::testing::AnyNumber());
    EXPECT_CALL(system_, access(::testing::StrEq(node), ::testing::_)).WillRepeatedly(upcie::test::fails_with(EACCES));
    const auto cdev = assess(Path::cdev);
    EXPECT_EQ(cdev.state, PathState::blocked);
    EXPECT_EQ(cdev.reason, "this user may not open " + node + " (docs/permissions.md)");
    EXPECT_NE(cdev.fix.find("chown $USER " + node), std::string::npos);
}

TEST_F(Paths, WithoutAnIommuTheRawPathsAreLeft) {
    without_iommu();
    EXPECT_EQ(assess(Path::cdev).reason, "no IOMMU translates for this function");
    EXPECT_EQ(assess(Path::group).reason, "no IOMMU translates for this function");
    drive_.vfio_name = "noiommu-vfio0";
    EXPECT_EQ(assess(Path::noiommu_cdev).state, PathState::ready) << assess(Path::noiommu_cdev).reason;
    drive_.vfio_name.clear();
    drive_.driver = "uio_pci_generic";
    EXPECT_EQ(assess(Path::uio).state, PathState::ready) << assess(Path::uio).reason;
}

TEST_F(Paths, TheRawPathsAreRefusedBehindATranslatingIommu) {
    EXPECT_EQ(assess(Path::noiommu_cdev).state, PathState::blocked);
    const auto uio = assess(Path::uio);
    EXPECT_EQ(uio.reason, "IOMMU group 7 translates (type DMA), so physical addresses would fault");
    drive_.iommu_group->type = "identity";
    drive_.driver = "uio_pci_generic";
    EXPECT_EQ(assess(Path::uio).state, PathState::ready);
}

TEST_F(Paths, EachPreconditionOfNoIommuIsNamed) {
    without_iommu();
    host_.minor = 2;
    EXPECT_NE(assess(Path::noiommu_cdev).reason.find("IOMMU_IOAS_NOIOMMU_GET_PA"), std::string::npos);
    host_.minor = 3;
    host_.unsafe_noiommu = false;
    EXPECT_NE(assess(Path::noiommu_cdev).fix.find("enable_unsafe_noiommu_mode"), std::string::npos);
    host_.unsafe_noiommu = true;
    host_.capabilities = 0;
    EXPECT_NE(assess(Path::noiommu_cdev).reason.find("CAP_SYS_RAWIO"), std::string::npos);
}

TEST_F(Paths, EachPreconditionOfUioIsNamed) {
    without_iommu();
    host_.hugepages = {{2048, -1, 64, 0}};
    EXPECT_EQ(assess(Path::uio).reason, "no free 2 MiB hugepages");
    host_.capabilities = 0;
    EXPECT_NE(assess(Path::uio).reason.find("pagemap"), std::string::npos);
    without_module("uio_pci_generic");
    EXPECT_EQ(assess(Path::uio).reason, "this kernel has no uio_pci_generic driver");
}

TEST_F(Paths, AKernelWithoutVfioSaysSo) {
    without_module("vfio_pci");
    EXPECT_EQ(assess(Path::cdev).reason, "this kernel has no vfio-pci driver");
    EXPECT_NE(assess(Path::cdev).fix.find("modprobe vfio-pci"), std::string::npos);
}

TEST(KernelConfig, FindsTheFirstFileAndReadsOptions) {
    upcie::test::FakeSysfs fake;
    fake.write("boot/config-6.12.0", "# CONFIG_IOMMUFD is not set\nCONFIG_VFIO=m\nCONFIG_VFIO_PCI=y\n");
    const auto config = KernelConfig::read(os::real_system(), test::roots_of(fake), "6.12.0");
    ASSERT_TRUE(config.known());
    EXPECT_EQ(config.option("CONFIG_VFIO"), 'm');
    EXPECT_EQ(config.option("CONFIG_VFIO_PCI"), 'y');
    EXPECT_EQ(config.option("CONFIG_IOMMUFD"), 'n');
    const auto other = KernelConfig::read(os::real_system(), test::roots_of(fake), "6.13.0");
    EXPECT_FALSE(other.known());
    EXPECT_EQ(other.option("CONFIG_VFIO"), std::nullopt);
}

#if UPCIE_HAVE_ZLIB
TEST(KernelConfig, ReadsTheCompressedOneOfProc) {
    // printf 'CONFIG_IOMMUFD=m\n' | gzip -n9
    constexpr unsigned char packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x73, 0xf6, 0xf7,
                                        0x73, 0xf3, 0x74, 0x8f, 0xf7, 0xf4, 0xf7, 0xf5, 0x0d, 0x75, 0x73, 0xb1, 0xcd,
                                        0xe5, 0x02, 0x00, 0x55, 0x3f, 0x82, 0x1b, 0x11, 0x00, 0x00, 0x00};
    upcie::test::FakeSysfs fake;
    fake.write("proc/config.gz", std::string_view{reinterpret_cast<const char*>(packed), sizeof packed});
    const auto config = KernelConfig::read(os::real_system(), test::roots_of(fake), "6.12.0");
    EXPECT_EQ(config.source(), fake.path("proc/config.gz"));
    EXPECT_EQ(config.option("CONFIG_IOMMUFD"), 'm');
}

TEST(KernelConfig, ACutFileIsNoConfiguration) {
    constexpr unsigned char packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x73, 0xf6, 0xf7,
                                        0x73, 0xf3, 0x74, 0x8f, 0xf7, 0xf4, 0xf7, 0xf5, 0x0d, 0x75, 0x73, 0xb1, 0xcd,
                                        0xe5, 0x02, 0x00, 0x55, 0x3f, 0x82, 0x1b, 0x11, 0x00, 0x00, 0x00};
    EXPECT_EQ(gunzip({reinterpret_cast<const char*>(packed), sizeof packed - 9}), "");
    EXPECT_EQ(gunzip("CONFIG_IOMMUFD=m\n"), "");
}
#endif

} // namespace
} // namespace upcie::cli
