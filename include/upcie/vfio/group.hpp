// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

namespace upcie::vfio {

/// A group member that keeps the group from being used, because a kernel driver does DMA with it.
struct GroupObstacle {
    pci::Bdf bdf;
    std::string driver;
};
/// The members of `function`'s IOMMU group that belong to a kernel driver. Bridges, functions without a driver and
/// those bound to vfio or pci-stub are no obstacles (drivers that set driver_managed_dma, drivers/iommu/iommu.c).
/// Threads: any.
[[nodiscard]] std::vector<GroupObstacle> group_obstacles(os::System& system, const pci::FunctionInfo& function,
                                                         const pci::Roots& roots = {});
/// "0000:01:00.1 (ahci), 0000:01:00.2 (xhci_hcd)", or empty.
[[nodiscard]] std::string describe(const std::vector<GroupObstacle>& obstacles);

/// An open /dev/vfio/N. Move-only; must outlive neither the container nor the devices opened from it (the kernel
/// counts). Threads: one at a time.
class Group {
  public:
    Group() noexcept = default;

    /// Opens `function`'s group and makes sure that it is viable.
    /// Errors: ENOENT (no IOMMU group, or no node: not bound to vfio-pci), EACCES, EBUSY (open elsewhere: it has one
    /// opener, and a bound cdev excludes it), EPERM (not viable: the hint names the other functions and their drivers).
    [[nodiscard]] static Result<Group> open(os::System& system, const pci::FunctionInfo& function,
                                            const pci::Roots& roots = {});

    /// VFIO_GROUP_GET_DEVICE_FD; the group must be in a container whose IOMMU is set (Type1Container::attach_group).
    /// Errors: EINVAL (no container), ENODEV (not in this group, or not bound to vfio-pci), EBUSY.
    [[nodiscard]] Result<os::Fd> open_device(const pci::Bdf& bdf);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] unsigned number() const noexcept { return number_; }
    [[nodiscard]] const std::string& node() const noexcept { return node_; }

  private:
    os::System* system_ = nullptr;
    os::Fd fd_;
    unsigned number_ = 0;
    std::string node_;
};

} // namespace upcie::vfio
