// SPDX-License-Identifier: BSD-3-Clause
// The steps of opening a device and its optional features: what each errno is explained as.
#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_sysfs.hpp>
#include <support/mock_system.hpp>
#include <uapi/vfio.hpp>
#include <upcie/vfio/cdev.hpp>
#include <upcie/vfio/feature.hpp>
#include <upcie/vfio/group.hpp>

namespace upcie::vfio {
namespace {

using testing::_;
using testing::HasSubstr;
using testing::Return;
using testing::StrEq;

constexpr int device = 42;

struct Explained {
    int code;
    const char* words;
};

class OpenSteps : public testing::Test {
  protected:
    test::MockSystem system_;
};

TEST_F(OpenSteps, EachErrnoOfACdevOpenIsExplained) {
    for (const auto& [code, words] : {Explained{EACCES, "udev"}, Explained{EPERM, "CAP_SYS_RAWIO"},
                                      Explained{ENOENT, "CONFIG_VFIO_DEVICE_CDEV"}, Explained{ENODEV, "removed"}}) {
        EXPECT_CALL(system_, open(StrEq("/dev/vfio/devices/vfio0"), _, _)).WillOnce(test::fails_with(code));
        const auto fd = open_cdev(system_, "/dev/vfio/devices/vfio0");
        ASSERT_FALSE(fd);
        EXPECT_TRUE(fd.error().is(code));
        EXPECT_THAT(fd.error().hint, HasSubstr(words));
    }
}

TEST_F(OpenSteps, EachErrnoOfABindIsExplained) {
    for (const auto& [code, words] :
         {Explained{EINVAL, "bound already"}, Explained{EBUSY, "group path"}, Explained{EPERM, "kernel driver"},
          Explained{EBADF, "/dev/iommu"}, Explained{EBADFD, "/dev/iommu"}, Explained{ENOTTY, "6.6"}}) {
        EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_bind_iommufd, _)).WillOnce(test::fails_with(code));
        const auto id = bind_iommufd(system_, device, 5, "vfio0");
        ASSERT_FALSE(id);
        EXPECT_TRUE(id.error().is(code));
        EXPECT_THAT(id.error().hint, HasSubstr(words));
    }
}

TEST_F(OpenSteps, EachErrnoOfAnAttachIsExplained) {
    for (const auto& [code, words] : {Explained{EINVAL, "not bound"}, Explained{ENOENT, "id"},
                                      Explained{EBUSY, "reset"}, Explained{EADDRINUSE, "reserved"}}) {
        EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_attach_iommufd_pt, _)).WillOnce(test::fails_with(code));
        const auto id = attach_ioas(system_, device, 3, "vfio0");
        ASSERT_FALSE(id);
        EXPECT_THAT(id.error().hint, HasSubstr(words));
    }
}

TEST_F(OpenSteps, BindAndAttachSendWhatOldKernelsTakeAndAnswerIds) {
    EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_bind_iommufd, _))
        .WillOnce([](int, unsigned long, void* argument) {
            auto* bind = static_cast<uapi::VfioDeviceBindIommufd*>(argument);
            EXPECT_EQ(bind->argsz, 16U);
            EXPECT_EQ(bind->flags, 0U);
            EXPECT_EQ(bind->iommufd, 5);
            bind->out_devid = 2;
            return 0;
        });
    EXPECT_EQ(*bind_iommufd(system_, device, 5, "vfio0"), 2U);
    EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_attach_iommufd_pt, _))
        .WillOnce([](int, unsigned long, void* argument) {
            auto* attach = static_cast<uapi::VfioDeviceAttachIommufdPt*>(argument);
            EXPECT_EQ(attach->argsz, 12U);
            EXPECT_EQ(attach->pt_id, 3U);
            attach->pt_id = 4;
            return 0;
        });
    EXPECT_EQ(*attach_ioas(system_, device, 3, "vfio0"), 4U);
}

TEST_F(OpenSteps, FeatureProbingTellsTooOldFromRefused) {
    struct Case {
        int code;
        FeatureState state;
    };
    for (const auto& [code, state] :
         {Case{0, FeatureState::available}, Case{ENOTTY, FeatureState::kernel_too_old},
          Case{EOPNOTSUPP, FeatureState::not_supported_by_device}, Case{ENODEV, FeatureState::not_supported_by_device},
          Case{EINVAL, FeatureState::refused}, Case{EPERM, FeatureState::refused}}) {
        EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_feature, _))
            .WillOnce([code = code](int, unsigned long, void* argument) {
                const auto* feature = static_cast<uapi::VfioDeviceFeature*>(argument);
                EXPECT_EQ(feature->flags, uapi::vfio_device_feature_probe | uapi::vfio_device_feature_get |
                                              uapi::vfio_device_feature_dma_buf);
                errno = code;
                return code == 0 ? 0 : -1;
            });
        const auto answer = probe_feature(system_, device, Feature::dma_buf);
        EXPECT_EQ(answer.state, state) << code;
        EXPECT_EQ(answer.code, code);
    }
}

