// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include <upcie/open.hpp>
#include <upcie/os/sysfs.hpp>
#include <upcie/vfio/group.hpp>

namespace upcie {

namespace {

/// What stands in the way, and what to do about it.
struct Reason {
    std::string reason;
    std::string fix;
};
using Obstacle = std::optional<Reason>;

/// One function looked at; each member answers for one path.
class Examination {
  public:
    Examination(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots)
        : system_{system}, function_{function}, roots_{roots} {}

    [[nodiscard]] PathVerdict cdev() const {
        return verdict(Path::cdev, [this]() -> Obstacle {
            if (noiommu_name()) {
                return Reason{fmt::format("{} is a no-IOMMU device", function_.vfio_name), "Use --path noiommu."};
            }
            if (auto obstacle = others_in_group()) {
                return obstacle;
            }
            return cdev_nodes();
        });
    }

    [[nodiscard]] PathVerdict noiommu_cdev() const {
        return verdict(Path::noiommu_cdev, [this]() -> Obstacle {
            if (!function_.vfio_name.empty() && !noiommu_name()) {
                if (translated()) {
                    return Reason{"an IOMMU translates for it", "Use --path cdev or --path group."};
                }
                return Reason{"vfio gave it no no-IOMMU node, which takes Linux 7.3 and CONFIG_IOMMUFD_NOIOMMU",
                              "Use a newer kernel, or --path uio."};
            }
            return cdev_nodes();
        });
    }

    [[nodiscard]] PathVerdict group() const {
        return verdict(Path::group, [this]() -> Obstacle {
            if (!translated()) {
                return Reason{"no IOMMU translates for it, and the group path cannot map memory then",
                              "Turn the IOMMU on (docs/permissions.md), or use --path noiommu or --path uio."};
            }
            if (auto obstacle = others_in_group()) {
                return obstacle;
            }
            return nodes(
                {fmt::format("{}/vfio/{}", roots_.dev, function_.iommu_group->number), roots_.dev + "/vfio/vfio"});
        });
    }

    [[nodiscard]] PathVerdict uio() const {
        if (function_.driver != "uio_pci_generic") {
            return {Path::uio, false, fmt::format("it is bound to {}, not to uio_pci_generic", driver()),
                    fmt::format("upcie bind {} --driver uio_pci_generic", function_.bdf.to_string())};
        }
        if (translated() && function_.iommu_group->type != "identity") {
            const auto& group = *function_.iommu_group;
            return {Path::uio, false,
                    fmt::format("the IOMMU translates for its group {} ({}): physical addresses would fault",
                                group.number, group.type),
                    fmt::format("Use --path cdev or --path group; or, with the device unbound: echo identity > "
                                "{}/kernel/iommu_groups/{}/type",
                                roots_.sysfs, group.number)};
        }
        return {Path::uio, true, "it is bound to uio_pci_generic, and nothing translates for it", ""};
    }

  private:
    template <class Look>
    [[nodiscard]] PathVerdict verdict(Path path, Look&& look) const {
        if (function_.driver.find("vfio") == std::string::npos) {
            return {path, false, fmt::format("it is bound to {}, not to vfio-pci", driver()),
                    fmt::format("upcie bind {}", function_.bdf.to_string())};
        }
        opened_.clear();
        if (const Obstacle obstacle = look()) {
            return {path, false, obstacle->reason, obstacle->fix};
        }
        return {path, true, opened_ + " may be opened", ""};
    }

    [[nodiscard]] std::string driver() const { return function_.driver.empty() ? "no driver" : function_.driver; }
    [[nodiscard]] bool noiommu_name() const { return function_.vfio_name.rfind("noiommu-", 0) == 0; }
    [[nodiscard]] bool translated() const { return function_.iommu_group && !function_.iommu_group->noiommu; }

    /// The kernel lets nobody own the DMA of a group in part, through group or cdev (iommu_group_claim_dma_owner and
    /// iommu_device_claim_dma_owner, drivers/iommu/iommu.c).
    [[nodiscard]] Obstacle others_in_group() const {
        const auto others = vfio::group_obstacles(system_, function_, roots_);
        if (others.empty()) {
            return std::nullopt;
        }
        std::string fix;
        for (const auto& other : others) {
            fix += fmt::format("{}upcie bind {}", fix.empty() ? "" : " && ", other.bdf.to_string());
        }
        return Reason{fmt::format("its IOMMU group {} is not viable: a kernel driver has {}",
                                  function_.iommu_group->number, vfio::describe(others)),
                      fix};
    }

