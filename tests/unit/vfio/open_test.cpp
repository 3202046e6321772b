// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/open.hpp>

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_address_space.hpp>
#include <support/fake_iommufd.hpp>
#include <support/fake_sysfs.hpp>
#include <support/fake_vfio_device.hpp>

namespace upcie {
namespace {

using testing::_;
using testing::HasSubstr;
using testing::Not;

constexpr const char* address = "0000:01:00.0";

/// What a machine may have; everything there means that cdev is taken.
struct Machine {
    const char* what;
    std::string driver = "vfio-pci";
    int group = 7;
    std::string group_type = "DMA";
    std::string vfio_name = "vfio0";
    bool cdev_node = true;
    bool dev_iommu = true;
    bool group_node = true;
    bool container = true;
    bool sibling = false;
};

class OpenFunction : public testing::Test {
  protected:
    void build(const Machine& machine) {
        sysfs_ = std::make_unique<test::FakeSysfs>();
        test::FakeFunction function;
        function.driver = machine.driver;
        function.iommu_group = machine.group;
        function.group_type = machine.group_type;
        function.vfio_name = machine.vfio_name;
        function.vfio_node = machine.cdev_node;
        sysfs_->add(function);
        if (machine.sibling) {
            function.bdf = "0000:01:00.1";
            function.driver = "ahci";
            function.class_code = "0x010601";
            function.vfio_name.clear();
            sysfs_->add(function);
        }
        if (machine.dev_iommu) {
            sysfs_->write("dev/iommu", "");
        }
        if (machine.group_node) {
            sysfs_->write("dev/vfio/" + std::to_string(machine.group), "");
        }
        if (machine.container) {
            sysfs_->write("dev/vfio/vfio", "");
        }
        options_.roots = sysfs_->roots();
    }
    Result<PathChoice> choose() {
        return choose_path(system_, *pci::find_function(system_, *pci::Bdf::parse(address), options_.roots), options_);
    }
    Result<std::unique_ptr<pci::Function>> open(std::string_view name) {
        return open_function(system_, name, options_);
    }

