// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/driver_binding.hpp>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_sysfs.hpp>
#include <support/mock_system.hpp>

namespace upcie::pci {
namespace {

using test::FakeFunction;
using test::FakeSysfs;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* address = "0000:01:00.0";

/// The kernel's side of a bind: what writes to sysfs do to the fake tree.
class DriverBindingTest : public testing::Test {
  protected:
    DriverBindingTest() {
        sysfs_.add_driver("vfio-pci");
        sysfs_.add_driver("nvme");
        takes_ = {"vfio-pci", "nvme"};
        ON_CALL(system_, write(_, _, _)).WillByDefault([this](int fd, const void* data, std::size_t length) {
            const std::string file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
            return answer(file, {static_cast<const char*>(data), length});
        });
    }

    ssize_t answer(const std::string& file, std::string_view text) {
        const auto name = std::filesystem::path{file}.filename().string();
        writes_.push_back(name + "=" + std::string{text == "\n" ? "" : text});
        if (fails_ && fails_(writes_.back())) {
            return -1;
        }
        if (name == "driver_override") {
            override_ = text == "\n" ? "" : std::string{text};
            sysfs_.write("sys/bus/pci/devices/0000:01:00.0/driver_override",
                         override_.empty() ? "(null)\n" : override_ + "\n");
        } else if (name == "unbind") {
            sysfs_.set_driver(address, "");
        } else if (name == "drivers_probe") {
            const std::string wanted = override_.empty() ? "nvme" : override_;
            if (takes_.count(wanted) == 0) {
                errno = EINVAL;
                return -1;
            }
            sysfs_.set_driver(address, wanted);
        }
        return static_cast<ssize_t>(text.size());
    }

    void add(const char* driver, int group = 3) {
        FakeFunction function;
        function.driver = driver;
        function.iommu_group = group;
        sysfs_.add(function);
    }
    void add_disk(const std::string& name = "nvme0n1") {
        sysfs_.write("sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/" + name + "/size", "1\n");
        sysfs_.write("sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/hwmon1/name", "nvme\n");
        sysfs_.write("sys/class/block/nvme0n1/dev", "259:0\n");
        sysfs_.write("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n");
        sysfs_.write("sys/class/block/nvme0n1p1/dev", "259:1\n");
        std::filesystem::create_directories(sysfs_.path("sys/class/block/nvme0n1/holders"));
        std::filesystem::create_directories(sysfs_.path("sys/class/block/nvme0n1p1/holders"));
        sysfs_.write("dev/nvme0n1", "");
    }
    std::string driver() { return find_function(system_, bdf_, sysfs_.roots())->driver; }
    std::string driver_override() { return find_function(system_, bdf_, sysfs_.roots())->driver_override; }
    Result<DriverBinding> bind(const char* name = "vfio-pci", BindOptions options = {}) {
        return DriverBinding::bind(system_, bdf_, name, options, sysfs_.roots());
    }

