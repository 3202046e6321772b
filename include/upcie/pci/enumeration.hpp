// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/pci/bdf.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::pci {

/// Where the kernel's trees are. Anything but the defaults is for tests.
struct Roots {
    std::string sysfs = "/sys";
    std::string dev = "/dev";
    std::string proc = "/proc";

    /// "/sys/bus/pci/devices/0000:01:00.0"
    [[nodiscard]] std::string device(const Bdf& bdf) const { return sysfs + "/bus/pci/devices/" + bdf.to_string(); }
};

/// A base address register as the kernel assigned it (sysfs `resource`, flags of linux/ioport.h).
struct BarInfo {
    unsigned index = 0; ///< 0 to 5, 6 is the expansion ROM; a 64-bit BAR hides the next index
    BusAddress address; ///< as the host sees it
    ByteCount size;
    bool io = false; ///< an I/O port range, not memory
    bool is_64bit = false;
    bool prefetchable = false;
    bool unassigned = false; ///< the kernel found no room: `address` means nothing
};

/// The set of functions that the IOMMU cannot tell apart.
struct IommuGroupInfo {
    unsigned number = 0;
    std::string type;         ///< default domain: "DMA", "DMA-FQ", "identity", ...; empty where the kernel does not say
    bool noiommu = false;     ///< made by vfio's no-IOMMU mode: nothing translates and nothing protects
    std::vector<Bdf> members; ///< this function included, ascending
};

/// PCIe link as negotiated, and at best ("16.0 GT/s PCIe").
struct LinkInfo {
    std::string speed;
    std::string max_speed;
    unsigned width = 0;
    unsigned max_width = 0;
};

/// What sysfs knows about a function. Strings are empty where there is nothing.
struct FunctionInfo {
    Bdf bdf;
    std::uint32_t class_code = 0; ///< 24 bits: 0x010802 is an NVMe controller
    std::uint16_t vendor = 0;
    std::uint16_t device = 0;
    std::uint16_t subsystem_vendor = 0;
    std::uint16_t subsystem_device = 0;
    std::uint8_t revision = 0;
    std::string driver;
    std::string driver_override;
    std::optional<IommuGroupInfo> iommu_group; ///< none: no IOMMU behind this function
    int numa_node = -1;                        ///< -1: unknown
    std::vector<BarInfo> bars;                 ///< the implemented ones, ascending
    std::string vfio_name; ///< vfio's device name, "vfio0" or "noiommu-vfio0"; says nothing about the cdev
    std::string vfio_cdev; ///< "/dev/vfio/devices/vfio0", only where that node exists
    std::optional<LinkInfo> link;
    std::vector<Bdf> parents; ///< the bridges above, nearest first; VMD's endpoint is one of them
    std::string root_bus;     ///< "pci0000:00": two functions with the same one meet below the root complex

    [[nodiscard]] bool is_nvme() const noexcept { return class_code == 0x010802; }
    [[nodiscard]] const BarInfo* bar(unsigned index) const noexcept;
    /// What an opened Function says of itself.
    [[nodiscard]] Identity identity() const;
};

/// Every PCI function, ascending. One that vanishes meanwhile is left out.
/// Error: what listing /sys/bus/pci/devices says (ENOENT: no PCI, or sysfs is not mounted). Threads: any.
[[nodiscard]] Result<std::vector<FunctionInfo>> enumerate(os::System& system, const Roots& roots = {});

/// One function. Error: ENODEV when there is none at that address, else what reading its ids says. Threads: any.
[[nodiscard]] Result<FunctionInfo> find_function(os::System& system, const Bdf& bdf, const Roots& roots = {});

/// The function behind a vfio cdev's name ("vfio0", "noiommu-vfio0").
/// Error: ENODEV when no vfio driver has a device of that name. Threads: any.
[[nodiscard]] Result<FunctionInfo> find_by_vfio_name(os::System& system, const std::string& name,
                                                     const Roots& roots = {});

} // namespace upcie::pci
