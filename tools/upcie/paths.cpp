// SPDX-License-Identifier: BSD-3-Clause
#include "paths.hpp"

#include <algorithm>
#include <optional>

#include <upcie/os/sysfs.hpp>

#include "advice.hpp"

namespace upcie::cli {

namespace {

struct Question {
    const HostFacts& host;
    const pci::FunctionInfo& function;
    const std::vector<pci::FunctionInfo>& all;
    Context& context;

    [[nodiscard]] std::string address() const { return function.bdf.to_string(); }
    [[nodiscard]] bool on_vfio() const { return !function.vfio_name.empty() || function.driver == "vfio-pci"; }
    [[nodiscard]] bool translated() const { return function.iommu_group && !function.iommu_group->noiommu; }
};

/// What stands in the way, or nothing.
struct Obstacle {
    std::string reason;
    std::string fix;
};
using MaybeObstacle = std::optional<Obstacle>;

std::string driver_name(const pci::FunctionInfo& function) {
    return function.driver.empty() ? std::string{"no driver"} : function.driver;
}

/// Bridges do not count (drivers/vfio/group.c leaves them and unbound functions alone), vfio drivers do no harm.
const pci::FunctionInfo* foreign_sibling(const Question& q) {
    if (!q.function.iommu_group) {
        return nullptr;
    }
    for (const auto& member : q.function.iommu_group->members) {
        const auto found = std::find_if(q.all.begin(), q.all.end(), [&](const auto& f) { return f.bdf == member; });
        constexpr std::uint32_t bridge_class = 0x06;
        if (member == q.function.bdf || found == q.all.end() || found->class_code >> 16 == bridge_class) {
            continue;
        }
        if (!found->driver.empty() && found->vfio_name.empty() && found->driver != "vfio-pci") {
            return &*found;
        }
    }
    return nullptr;
}

MaybeObstacle no_translation(const Question& q) {
    if (q.translated()) {
        return std::nullopt;
    }
    return Obstacle{"no IOMMU translates for this function", advice::turn_iommu_on(q.host)};
}

MaybeObstacle sibling_in_the_way(const Question& q) {
    const auto* sibling = foreign_sibling(q);
    if (sibling == nullptr) {
        return std::nullopt;
    }
    return Obstacle{fmt::format("group {} is not viable: {} in it is still bound to {}", q.function.iommu_group->number,
                                sibling->bdf.to_string(), sibling->driver),
                    fmt::format("upcie bind {}", sibling->bdf.to_string())};
}

MaybeObstacle no_vfio_pci(const Question& q) {
    if (q.host.module("vfio_pci") != ModuleState::absent) {
        return std::nullopt;
    }
    return Obstacle{"this kernel has no vfio-pci driver", advice::get_module("vfio-pci")};
}

MaybeObstacle no_iommufd(const Question& q) {
    if (q.host.dev_iommu.exists) {
        return std::nullopt;
    }
    return Obstacle{"/dev/iommu does not exist", advice::get_dev_iommu(q.host)};
}

MaybeObstacle not_permitted(const std::string& node, const NodeFacts& facts) {
    if (facts.usable) {
        return std::nullopt;
    }
    return Obstacle{
        fmt::format("{} may not be opened by this user (mode {:04o}, owner {})", node, facts.mode, facts.uid),
        advice::give_node(node)};
}

PathAssessment judge(PathKind path, const MaybeObstacle& obstacle, std::string ready_reason) {
    if (obstacle) {
        return {path, PathState::blocked, obstacle->reason, obstacle->fix};
    }
    return {path, PathState::ready, std::move(ready_reason), {}};
}

template <class... Checks>
MaybeObstacle first_of(const Question& q, Checks... checks) {
    MaybeObstacle obstacle;
    static_cast<void>(((obstacle = checks(q)).has_value() || ...));
    return obstacle;
}

PathAssessment needs_binding(PathKind path, const Question& q, std::string_view driver) {
    const std::string option = driver == "vfio-pci" ? std::string{} : fmt::format(" --driver {}", driver);
    return {path, PathState::after_bind, fmt::format("bound to {}, not to {}", driver_name(q.function), driver),
            fmt::format("upcie bind {}{}", q.address(), option)};
}

/// The node is there once vfio has the device: cdev of an IOMMU or of the no-IOMMU mode alike.
MaybeObstacle cdev_obstacle(const Question& q) {
    if (q.function.vfio_cdev.empty()) {
        return Obstacle{fmt::format("vfio has the device as {} but made no /dev/vfio/devices/{}", q.function.vfio_name,
                                    q.function.vfio_name),
                        "This kernel has CONFIG_VFIO_DEVICE_CDEV off (it exists from Linux 6.6 on); use --path group."};
    }
    if (auto obstacle = not_permitted(q.function.vfio_cdev, look_at_node(q.context, q.function.vfio_cdev))) {
        return obstacle;
    }
    return not_permitted("/dev/iommu", q.host.dev_iommu);
}

PathAssessment assess_cdev(const Question& q) {
    if (auto obstacle = first_of(q, no_translation, no_vfio_pci, no_iommufd, sibling_in_the_way)) {
        return judge(PathKind::cdev, obstacle, {});
    }
    if (!q.on_vfio()) {
        return needs_binding(PathKind::cdev, q, "vfio-pci");
    }
    return judge(PathKind::cdev, cdev_obstacle(q),
                 fmt::format("{} and /dev/iommu may be opened", q.function.vfio_cdev));
}

MaybeObstacle no_type1(const Question& q) {
    if (q.host.dev_vfio.exists || q.host.module("vfio_iommu_type1") != ModuleState::absent) {
        return std::nullopt;
    }
    return Obstacle{"there is no /dev/vfio/vfio and no vfio_iommu_type1 module",
                    advice::get_module("vfio_iommu_type1")};
}

MaybeObstacle group_node_obstacle(const Question& q) {
    const std::string node = fmt::format("/dev/vfio/{}", q.function.iommu_group->number);
    const auto facts =
        look_at_node(q.context, fmt::format("{}/vfio/{}", q.context.roots.kernel.dev, q.function.iommu_group->number));
    if (!facts.exists) {
        return Obstacle{node + " does not exist though vfio has the device",
                        "This kernel has CONFIG_VFIO_GROUP off; use --path cdev."};
    }
    if (auto obstacle = not_permitted(node, facts)) {
        return obstacle;
    }
    return q.host.dev_vfio.exists
               ? not_permitted("/dev/vfio/vfio", q.host.dev_vfio)
               : MaybeObstacle{Obstacle{"/dev/vfio/vfio does not exist", "modprobe vfio_iommu_type1"}};
}

PathAssessment assess_group(const Question& q) {
    if (auto obstacle = first_of(q, no_translation, no_vfio_pci, no_type1, sibling_in_the_way)) {
        return judge(PathKind::group, obstacle, {});
    }
    if (!q.on_vfio()) {
        return needs_binding(PathKind::group, q, "vfio-pci");
    }
    return judge(PathKind::group, group_node_obstacle(q),
                 fmt::format("/dev/vfio/{} and /dev/vfio/vfio may be opened", q.function.iommu_group->number));
}

MaybeObstacle is_translated(const Question& q) {
    if (!q.translated()) {
        return std::nullopt;
    }
    return Obstacle{"an IOMMU translates for this function, so the safer paths are for it",
                    "Use --path cdev or --path group."};
}

MaybeObstacle no_unsafe_mode(const Question& q) {
    if (q.host.unsafe_noiommu.value_or(false)) {
        return std::nullopt;
    }
    return Obstacle{"vfio's no-IOMMU mode is off", advice::turn_noiommu_on(q.host)};
}

MaybeObstacle no_get_pa(const Question& q) {
    if (q.host.at_least(7, 3)) {
        return std::nullopt;
    }
    return Obstacle{fmt::format("Linux {} has no IOMMU_IOAS_NOIOMMU_GET_PA", q.host.release),
                    "It came with Linux 7.3. On an older kernel use --path uio."};
}

MaybeObstacle no_rawio(const Question& q) {
    if (q.host.has_capability(cap_sys_rawio)) {
        return std::nullopt;
    }
    return Obstacle{"no-IOMMU mode demands CAP_SYS_RAWIO, which this process lacks", "Run it as root."};
}

PathAssessment assess_noiommu(const Question& q) {
    if (auto obstacle = first_of(q, is_translated, no_vfio_pci, no_get_pa, no_iommufd, no_unsafe_mode, no_rawio)) {
        return judge(PathKind::noiommu, obstacle, {});
    }
    if (!q.on_vfio()) {
        return needs_binding(PathKind::noiommu, q, "vfio-pci");
    }
    return judge(PathKind::noiommu, cdev_obstacle(q),
                 fmt::format("{} may be opened; nothing translates and nothing "
                             "protects",
                             q.function.vfio_cdev));
}

MaybeObstacle not_identity(const Question& q) {
    const auto& group = q.function.iommu_group;
    if (!q.translated() || group->type == "identity") {
        return std::nullopt;
    }
    return Obstacle{fmt::format("IOMMU group {} translates (type {}), so physical addresses would fault", group->number,
                                group->type.empty() ? "unknown" : group->type),
                    fmt::format("Use --path cdev or group; or, with the device unbound: echo identity > "
                                "/sys/kernel/iommu_groups/{}/type",
                                group->number)};
}

MaybeObstacle no_pagemap(const Question& q) {
    if (q.host.has_capability(cap_sys_admin)) {
        return std::nullopt;
    }
    return Obstacle{"/proc/self/pagemap shows no addresses without CAP_SYS_ADMIN", "Run it as root."};
}

MaybeObstacle no_hugepages(const Question& q) {
    constexpr std::uint64_t two_mib = 2048;
    if (q.host.free_hugepages(two_mib) > 0) {
        return std::nullopt;
    }
    return Obstacle{"no free 2 MiB hugepages", advice::reserve_hugepages()};
}

MaybeObstacle no_uio(const Question& q) {
    if (q.host.module("uio_pci_generic") != ModuleState::absent) {
        return std::nullopt;
    }
    return Obstacle{"this kernel has no uio_pci_generic driver", advice::get_module("uio_pci_generic")};
}

PathAssessment assess_uio(const Question& q) {
    if (auto obstacle = first_of(q, not_identity, no_uio, no_pagemap, no_hugepages)) {
        return judge(PathKind::uio, obstacle, {});
    }
    if (q.function.driver != "uio_pci_generic") {
        return needs_binding(PathKind::uio, q, "uio_pci_generic");
    }
    return judge(PathKind::uio, std::nullopt, "bound to uio_pci_generic; nothing translates and nothing protects");
}

} // namespace

std::string_view to_string(PathKind path) noexcept {
    switch (path) {
    case PathKind::cdev:
        return "cdev";
    case PathKind::group:
        return "group";
    case PathKind::noiommu:
        return "noiommu";
    case PathKind::uio:
        return "uio";
    }
    return "unknown";
}

std::string_view title_of(PathKind path) noexcept {
    switch (path) {
    case PathKind::cdev:
        return "vfio cdev + iommufd";
    case PathKind::group:
        return "vfio group + type1";
    case PathKind::noiommu:
        return "no-IOMMU vfio cdev";
    case PathKind::uio:
        return "uio + hugepages";
    }
    return "unknown";
}

std::string_view to_string(PathState state) noexcept {
    switch (state) {
    case PathState::ready:
        return "ready";
    case PathState::after_bind:
        return "after-bind";
    case PathState::blocked:
        return "no";
    }
    return "unknown";
}

std::vector<PathAssessment> assess_paths(const HostFacts& host, const pci::FunctionInfo& function,
                                         const std::vector<pci::FunctionInfo>& all, Context& context) {
    const Question question{host, function, all, context};
    return {assess_cdev(question), assess_group(question), assess_noiommu(question), assess_uio(question)};
}

} // namespace upcie::cli
