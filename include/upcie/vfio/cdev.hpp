// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

/// The steps of opening a device by its own node (Linux 6.6 and later), one kernel request each and nothing added, so
/// that a probe may also ask for what is wrong. Threads: any.
namespace upcie::vfio {

/// Opens /dev/vfio/devices/vfioN. A second open succeeds too: it is the bind that is exclusive.
/// Errors: EACCES (permission of the node), EPERM (a no-IOMMU node without CAP_SYS_RAWIO), ENOENT (no such node: not
/// bound to vfio-pci, or a kernel without CONFIG_VFIO_DEVICE_CDEV), ENODEV (the device is going away).
[[nodiscard]] Result<os::Fd> open_cdev(os::System& system, const std::string& path);

/// VFIO_DEVICE_BIND_IOMMUFD: makes this open file the device's owner, with DMA through `iommufd`. Answers the device's
/// id within that iommufd. Undone by closing the file. `subject` names the device in errors.
/// Errors: EINVAL (bound already, by this or any other open file; or not a cdev), EBUSY (the device or its group is
/// open through /dev/vfio/N), EPERM (a group member belongs to a kernel driver, or interrupts cannot be isolated),
/// EBADF/EBADFD (`iommufd` is none), ENOTTY (too old a kernel).
[[nodiscard]] Result<std::uint32_t> bind_iommufd(os::System& system, int device, int iommufd, std::string_view subject);

/// VFIO_DEVICE_ATTACH_IOMMUFD_PT: sends the device's DMA through an IOAS (or a hwpt) of the iommufd it is bound to.
/// Answers the id attached to. Errors: EINVAL (not bound, a sibling elsewhere, or the IOAS has a mapping in a range
/// reserved for this device), ENOENT (no such id in that iommufd), EBUSY (being reset), ENOMEM.
[[nodiscard]] Result<std::uint32_t> attach_ioas(os::System& system, int device, std::uint32_t ioas_id,
                                                std::string_view subject);

/// VFIO_DEVICE_DETACH_IOMMUFD_PT: DMA is blocked after. Error: EINVAL when not bound.
Result<void> detach_ioas(os::System& system, int device, std::string_view subject);

} // namespace upcie::vfio