    std::unique_ptr<test::FakeSysfs> sysfs_;
    test::MockSystem system_;
    OpenOptions options_;
};

TEST_F(OpenFunction, ThePathFollowsFromWhatTheMachineHas) {
    struct Case {
        Machine machine;
        Path path;         ///< automatic: none
        const char* words; ///< in the reason, or in the hint when there is none
    };
    const Case cases[]{
        {{.what = "everything"}, Path::cdev, "not group: cdev is preferred"},
        {{.what = "no cdev node", .cdev_node = false}, Path::group, "CONFIG_VFIO_DEVICE_CDEV"},
        {{.what = "Debian's kernel", .dev_iommu = false}, Path::group, "CONFIG_IOMMUFD off"},
        {{.what = "no group node", .group_node = false}, Path::cdev, "not group:"},
        {{.what = "no IOMMU, Linux 7.3", .group = -1, .vfio_name = "noiommu-vfio0", .group_node = false},
         Path::noiommu_cdev,
         "not cdev: noiommu-vfio0 is a no-IOMMU device"},
        {{.what = "no IOMMU, before 7.3", .group = -1, .cdev_node = false, .group_node = false},
         Path::automatic,
         "Linux 7.3"},
        {{.what = "neither", .dev_iommu = false, .container = false}, Path::automatic, "/vfio/vfio does not exist"},
        {{.what = "uio without IOMMU", .driver = "uio_pci_generic", .group = -1, .vfio_name = ""},
         Path::uio,
         "not cdev: it is bound to uio_pci_generic"},
        {{.what = "uio, identity", .driver = "uio_pci_generic", .group_type = "identity", .vfio_name = ""},
         Path::uio,
         "nothing translates"},
        {{.what = "uio, translated", .driver = "uio_pci_generic", .vfio_name = ""},
         Path::automatic,
         "physical addresses would fault"},
        {{.what = "the kernel's driver", .driver = "nvme", .vfio_name = ""},
         Path::automatic,
         "upcie bind 0000:01:00.0"},
        {{.what = "no driver", .driver = "", .vfio_name = ""}, Path::automatic, "bound to no driver"},
        {{.what = "a sibling, no cdev", .cdev_node = false, .sibling = true}, Path::automatic, "0000:01:00.1 (ahci)"},
    };
    for (const auto& [machine, path, words] : cases) {
        build(machine);
        const auto choice = choose();
        if (path == Path::automatic) {
            ASSERT_FALSE(choice) << machine.what;
            EXPECT_TRUE(choice.error().is(ENODEV)) << machine.what;
            EXPECT_THAT(choice.error().hint, HasSubstr(words)) << machine.what;
            for (const char* each : {"not cdev:", "not group:", "not noiommu:", "not uio:"}) {
                EXPECT_THAT(choice.error().hint, HasSubstr(each)) << machine.what;
            }
        } else {
            ASSERT_TRUE(choice) << machine.what << ": " << choice.error().message();
            EXPECT_EQ(to_string(choice->path), to_string(path)) << machine.what;
            EXPECT_THAT(choice->reason, HasSubstr(words)) << machine.what;
        }
    }
}

TEST_F(OpenFunction, ANodeThatMayNotBeOpenedIsSaidWhenThePathIsAnother) {
    build({.what = "cdev not permitted"});
    EXPECT_CALL(system_, access(_, _)).Times(testing::AnyNumber());
    EXPECT_CALL(system_, access(testing::StrEq(sysfs_->path("dev/vfio/devices/vfio0")), _))
        .WillRepeatedly(test::fails_with(EACCES));
    const auto choice = choose();
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->path, Path::group);
    EXPECT_THAT(choice->reason, HasSubstr("this user may not open"));
}

TEST_F(OpenFunction, APathAskedForIsTaken) {
    build({.what = "everything"});
    options_.path = Path::group;
    EXPECT_EQ(choose()->path, Path::group);
    EXPECT_EQ(choose()->reason, "it was asked for");
}

TEST_F(OpenFunction, AnAddressSpaceToShareDecidesThePath) {
    build({.what = "everything"});
    using iommu::AddressSpaceKind;
    for (const auto& [kind, path] :
         {std::pair{AddressSpaceKind::iommufd, Path::cdev}, std::pair{AddressSpaceKind::type1, Path::group},
          std::pair{AddressSpaceKind::noiommu_ioas, Path::noiommu_cdev},
          std::pair{AddressSpaceKind::hugepage_pagemap, Path::uio}}) {
        options_.address_space = std::make_shared<test::FakeAddressSpace>(kind);
        options_.path = Path::automatic;
        EXPECT_EQ(choose()->path, path);
        options_.path = path == Path::group ? Path::cdev : Path::group;
        EXPECT_TRUE(choose().error().is(EINVAL));
    }
    options_.path = Path::automatic;
    options_.address_space = std::make_shared<test::FakeAddressSpace>(AddressSpaceKind::simulated);
    EXPECT_TRUE(choose().error().is(EINVAL));
    EXPECT_TRUE(open(address).error().is(EINVAL));
}

TEST_F(OpenFunction, OpensByAddressAndByNode) {
    build({.what = "everything"});
    test::FakeIommufd iommufd{system_};
    test::FakeVfioDevice device{system_, sysfs_->path("dev/vfio/devices/vfio0")};
    for (const std::string& name :
         {std::string{address}, std::string{"01:00.0"}, std::string{"vfio0"}, sysfs_->path("dev/vfio/devices/vfio0")}) {
        const auto function = open(name);
        ASSERT_TRUE(function) << name << ": " << function.error().message();
        EXPECT_EQ((*function)->identity().name, address) << name;
        EXPECT_EQ((*function)->path(), "vfio cdev + iommufd") << name;
        EXPECT_NE((*function)->path_reason(), "") << name;
    }
    EXPECT_THAT((*open(address))->path_reason(), HasSubstr("not group: cdev is preferred"));
}

TEST_F(OpenFunction, AFailureOfTheChosenPathIsNotPaperedOver) {
    build({.what = "everything"});
    test::FakeIommufd iommufd{system_};
    test::FakeVfioDevice device{system_, sysfs_->path("dev/vfio/devices/vfio0")};
    device.failures[uapi::vfio_device_bind_iommufd] = EINVAL;
    EXPECT_CALL(system_, open(_, _, _)).Times(testing::AnyNumber());
    EXPECT_CALL(system_, open(testing::StrEq(sysfs_->path("dev/vfio/7")), _, _)).Times(0);
    const auto function = open(address);
    ASSERT_FALSE(function);
    EXPECT_EQ(function.error().operation, "VFIO_DEVICE_BIND_IOMMUFD");
}

TEST_F(OpenFunction, ANodeIsItsOwnPath) {
    build({.what = "everything"});
    options_.path = Path::group;
    const auto function = open("vfio0");
    ASSERT_FALSE(function);
    EXPECT_TRUE(function.error().is(EINVAL));
    EXPECT_THAT(function.error().message(), HasSubstr(address));
    options_.path = Path::automatic;
    EXPECT_TRUE(open("vfio9").error().is(ENODEV));
}

TEST_F(OpenFunction, OpensTheSimulator) {
    const auto function = open("sim:size=1M");
    ASSERT_TRUE(function) << function.error().message();
    EXPECT_EQ((*function)->identity().name, "sim:size=1M");
    options_.address_space = (*function)->address_space();
    const auto second = open("sim:size=2M");
    ASSERT_TRUE(second) << second.error().message();
    EXPECT_EQ((*second)->address_space(), (*function)->address_space()) << "shared";
    options_.address_space = std::make_shared<test::FakeAddressSpace>(iommu::AddressSpaceKind::iommufd);
    EXPECT_TRUE(open("sim:size=1M").error().is(EINVAL));
    options_.address_space.reset();
    options_.path = Path::cdev;
    EXPECT_TRUE(open("sim:size=1M").error().is(EINVAL));
}

TEST_F(OpenFunction, AnyOtherNameIsRefusedWithTheFormsThereAre) {
    build({.what = "everything"});
    for (const char* name : {"", "nvme0", "/dev/nvme0", "0000:01:00", "simulated"}) {
        const auto function = open(name);
        ASSERT_FALSE(function) << name;
        EXPECT_TRUE(function.error().is(EINVAL)) << name;
        EXPECT_THAT(function.error().message(), HasSubstr("sim:")) << name;
    }
    EXPECT_TRUE(open("0000:02:00.0").error().is(ENODEV));
}

} // namespace
} // namespace upcie
