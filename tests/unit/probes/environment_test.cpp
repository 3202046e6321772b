// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

pci::FunctionInfo a_function() {
    pci::FunctionInfo function;
    function.driver = "vfio-pci";
    function.vfio_name = "vfio0";
    return function;
}

TEST(CdevObstacle, NamesTheDriverThatIsInTheWay) {
    pci::FunctionInfo function = a_function();
    function.driver = "nvme";
    const Obstacle obstacle = cdev_obstacle(os::real_system(), function);
    EXPECT_NE(obstacle.reason.find("nvme"), std::string::npos);
    EXPECT_NE(obstacle.remedy.find("bind"), std::string::npos);
}

TEST(CdevObstacle, NamesWhatIsMissingInDev) {
    pci::Roots roots;
    roots.dev = "/nowhere";
    EXPECT_NE(cdev_obstacle(os::real_system(), a_function(), roots).reason.find("/dev/iommu"), std::string::npos);
}

TEST(TranslationObstacle, ADeviceWithoutAnIommuIsNotToldToDoDmaToIovas) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, stat(testing::_, testing::_)).WillByDefault(testing::Return(0)); // /dev/iommu is there
    pci::FunctionInfo function = a_function();
    function.vfio_cdev = "/dev/vfio/devices/vfio0";
    EXPECT_TRUE(translation_obstacle(system, function).reason.empty());
    function.vfio_name = "noiommu-vfio0";
    EXPECT_TRUE(cdev_obstacle(system, function).reason.empty());
    EXPECT_NE(translation_obstacle(system, function).reason.find("IOMMU"), std::string::npos);
    EXPECT_FALSE(translation_obstacle(system, function).remedy.empty());
}

TEST(IommuMode, IsSaidInWords) {
    pci::FunctionInfo function = a_function();
    EXPECT_EQ(describe_machine(os::real_system(), function).iommu_mode.rfind("none", 0), 0U);
    function.iommu_group.emplace();
    function.iommu_group->type = "identity";
    EXPECT_NE(describe_machine(os::real_system(), function).iommu_mode.find("identity"), std::string::npos);
    function.iommu_group->type = "DMA-FQ";
    EXPECT_NE(describe_machine(os::real_system(), function).iommu_mode.find("DMA-FQ"), std::string::npos);
    function.vfio_name = "noiommu-vfio0";
    EXPECT_EQ(describe_machine(os::real_system(), function).iommu_mode.rfind("no-IOMMU", 0), 0U);
}

TEST(FindDevice, ANameThatIsNoneIsRefused) {
    EXPECT_FALSE(find_device(os::real_system(), "sim:"));
    EXPECT_FALSE(find_device(os::real_system(), ""));
    EXPECT_FALSE(find_device(os::real_system(), "/dev/vfio/devices/vfio4711"));
}

} // namespace
} // namespace upcie::probes
