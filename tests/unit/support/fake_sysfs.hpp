// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/pci/enumeration.hpp>

namespace upcie::test {

/// A directory of its own for one test, gone at the end.
class TempDirectory {
  public:
    TempDirectory() {
        std::string pattern = (std::filesystem::temp_directory_path() / "upcie-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed");
        }
        path_ = pattern;
    }
    TempDirectory(const TempDirectory&) = delete;
    TempDirectory& operator=(const TempDirectory&) = delete;
    ~TempDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  private:
    std::filesystem::path path_;
};

/// What a fake PCI function is like; the members have the names of sysfs.
struct FakeFunction {
    std::string bdf = "0000:01:00.0";
    std::string under = "pci0000:00"; ///< its place below /sys/devices, bridges included
    std::string class_code = "0x010802";
    std::string vendor = "0x1b36";
    std::string device = "0x0010";
    std::string driver;   ///< none when empty
    int iommu_group = -1; ///< none when negative
    std::string group_type = "DMA";
    std::string group_name; ///< "vfio-noiommu" for a group of no-IOMMU mode
    std::string vfio_name;  ///< an entry in vfio-dev and in /sys/class/vfio-dev
    bool vfio_node = false; ///< and the node in /dev/vfio/devices
    std::string resource = "0x00000000fe200000 0x00000000fe203fff 0x0000000000140204\n"
                           "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
};

/// A /sys, /dev and /proc in a temporary directory, as far as this library reads them. Files are real, so that the real
/// System may be used on it; what the kernel does on a write is up to the test.
class FakeSysfs {
  public:
    FakeSysfs() {
        for (const char* directory : {"sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/class/vfio-dev",
                                      "sys/class/block", "sys/kernel/iommu_groups", "dev/vfio/devices", "proc/self"}) {
            std::filesystem::create_directories(root_.path() / directory);
        }
        write("sys/bus/pci/drivers_probe", "");
        write("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
        write("proc/self/mountinfo", "22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n");
    }

    [[nodiscard]] pci::Roots roots() const {
        pci::Roots roots;
        roots.sysfs = (root_.path() / "sys").string();
        roots.dev = (root_.path() / "dev").string();
        roots.proc = (root_.path() / "proc").string();
        return roots;
    }
    /// A path below the temporary root: "sys/bus/pci/drivers_probe".
    [[nodiscard]] std::string path(std::string_view relative) const { return (root_.path() / relative).string(); }

    void write(const std::string& relative, std::string_view text) {
        const auto file = root_.path() / relative;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream{file, std::ios::trunc} << text;
    }
    [[nodiscard]] std::string read(const std::string& relative) const {
        std::ifstream file{root_.path() / relative};
        return {std::istreambuf_iterator<char>{file}, {}};
    }
    void link(const std::string& relative, const std::string& target) {
        const auto file = root_.path() / relative;
        std::filesystem::create_directories(file.parent_path());
        std::filesystem::remove(file);
        std::filesystem::create_symlink(target, file);
    }
    void remove(const std::string& relative) { std::filesystem::remove_all(root_.path() / relative); }

    void add_driver(const std::string& name) {
        write("sys/bus/pci/drivers/" + name + "/bind", "");
        write("sys/bus/pci/drivers/" + name + "/unbind", "");
    }
    /// Sets or takes away the link to the driver, as the kernel does when it binds.
    void set_driver(const std::string& bdf, const std::string& name) {
        const std::string place = "sys/bus/pci/devices/" + bdf + "/driver";
        remove(place);
        if (!name.empty()) {
            link(place, path("sys/bus/pci/drivers/" + name));
        }
    }

    void add(const FakeFunction& function) {
        const std::string place = "devices/" + function.under + "/" + function.bdf;
        const std::string directory = "sys/" + place;
        write(directory + "/vendor", function.vendor + "\n");
        write(directory + "/device", function.device + "\n");
        write(directory + "/class", function.class_code + "\n");
        write(directory + "/subsystem_vendor", "0x1af4\n");
        write(directory + "/subsystem_device", "0x1100\n");
        write(directory + "/revision", "0x02\n");
        write(directory + "/numa_node", "-1\n");
        write(directory + "/driver_override", "(null)\n");
        write(directory + "/resource", function.resource);
        link("sys/bus/pci/devices/" + function.bdf, "../../../" + place);
        if (!function.driver.empty()) {
            add_driver(function.driver);
            set_driver(function.bdf, function.driver);
        }
        if (function.iommu_group >= 0) {
            const std::string group = "sys/kernel/iommu_groups/" + std::to_string(function.iommu_group);
            write(group + "/type", function.group_type + "\n");
            if (!function.group_name.empty()) {
                write(group + "/name", function.group_name + "\n");
            }
            link(group + "/devices/" + function.bdf, path(directory));
            link(directory + "/iommu_group", path(group));
        }
        if (!function.vfio_name.empty()) {
            const std::string entry = directory + "/vfio-dev/" + function.vfio_name;
            write(entry + "/dev", "511:0\n");
            link("sys/class/vfio-dev/" + function.vfio_name, "../../" + place + "/vfio-dev/" + function.vfio_name);
            if (function.vfio_node) {
                write("dev/vfio/devices/" + function.vfio_name, "");
            }
        }
    }

  private:
    TempDirectory root_;
};

} // namespace upcie::test
