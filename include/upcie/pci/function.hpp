// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <upcie/os/mapping.hpp>
#include <upcie/pci/bdf.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {
class AddressSpace;
}

namespace upcie::pci {

/// Part of a region that may be mmapped; the rest (an MSI-X table, say) may not.
struct MappableArea {
    ByteCount offset;
    ByteCount size;
};

/// What a region (BAR 0 to 5; 6 is the expansion ROM) can do.
struct RegionInfo {
    unsigned index = 0;
    ByteCount size; ///< 0: not implemented
    bool readable = false;
    bool writable = false;
    std::vector<MappableArea> areas; ///< ascending; empty when the region cannot be mapped at all
};

/// Which function it is, as config space and sysfs say.
struct Identity {
    std::string name;       ///< how its user named it: "0000:01:00.0", "sim:size=1G"
    std::optional<Bdf> bdf; ///< none for a simulated function
    std::uint16_t vendor = 0;
    std::uint16_t device = 0;
    std::uint32_t class_code = 0; ///< 24 bits: 0x010802 is an NVMe controller
    int numa_node = -1;           ///< -1: unknown
};

/// A PCI function that this process may drive. A seam: virtual, cold path only (a mapped BAR is used directly).
///
/// Owns what it opened; gives the device back (bus master off, interrupts off) at destruction.
/// Threads: one at a time, except where said.
class Function {
  public:
    Function(const Function&) = delete;
    Function& operator=(const Function&) = delete;
    virtual ~Function() = default;

    [[nodiscard]] virtual const Identity& identity() const noexcept = 0;
    /// Which way it was opened ("vfio cdev + iommufd") and why that one ("/dev/vfio/devices/vfio0 exists and ...").
    [[nodiscard]] virtual std::string path() const = 0;
    [[nodiscard]] virtual std::string path_reason() const = 0;
    /// The address space this function's DMA goes through. Never null.
    [[nodiscard]] virtual std::shared_ptr<iommu::AddressSpace> address_space() const = 0;

    /// Config space, `width` 1, 2 or 4 bytes at a multiple of the width below 4096. Error: EINVAL, EIO, ENODEV.
    [[nodiscard]] virtual Result<std::uint32_t> read_config(unsigned offset, unsigned width) = 0;
    virtual Result<void> write_config(unsigned offset, unsigned width, std::uint32_t value) = 0;

    /// Error: EINVAL for an index that does not exist.
    [[nodiscard]] virtual Result<RegionInfo> region(unsigned index) = 0;
    /// Maps [offset, offset + length) of a region; must lie inside one MappableArea. Error: EINVAL, ENOTSUP.
    [[nodiscard]] virtual Result<os::Mapping> map_region(unsigned index, ByteCount offset, ByteCount length) = 0;
    /// Access without a mapping, `width` 1, 2, 4 or 8. Error: EINVAL, EIO.
    [[nodiscard]] virtual Result<std::uint64_t> read_region(unsigned index, ByteCount offset, unsigned width) = 0;
    virtual Result<void> write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) = 0;

    /// Lets the function start DMA (command register, bit 2) or stops it.
    virtual Result<void> set_bus_master(bool enabled) = 0;

    /// How many MSI-X (or else MSI) vectors there are; 0 when the path has no interrupts.
    [[nodiscard]] virtual Result<unsigned> interrupt_count() = 0;
    /// Vector i signals eventfds[i]; -1 leaves it silent. Replaces what was set before. Error: EINVAL, ENOTSUP.
    virtual Result<void> enable_interrupts(std::span<const int> eventfds) = 0;
    virtual Result<void> disable_interrupts() = 0;

    /// Function-level reset. Error: ENOTSUP when the function has none.
    virtual Result<void> reset() = 0;

    /// Called by waits between two looks at a register. Real functions let the processor go for a moment; a stepped
    /// simulator takes a step. Threads: any.
    virtual void pause() noexcept = 0;

  protected:
    Function() = default;
};

} // namespace upcie::pci