TEST_F(OpenSteps, ADmaBufExportSendsItsRanges) {
    EXPECT_CALL(system_, close(99)).WillOnce(Return(0));
    EXPECT_CALL(system_, ioctl(device, uapi::vfio_device_feature, _)).WillOnce([](int, unsigned long, void* argument) {
        struct Message {
            uapi::VfioDeviceFeature head;
            uapi::VfioDeviceFeatureDmaBuf body;
            uapi::VfioRegionDmaRange ranges[2];
        } message{};
        static_assert(sizeof(message) == 8 + 16 + 32);
        std::memcpy(&message, argument, sizeof(message));
        EXPECT_EQ(message.head.argsz, sizeof(message));
        EXPECT_EQ(message.head.flags, uapi::vfio_device_feature_get | uapi::vfio_device_feature_dma_buf);
        EXPECT_EQ(message.body.region_index, 4U);
        EXPECT_EQ(message.body.open_flags, static_cast<unsigned>(O_RDWR | O_CLOEXEC));
        EXPECT_EQ(message.body.flags, 0U);
        EXPECT_EQ(message.body.nr_ranges, 2U);
        EXPECT_EQ(message.ranges[1].offset, 0x200000000U);
        EXPECT_EQ(message.ranges[1].length, 0x1000U);
        return 99;
    });
    const DmaRange ranges[]{{ByteCount{0}, ByteCount{0x2000}}, {ByteCount{0x200000000}, ByteCount{0x1000}}};
    const auto fd = export_dmabuf(system_, device, 4, ranges, "vfio0");
    ASSERT_TRUE(fd);
    EXPECT_EQ(fd->get(), 99);
}

class GroupTest : public OpenSteps {
  protected:
    GroupTest() {
        test::FakeFunction function;
        function.driver = "vfio-pci";
        function.iommu_group = 7;
        sysfs_.add(function);
        function.bdf = "0000:01:00.1";
        function.driver = "ahci";
        function.class_code = "0x010601";
        sysfs_.add(function);
        sysfs_.write("dev/vfio/7", "");
    }
    pci::FunctionInfo info() { return *pci::find_function(system_, *pci::Bdf::parse("01:00.0"), sysfs_.roots()); }
    void status_is(std::uint32_t flags) {
        ON_CALL(system_, ioctl(_, uapi::vfio_group_get_status, _))
            .WillByDefault([flags](int, unsigned long, void* argument) {
                static_cast<uapi::VfioGroupStatus*>(argument)->flags = flags;
                return 0;
            });
    }
    test::FakeSysfs sysfs_;
};

TEST_F(GroupTest, AGroupThatIsNotViableNamesTheOtherDeviceAndItsDriver) {
    status_is(0);
    const auto group = Group::open(system_, info(), sysfs_.roots());
    ASSERT_FALSE(group);
    EXPECT_TRUE(group.error().is(EPERM));
    EXPECT_THAT(group.error().message(), HasSubstr("0000:01:00.1 (ahci)"));
    EXPECT_THAT(group.error().message(), HasSubstr("not viable"));
}

TEST_F(GroupTest, MembersOnVfioOrBridgesAreNoObstacle) {
    EXPECT_EQ(describe(group_obstacles(system_, info(), sysfs_.roots())), "0000:01:00.1 (ahci)");
    for (const char* driver : {"vfio-pci", "mlx5_vfio_pci", "pci-stub"}) {
        sysfs_.add_driver(driver);
        sysfs_.set_driver("0000:01:00.1", driver);
        EXPECT_TRUE(group_obstacles(system_, info(), sysfs_.roots()).empty()) << driver;
    }
    sysfs_.set_driver("0000:01:00.1", "");
    EXPECT_TRUE(group_obstacles(system_, info(), sysfs_.roots()).empty());
    sysfs_.set_driver("0000:01:00.1", "ahci");
    sysfs_.write("sys/devices/pci0000:00/0000:01:00.1/class", "0x060400\n");
    EXPECT_TRUE(group_obstacles(system_, info(), sysfs_.roots()).empty());
}

TEST_F(GroupTest, OpensTheNodeOfItsNumber) {
    status_is(uapi::vfio_group_flags_viable);
    const auto group = Group::open(system_, info(), sysfs_.roots());
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_EQ(group->node(), sysfs_.path("dev/vfio/7"));
}

TEST_F(GroupTest, EachErrnoOfAnOpenIsExplained) {
    const std::string node = sysfs_.path("dev/vfio/7");
    const auto function = info();
    for (const auto& [code, words] : {Explained{EBUSY, "open elsewhere"}, Explained{EACCES, "udev"},
                                      Explained{ENOENT, "vfio-pci"}, Explained{EPERM, "CAP_SYS_RAWIO"}}) {
        EXPECT_CALL(system_, open(StrEq(node), _, _)).WillOnce(test::fails_with(code));
        const auto group = Group::open(system_, function, sysfs_.roots());
        ASSERT_FALSE(group);
        EXPECT_TRUE(group.error().is(code));
        EXPECT_THAT(group.error().hint, HasSubstr(words));
    }
}

TEST_F(GroupTest, WithoutAnIommuTheHintSaysHowToTurnItOn) {
    auto function = info();
    function.iommu_group.reset();
    const auto group = Group::open(system_, function, sysfs_.roots());
    ASSERT_FALSE(group);
    EXPECT_THAT(group.error().message(), HasSubstr("intel_iommu=on"));
}

TEST_F(GroupTest, ADeviceBeforeTheContainerIsExplained) {
    status_is(uapi::vfio_group_flags_viable);
    auto group = Group::open(system_, info(), sysfs_.roots());
    ASSERT_TRUE(group);
    EXPECT_CALL(system_, ioctl(_, uapi::vfio_group_get_device_fd, _)).WillOnce(test::fails_with(EINVAL));
    const auto fd = group->open_device({0, 1, 0, 0});
    ASSERT_FALSE(fd);
    EXPECT_THAT(fd.error().hint, HasSubstr("VFIO_SET_IOMMU"));
}

} // namespace
} // namespace upcie::vfio
