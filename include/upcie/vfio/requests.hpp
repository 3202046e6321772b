// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/bdf.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

/// The requests of an open vfio device, however it was opened: one kernel request each. `subject` names the device in
/// errors. Source: linux/vfio.h. Threads: any, as far as the device's own state allows.
namespace upcie::vfio {

struct DeviceInfo {
    bool pci = false;
    bool can_reset = false;
    unsigned region_count = 0;
    unsigned interrupt_index_count = 0;
};
/// VFIO_DEVICE_GET_INFO. Error: EINVAL when a cdev is not bound yet, ENODEV when the device is gone.
[[nodiscard]] Result<DeviceInfo> get_info(os::System& system, int device, std::string_view subject);

/// A region and where it begins in the device's file.
struct Region {
    pci::RegionInfo info;
    std::uint64_t file_offset = 0;
};
/// VFIO_DEVICE_GET_REGION_INFO with its capability chain: what may be mapped is what the sparse-mmap capability lists,
/// or, without one, all of a region that says that it can be mapped.
/// Errors: EINVAL (no such region, or a cdev that is not bound), EPROTO (the kernel's answer does not hold together),
/// ENODEV.
[[nodiscard]] Result<Region> get_region(os::System& system, int device, unsigned index, std::string_view subject);

/// Which of a PCI function's interrupt mechanisms.
enum class InterruptKind : std::uint32_t { msi = 1, msix = 2 };
/// VFIO_DEVICE_GET_IRQ_INFO: how many vectors; 0 when the function lacks the mechanism. Error: EINVAL, ENODEV.
[[nodiscard]] Result<unsigned> get_interrupt_count(os::System& system, int device, InterruptKind kind,
                                                   std::string_view subject);
/// VFIO_DEVICE_SET_IRQS: vector i signals eventfds[i], -1 leaves it silent. Nothing may be enabled before.
/// Errors: EINVAL (more than there are, or enabled already), ENOSPC (the machine has fewer vectors to give), EBADF.
Result<void> set_interrupts(os::System& system, int device, InterruptKind kind, std::span<const int> eventfds,
                            std::string_view subject);
/// Turns the mechanism off; no error when it was.
Result<void> clear_interrupts(os::System& system, int device, InterruptKind kind, std::string_view subject);

/// VFIO_DEVICE_RESET: function-level reset. Errors: ENOTTY/EINVAL (the function has none), EAGAIN (locked, try again).
Result<void> reset(os::System& system, int device, std::string_view subject);

/// A function that a bus or slot reset would hit as well.
struct AffectedFunction {
    pci::Bdf bdf;
    std::uint32_t id = 0; ///< a group number, or the devid within the iommufd (see HotResetInfo::by_device_id)
    bool owned = false;   ///< by this iommufd; meaningful only by_device_id
};
struct HotResetInfo {
    bool by_device_id = false; ///< opened through the cdev
    bool all_owned = false;    ///< hot_reset with no group descriptors is allowed; meaningful only by_device_id
    std::vector<AffectedFunction> affected;
};
/// VFIO_DEVICE_GET_PCI_HOT_RESET_INFO. Error: ENODEV when neither slot nor bus can be reset.
[[nodiscard]] Result<HotResetInfo> get_hot_reset_info(os::System& system, int device, std::string_view subject);
/// VFIO_DEVICE_PCI_HOT_RESET. Through the group path `groups` proves ownership of each affected group; through the cdev
/// it is empty. Errors: EINVAL/EPERM (an affected function belongs to someone else), ENODEV, ENOTTY (done, but the link
/// did not come up again in time: QEMU's root port does that).
Result<void> hot_reset(os::System& system, int device, std::span<const int> groups, std::string_view subject);

} // namespace upcie::vfio
