// SPDX-License-Identifier: BSD-3-Clause
#include "paths.hpp"

#include <optional>

#include <upcie/open.hpp>
#include <upcie/vfio/group.hpp>

#include "advice.hpp"

namespace upcie::cli {

namespace {

struct Question {
    const HostFacts& host;
    const pci::FunctionInfo& function;
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

MaybeObstacle no_translation(const Question& q) {
    if (q.translated()) {
        return std::nullopt;
    }
    return Obstacle{"no IOMMU translates for this function", advice::turn_iommu_on(q.host)};
}

/// It would stand in the way after the binding too.
MaybeObstacle sibling_in_the_way(const Question& q) {
    const auto others = vfio::group_obstacles(q.context.system, q.function, q.context.roots.kernel);
    if (others.empty()) {
        return std::nullopt;
    }
    return Obstacle{fmt::format("group {} is not viable: a kernel driver has {}", q.function.iommu_group->number,
                                vfio::describe(others)),
                    fmt::format("upcie bind {}", others.front().bdf.to_string())};
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

PathAssessment blocked(Path path, const Obstacle& obstacle) {
    return {path, PathState::blocked, obstacle.reason, obstacle.fix};
}

/// What the library says of a function whose driver is the right one: `list` and an open never contradict each other.
PathAssessment verdict(Path path, const Question& q) {
    for (const auto& verdict : examine_paths(q.context.system, q.function, q.context.roots.kernel)) {
        if (verdict.path == path) {
            return {path, verdict.usable ? PathState::ready : PathState::blocked, verdict.reason, verdict.fix};
        }
    }
    return blocked(path, {"this library does not know the path", {}});
}

template <class... Checks>
MaybeObstacle first_of(const Question& q, Checks... checks) {
    MaybeObstacle obstacle;
    static_cast<void>(((obstacle = checks(q)).has_value() || ...));
    return obstacle;
}

PathAssessment needs_binding(Path path, const Question& q, std::string_view driver) {
    const std::string option = driver == "vfio-pci" ? std::string{} : fmt::format(" --driver {}", driver);
    return {path, PathState::after_bind, fmt::format("bound to {}, not to {}", driver_name(q.function), driver),
            fmt::format("upcie bind {}{}", q.address(), option)};
}

PathAssessment assess_cdev(const Question& q) {
    if (auto obstacle = first_of(q, no_translation, no_vfio_pci, no_iommufd, sibling_in_the_way)) {
        return blocked(Path::cdev, *obstacle);
    }
    if (!q.on_vfio()) {
        return needs_binding(Path::cdev, q, "vfio-pci");
    }
    return verdict(Path::cdev, q);
}

MaybeObstacle no_type1(const Question& q) {
    if (q.host.dev_vfio.exists || q.host.module("vfio_iommu_type1") != ModuleState::absent) {
        return std::nullopt;
    }
    return Obstacle{"there is no /dev/vfio/vfio and no vfio_iommu_type1 module",
                    advice::get_module("vfio_iommu_type1")};
}

PathAssessment assess_group(const Question& q) {
    if (auto obstacle = first_of(q, no_translation, no_vfio_pci, no_type1, sibling_in_the_way)) {
        return blocked(Path::group, *obstacle);
    }
    if (!q.on_vfio()) {
        return needs_binding(Path::group, q, "vfio-pci");
    }
    return verdict(Path::group, q);
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
        return blocked(Path::noiommu_cdev, *obstacle);
    }
    if (!q.on_vfio()) {
        return needs_binding(Path::noiommu_cdev, q, "vfio-pci");
    }
    return verdict(Path::noiommu_cdev, q);
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
        return blocked(Path::uio, *obstacle);
    }
    if (q.function.driver != "uio_pci_generic") {
        return needs_binding(Path::uio, q, "uio_pci_generic");
    }
    return verdict(Path::uio, q);
}

} // namespace

std::string_view title_of(Path path) noexcept {
    switch (path) {
    case Path::cdev:
        return "vfio cdev + iommufd";
    case Path::group:
        return "vfio group + type1";
    case Path::noiommu_cdev:
        return "no-IOMMU vfio cdev";
    case Path::uio:
        return "uio + hugepages";
    case Path::automatic:
        break;
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

std::vector<PathAssessment> assess_paths(const HostFacts& host, const pci::FunctionInfo& function, Context& context) {
    const Question question{host, function, context};
    return {assess_cdev(question), assess_group(question), assess_noiommu(question), assess_uio(question)};
}

} // namespace upcie::cli