    [[nodiscard]] Obstacle cdev_nodes() const {
        if (function_.vfio_cdev.empty()) {
            return Reason{
                fmt::format("there is no node {}/vfio/devices/{}: this kernel has CONFIG_VFIO_DEVICE_CDEV off",
                            roots_.dev, function_.vfio_name.empty() ? "vfio*" : function_.vfio_name),
                "Use --path group, or a kernel with CONFIG_VFIO_DEVICE_CDEV=y (Linux 6.6 and later)."};
        }
        return nodes({function_.vfio_cdev, roots_.dev + "/iommu"});
    }

    [[nodiscard]] Obstacle nodes(std::initializer_list<std::string> paths) const {
        for (const auto& path : paths) {
            if (!os::exists(system_, path)) {
                return missing(path);
            }
            if (system_.access(path.c_str(), R_OK | W_OK) != 0) {
                return Reason{
                    fmt::format("this user may not open {} (docs/permissions.md)", path),
                    fmt::format("sudo chown $USER {} (until the next boot; docs/permissions.md has a udev rule "
                                "that stays), or run it as root",
                                path)};
            }
            opened_ += (opened_.empty() ? "" : " and ") + path;
        }
        return std::nullopt;
    }

    [[nodiscard]] Reason missing(const std::string& path) const {
        if (path == roots_.dev + "/iommu") {
            return {path +
                        " does not exist: the kernel has CONFIG_IOMMUFD off (as Debian's) or the module iommufd is not "
                        "loaded",
                    "modprobe iommufd; without that module use --path group"};
        }
        if (path == roots_.dev + "/vfio/vfio") {
            return {path + " does not exist", "modprobe vfio_iommu_type1"};
        }
        return {path + " does not exist", "This kernel has CONFIG_VFIO_GROUP off; use --path cdev."};
    }

    os::System& system_;
    const pci::FunctionInfo& function_;
    const pci::Roots& roots_;
    mutable std::string opened_; ///< the nodes that a look found, for the reason
};

/// The path that an address space belongs to; none for one that no real function can use.
std::optional<Path> path_of(iommu::AddressSpaceKind kind) noexcept {
    switch (kind) {
    case iommu::AddressSpaceKind::iommufd:
        return Path::cdev;
    case iommu::AddressSpaceKind::type1:
        return Path::group;
    case iommu::AddressSpaceKind::noiommu_ioas:
        return Path::noiommu_cdev;
    case iommu::AddressSpaceKind::hugepage_pagemap:
        return Path::uio;
    case iommu::AddressSpaceKind::simulated:
        break;
    }
    return std::nullopt;
}

void add_clause(std::string& text, Path path, const std::string& reason) {
    text += fmt::format("; not {}: {}", to_string(path), reason);
}

} // namespace

std::string_view to_string(Path path) noexcept {
    switch (path) {
    case Path::automatic:
        return "automatic";
    case Path::cdev:
        return "cdev";
    case Path::group:
        return "group";
    case Path::noiommu_cdev:
        return "noiommu";
    case Path::uio:
        return "uio";
    }
    return "unknown";
}

std::vector<PathVerdict> examine_paths(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    const Examination look{system, function, roots};
    return {look.cdev(), look.group(), look.noiommu_cdev(), look.uio()};
}

Result<PathChoice> choose_path(os::System& system, const pci::FunctionInfo& function, const OpenOptions& options) {
    const std::string name = function.bdf.to_string();
    Path wanted = options.path;
    std::string why = "it was asked for";
    if (options.address_space) {
        const auto fitting = path_of(options.address_space->kind());
        if (!fitting || (wanted != Path::automatic && wanted != *fitting)) {
            return fail(EINVAL, "choose a path", name,
                        fmt::format("The address space to share ({}) does not go with the path {}.",
                                    options.address_space->describe(), to_string(wanted)));
        }
        if (wanted == Path::automatic) {
            why = fmt::format("the address space to share is {}", options.address_space->describe());
        }
        wanted = *fitting;
    }
    if (wanted != Path::automatic) {
        return PathChoice{wanted, why}; // what stands in its way, the open says itself
    }

    PathChoice choice;
    std::string against;
    for (const auto& verdict : examine_paths(system, function, options.roots)) {
        if (!verdict.usable) {
            add_clause(against, verdict.path, verdict.reason);
        } else if (choice.path == Path::automatic) {
            choice.path = verdict.path;
            choice.reason = verdict.reason;
        } else {
            add_clause(against, verdict.path, fmt::format("{} is preferred", to_string(choice.path)));
        }
    }
    if (choice.path != Path::automatic) {
        choice.reason += against;
        return choice;
    }
    std::string hint = "No path is open" + against + ".";
    if (function.driver.find("vfio") == std::string::npos && function.driver != "uio_pci_generic") {
        hint += fmt::format(" `upcie bind {}` gives it to vfio-pci.", name);
    }
    return fail(ENODEV, "choose a path", name, std::move(hint));
}

} // namespace upcie