    Bdf bdf_ = *Bdf::parse(address);
    FakeSysfs sysfs_;
    test::MockSystem system_;
    std::vector<std::string> writes_;
    std::function<bool(const std::string&)> fails_;
    std::set<std::string> takes_;
    std::string override_;
};

TEST_F(DriverBindingTest, BindsByOverrideAndGivesBack) {
    add("nvme");
    auto binding = bind();
    ASSERT_TRUE(binding) << binding.error().message();
    EXPECT_TRUE(binding->changed());
    EXPECT_EQ(binding->previous_driver(), "nvme");
    EXPECT_EQ(driver(), "vfio-pci");
    EXPECT_THAT(writes_, ElementsAre("driver_override=vfio-pci", "unbind=0000:01:00.0", "drivers_probe=0000:01:00.0"));
    ASSERT_TRUE(binding->restore());
    EXPECT_EQ(driver(), "nvme");
    EXPECT_EQ(driver_override(), "");
    writes_.clear();
    EXPECT_TRUE(binding->restore()) << "a second time is no error";
    EXPECT_TRUE(writes_.empty());
}

TEST_F(DriverBindingTest, TheOldOverrideComesBackToo) {
    add("nvme");
    sysfs_.write("sys/bus/pci/devices/0000:01:00.0/driver_override", "nvme\n");
    override_ = "nvme";
    auto binding = bind();
    ASSERT_TRUE(binding && binding->restore());
    EXPECT_EQ(driver_override(), "nvme");
}

TEST_F(DriverBindingTest, WithoutADriverNothingIsUnboundAndNothingComesBack) {
    add("");
    auto binding = bind();
    ASSERT_TRUE(binding);
    EXPECT_THAT(writes_, ElementsAre("driver_override=vfio-pci", "drivers_probe=0000:01:00.0"));
    ASSERT_TRUE(binding->restore());
    EXPECT_EQ(driver(), "");
    EXPECT_EQ(driver_override(), "");
}

TEST_F(DriverBindingTest, AlreadyBoundChangesNothing) {
    add("vfio-pci");
    auto binding = bind();
    ASSERT_TRUE(binding);
    EXPECT_FALSE(binding->changed());
    EXPECT_TRUE(binding->restore());
    EXPECT_TRUE(writes_.empty());
    EXPECT_EQ(driver(), "vfio-pci");
}

TEST_F(DriverBindingTest, DestructionLeavesItWhereItIs) {
    add("nvme");
    { ASSERT_TRUE(bind()); }
    EXPECT_EQ(driver(), "vfio-pci");
}

TEST_F(DriverBindingTest, AMissingDriverIsNamedBeforeAnythingIsTouched) {
    add("nvme");
    const auto binding = bind("uio_pci_generic");
    ASSERT_FALSE(binding);
    EXPECT_TRUE(binding.error().is(ENOENT));
    EXPECT_THAT(binding.error().message(), HasSubstr("modprobe uio_pci_generic"));
    EXPECT_TRUE(writes_.empty());
    EXPECT_FALSE(bind("")) << "no name is no driver";
    EXPECT_FALSE(bind("../devices"));
}

TEST_F(DriverBindingTest, ARefusalPutsTheOldDriverBack) {
    add("nvme", -1);
    takes_ = {"nvme"};
    const auto binding = bind();
    ASSERT_FALSE(binding);
    EXPECT_TRUE(binding.error().is(EIO));
    EXPECT_THAT(binding.error().message(), HasSubstr("back with nvme"));
    EXPECT_THAT(binding.error().message(), HasSubstr("IOMMU")) << "without an IOMMU vfio-pci refuses: say so";
    EXPECT_EQ(driver(), "nvme");
    EXPECT_EQ(driver_override(), "");
}

TEST_F(DriverBindingTest, ARefusalThatCannotBeUndoneSaysBoth) {
    add("nvme");
    takes_ = {};
    const auto binding = bind();
    ASSERT_FALSE(binding);
    EXPECT_THAT(binding.error().message(), HasSubstr("Giving it back failed too"));
}

TEST_F(DriverBindingTest, EachFailingWriteLeavesTheFunctionWithItsDriver) {
    for (const char* step : {"driver_override=vfio-pci", "unbind=0000:01:00.0"}) {
        add("nvme");
        writes_.clear();
        fails_ = [step](const std::string& write) {
            errno = EACCES;
            return write == step;
        };
        const auto binding = bind();
        ASSERT_FALSE(binding) << step;
        EXPECT_TRUE(binding.error().is(EACCES)) << step;
        EXPECT_THAT(binding.error().message(), HasSubstr("root")) << step;
        EXPECT_EQ(driver(), "nvme") << step;
        EXPECT_EQ(driver_override(), "") << step;
    }
}

TEST_F(DriverBindingTest, GivesBackToWhatTheKernelChooses) {
    add("vfio-pci");
    override_ = "vfio-pci";
    const auto now = give_back_to_kernel(system_, bdf_, {}, sysfs_.roots());
    ASSERT_TRUE(now) << now.error().message();
    EXPECT_EQ(*now, "nvme");
    EXPECT_EQ(driver_override(), "");
}

TEST_F(DriverBindingTest, AMountedDiskIsNotTakenAway) {
    add("nvme");
    add_disk();
    sysfs_.write("proc/self/mountinfo", "22 1 253:1 / / rw - ext4 /dev/root rw\n"
                                        "30 22 259:1 / /home rw,noatime shared:2 - ext4 /dev/root2 rw\n");
    const auto binding = bind();
    ASSERT_FALSE(binding);
    EXPECT_TRUE(binding.error().is(EBUSY));
    EXPECT_THAT(binding.error().message(), HasSubstr("/dev/nvme0n1p1 is mounted on /home"));
    EXPECT_TRUE(writes_.empty());
    EXPECT_FALSE(give_back_to_kernel(system_, bdf_, {}, sysfs_.roots()));
    EXPECT_TRUE(bind("vfio-pci", {true})) << "unless forced";
}

TEST_F(DriverBindingTest, AMountByNameCountsWhereTheNumberIsAnonymous) {
    add("nvme");
    add_disk();
    sysfs_.write("proc/self/mountinfo", "30 22 0:44 /@ /data rw shared:2 - btrfs /dev/nvme0n1 rw\n");
    EXPECT_THAT(disk_users(system_, bdf_, sysfs_.roots()), ElementsAre("/dev/nvme0n1 is mounted on /data"));
    sysfs_.write("proc/self/mountinfo", "30 22 0:44 /@ /data rw shared:2 - btrfs /dev/nvme0n10 rw\n");
    EXPECT_TRUE(disk_users(system_, bdf_, sysfs_.roots()).empty()) << "another disk with a longer name";
}

TEST_F(DriverBindingTest, SwapHoldersAndExclusiveClaimsCount) {
    add("nvme");
    add_disk();
    EXPECT_TRUE(disk_users(system_, bdf_, sysfs_.roots()).empty());
    sysfs_.write("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 8 0 -2\n");
    EXPECT_THAT(disk_users(system_, bdf_, sysfs_.roots()), ElementsAre("/dev/nvme0n1p1 is swap"));
    sysfs_.write("proc/swaps", "");
    sysfs_.write("sys/class/block/nvme0n1/holders/dm-0", "");
    EXPECT_THAT(disk_users(system_, bdf_, sysfs_.roots()), ElementsAre("/dev/nvme0n1 is held by dm-0"));
    sysfs_.remove("sys/class/block/nvme0n1/holders/dm-0");

    ON_CALL(system_, open(testing::StrEq(sysfs_.path("dev/nvme0n1")), _, _)).WillByDefault(test::fails_with(EBUSY));
    EXPECT_THAT(disk_users(system_, bdf_, sysfs_.roots()), ElementsAre(HasSubstr("/dev/nvme0n1 is claimed")));
}

TEST_F(DriverBindingTest, MultipathDisksAreFoundUnderTheirVisibleName) {
    add("nvme");
    add_disk("nvme0c3n1");
    sysfs_.write("proc/self/mountinfo", "30 22 259:0 / /data rw - xfs /dev/nvme0n1 rw\n");
    EXPECT_THAT(disk_users(system_, bdf_, sysfs_.roots()), ElementsAre("/dev/nvme0n1 is mounted on /data"));
}

} // namespace
} // namespace upcie::pci
