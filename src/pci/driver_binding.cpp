// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/driver_binding.hpp>

#include <cerrno>

#include <fmt/format.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::pci {

namespace {

/// The steps on one function's sysfs entries; each failure says which of them it was.
class Steps {
  public:
    Steps(os::System& system, const Bdf& bdf, const Roots& roots) : system_{system}, bdf_{bdf}, roots_{roots} {}

    [[nodiscard]] std::string driver() const {
        return os::link_name(system_, roots_.device(bdf_) + "/driver").value_or("");
    }
    /// An empty name clears it: the kernel takes a lone newline for that.
    Result<void> set_override(std::string_view name) const {
        return write(roots_.device(bdf_) + "/driver_override", name.empty() ? "\n" : name);
    }
    Result<void> unbind() const { return write(roots_.device(bdf_) + "/driver/unbind", bdf_.to_string()); }
    /// Its own answer is not telling (drivers/base/bus.c): whether a driver took the function is seen afterwards.
    Result<void> probe() const {
        auto done = write(roots_.sysfs + "/bus/pci/drivers_probe", bdf_.to_string());
        if (!done && (done.error().is(EACCES) || done.error().is(EPERM) || done.error().is(ENOENT))) {
            return done;
        }
        return {};
    }

    /// Moves the function to `driver`; the caller has seen that it may.
    Result<void> move_to(std::string_view driver) const {
        if (auto set = set_override(driver); !set) {
            return set;
        }
        if (!this->driver().empty()) {
            if (auto gone = unbind(); !gone) {
                return gone;
            }
        }
        if (auto probed = probe(); !probed) {
            return probed;
        }
        if (const std::string now = this->driver(); now != driver) {
            return fail(EIO, "bind", bdf_.to_string(), refusal_hint(driver, now));
        }
        return {};
    }

  private:
    Result<void> write(const std::string& path, std::string_view text) const {
        auto done = os::write_text(system_, path, text);
        if (!done && (done.error().is(EACCES) || done.error().is(EPERM))) {
            done.error().hint = "Changing a driver needs root.";
        }
        return done;
    }

    [[nodiscard]] std::string refusal_hint(std::string_view driver, const std::string& now) const {
        std::string text = fmt::format("{} did not take the function{}; `dmesg` says why. ", driver,
                                       now.empty() ? "" : ", " + now + " did");
        if (driver.find("vfio") != std::string_view::npos &&
            !os::exists(system_, roots_.device(bdf_) + "/iommu_group")) {
            text += "There is no IOMMU behind it: turn the IOMMU on (intel_iommu=on, amd_iommu=on), or load vfio with "
                    "enable_unsafe_noiommu_mode=1.";
        }
        return text;
    }

    os::System& system_;
    const Bdf& bdf_;
    const Roots& roots_;
};

Result<void> check_disks(os::System& system, const Bdf& bdf, const BindOptions& options, const Roots& roots) {
    if (options.force) {
        return {};
    }
    const auto users = disk_users(system, bdf, roots);
    if (users.empty()) {
        return {};
    }
    std::string text;
    for (const auto& user : users) {
        text += (text.empty() ? "" : "; ") + user;
    }
    return fail(
        EBUSY, "unbind", bdf.to_string(),
        fmt::format("Its disks are in use: {}. Unmount and release them first; forcing this loses data.", text));
}

} // namespace

Result<DriverBinding> DriverBinding::bind(os::System& system, const Bdf& bdf, std::string_view driver,
                                          const BindOptions& options, const Roots& roots) {
    auto info = find_function(system, bdf, roots);
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    DriverBinding binding{system, bdf, roots};
    binding.previous_driver_ = info->driver;
    binding.previous_override_ = info->driver_override;
    if (info->driver == driver) {
        return binding;
    }
    if (driver.empty() || driver.find('/') != std::string_view::npos ||
        !os::exists(system, fmt::format("{}/bus/pci/drivers/{}", roots.sysfs, driver))) {
        return fail(ENOENT, "bind", bdf.to_string(),
                    fmt::format("The driver {} is not loaded: `modprobe {}` first.", driver, driver));
    }
    if (auto free = check_disks(system, bdf, options, roots); !free) {
        return tl::unexpected{std::move(free.error())};
    }

    const Steps steps{system, bdf, roots};
    binding.changed_ = true;
    if (auto moved = steps.move_to(driver); !moved) {
        const auto back = binding.restore();
        moved.error().hint +=
            back ? fmt::format(" It is back with {}.", info->driver.empty() ? "no driver" : info->driver)
                 : fmt::format(" Giving it back failed too: {}", back.error().message());
        return tl::unexpected{std::move(moved.error())};
    }
    return binding;
}

Result<void> DriverBinding::restore() {
    if (!changed_) {
        return {};
    }
    const Steps steps{*system_, bdf_, roots_};
    // Somebody may have bound and mounted it since.
    if (auto free = check_disks(*system_, bdf_, {}, roots_); !free && steps.driver() != previous_driver_) {
        return free;
    }
    if (previous_driver_.empty()) {
        if (!steps.driver().empty()) {
            if (auto gone = steps.unbind(); !gone) {
                return gone;
            }
        }
    } else if (steps.driver() != previous_driver_) {
        // By override: of several drivers that match, the kernel might choose another.
        if (auto moved = steps.move_to(previous_driver_); !moved) {
            return moved;
        }
    }
    if (auto set = steps.set_override(previous_override_); !set) {
        return set;
    }
    changed_ = false;
    return {};
}

Result<std::string> give_back_to_kernel(os::System& system, const Bdf& bdf, const BindOptions& options,
                                        const Roots& roots) {
    auto info = find_function(system, bdf, roots);
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    if (auto free = check_disks(system, bdf, options, roots); !free) {
        return tl::unexpected{std::move(free.error())};
    }
    const Steps steps{system, bdf, roots};
    auto done = steps.set_override("");
    if (done && !info->driver.empty()) {
        done = steps.unbind();
    }
    if (done) {
        done = steps.probe();
    }
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    return steps.driver();
}

} // namespace upcie::pci
