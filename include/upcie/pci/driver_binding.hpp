// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/pci/bdf.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

namespace upcie::pci {

/// What still uses the disks of a function: "/dev/nvme0n1p2 is mounted on /home". Empty when nothing does.
///
/// Looks at /proc/self/mountinfo, /proc/swaps, the holders of each block device (device mapper, RAID) and, for what
/// those do not show (ZFS, a second btrfs device, another process), tries an exclusive open. Threads: any.
[[nodiscard]] std::vector<std::string> disk_users(os::System& system, const Bdf& bdf, const Roots& roots = {});

struct BindOptions {
    bool force = false; ///< unbind although disk_users() names some: their data are at risk
};

/// A function's driver, changed by driver_override, unbind and drivers_probe, and how it was before.
///
/// Destruction leaves the function where it is: restore() is what gives it back. Move-only. Threads: one at a time; two
/// processes that rebind the same function race, as sysfs has no lock for it.
class DriverBinding {
  public:
    /// Binds the function to `driver` ("vfio-pci", "uio_pci_generic", "nvme"); nothing happens when it is already.
    /// On a failure after the old driver let go, the old driver is asked to take the function back; the error says
    /// whether it did.
    /// Errors: ENODEV (no such function), ENOENT (the driver is not loaded), EBUSY (its disks are in use), EACCES
    /// (needs root), EIO (the driver did not take the function; the kernel's log says why), else what a write to sysfs
    /// says.
    [[nodiscard]] static Result<DriverBinding> bind(os::System& system, const Bdf& bdf, std::string_view driver,
                                                    const BindOptions& options = {}, const Roots& roots = {});

    /// Gives the function back to its old driver, and driver_override its old value. No error when already done.
    /// Errors: as bind.
    Result<void> restore();

    [[nodiscard]] const Bdf& bdf() const noexcept { return bdf_; }
    /// Empty: it had none.
    [[nodiscard]] const std::string& previous_driver() const noexcept { return previous_driver_; }
    /// False when the function was bound to that driver before.
    [[nodiscard]] bool changed() const noexcept { return changed_; }

    DriverBinding(DriverBinding&& other) noexcept
        : system_{other.system_},
          roots_{std::move(other.roots_)},
          bdf_{other.bdf_},
          previous_driver_{std::move(other.previous_driver_)},
          previous_override_{std::move(other.previous_override_)},
          changed_{std::exchange(other.changed_, false)} {}
    DriverBinding& operator=(DriverBinding&&) = delete;
    ~DriverBinding() = default;

  private:
    DriverBinding(os::System& system, Bdf bdf, Roots roots) : system_{&system}, roots_{std::move(roots)}, bdf_{bdf} {}

    os::System* system_;
    Roots roots_;
    Bdf bdf_;
    std::string previous_driver_;
    std::string previous_override_;
    bool changed_ = false;
};

/// Lets go of whatever driver the function has and clears driver_override, then lets the kernel choose as after boot
/// (an NVMe drive goes back to nvme). Answers the driver it has then; empty when none wants it.
/// Errors: as DriverBinding::bind. Threads: any.
[[nodiscard]] Result<std::string> give_back_to_kernel(os::System& system, const Bdf& bdf,
                                                      const BindOptions& options = {}, const Roots& roots = {});

} // namespace upcie::pci
