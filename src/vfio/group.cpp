// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/group.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>

#include <uapi/vfio.hpp>

namespace upcie::vfio {

namespace {

bool harmless(const pci::FunctionInfo& function) {
    constexpr std::array managed{std::string_view{""}, std::string_view{"pci-stub"}, std::string_view{"pcieport"}};
    const bool bridge = (function.class_code >> 16) == 0x06;
    // vfio-pci and its variants: mlx5_vfio_pci, nvgrace-gpu-vfio-pci, ...
    return bridge || function.driver.find("vfio") != std::string::npos ||
           std::find(managed.begin(), managed.end(), function.driver) != managed.end();
}

const char* open_hint(int code) {
    switch (code) {
    case ENOENT:
        return "There is no such node: bind every function of the group to vfio-pci and load vfio_iommu_type1; a "
               "kernel "
               "without CONFIG_VFIO_GROUP has only the cdev path.";
    case EACCES:
        return "You may not open this node: change its owner or mode (docs/permissions.md has a udev rule), or run as "
               "root.";
    case EPERM:
        return "A no-IOMMU group gives access to all of memory: opening it needs CAP_SYS_RAWIO.";
    case EBUSY:
        return "The group is open elsewhere, or one of its devices is bound through its cdev: they exclude each other. "
               "Find the opener with `fuser -v /dev/vfio/* /dev/vfio/devices/*`.";
    default:
        return "";
    }
}

} // namespace

std::vector<GroupObstacle> group_obstacles(os::System& system, const pci::FunctionInfo& function,
                                           const pci::Roots& roots) {
    std::vector<GroupObstacle> obstacles;
    if (!function.iommu_group) {
        return obstacles;
    }
    for (const auto& member : function.iommu_group->members) {
        if (member == function.bdf) {
            continue;
        }
        const auto other = pci::find_function(system, member, roots);
        if (other && !harmless(*other)) {
            obstacles.push_back({member, other->driver});
        }
    }
    return obstacles;
}

std::string describe(const std::vector<GroupObstacle>& obstacles) {
    std::string text;
    for (const auto& obstacle : obstacles) {
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", obstacle.bdf.to_string(), obstacle.driver);
    }
    return text;
}

Result<Group> Group::open(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    const std::string name = function.bdf.to_string();
    if (!function.iommu_group) {
        return fail(ENOENT, "open IOMMU group", name,
                    "The function has no IOMMU group: turn the IOMMU on in the firmware and with intel_iommu=on or "
                    "amd_iommu=on, or use a no-IOMMU path.");
    }
    Group group;
    group.system_ = &system;
    group.number_ = function.iommu_group->number;
    group.node_ = fmt::format("{}/vfio/{}{}", roots.dev, function.iommu_group->noiommu ? "noiommu-" : "",
                              function.iommu_group->number);
    const int number = system.open(group.node_.c_str(), O_RDWR | O_CLOEXEC);
    if (number < 0) {
        const int code = errno;
        return fail(code, "open", group.node_, open_hint(code));
    }
    group.fd_ = os::Fd{system, number};

    uapi::VfioGroupStatus status{};
    status.argsz = sizeof(status);
    if (system.ioctl(number, uapi::vfio_group_get_status, &status) < 0) {
        const int code = errno;
        return fail(code, "VFIO_GROUP_GET_STATUS", group.node_, "Is this really a vfio group?");
    }
    if ((status.flags & uapi::vfio_group_flags_viable) == 0) {
        const std::string others = describe(group_obstacles(system, function, roots));
        return fail(EPERM, "use IOMMU group", group.node_,
                    others.empty()
                        ? "The group is not viable: something else in it is in use by the kernel, or was when it was "
                          "looked at."
                        : fmt::format("The group is not viable: {} of the same IOMMU group belong to a kernel driver. "
                                      "Unbind them or bind them to vfio-pci as well.",
                                      others));
    }
    return group;
}

Result<os::Fd> Group::open_device(const pci::Bdf& bdf) {
    std::string name = bdf.to_string();
    const int number = system_->ioctl(fd_.get(), uapi::vfio_group_get_device_fd, name.data());
    if (number < 0) {
        const int code = errno;
        const char* hint = "";
        if (code == EINVAL) {
            hint = "The group is in no container, or the container's IOMMU is not set (VFIO_SET_IOMMU comes first).";
        } else if (code == ENODEV) {
            hint = "The function is not in this group or not bound to vfio-pci.";
        } else if (code == EBUSY) {
            hint = "The device is bound through its cdev: cdev and group exclude each other.";
        }
        return fail(code, "VFIO_GROUP_GET_DEVICE_FD", name, hint);
    }
    return os::Fd{*system_, number};
}

} // namespace upcie::vfio
