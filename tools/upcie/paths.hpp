// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/pci/enumeration.hpp>

#include "host_facts.hpp"

namespace upcie::cli {

/// The ways to a PCI function, in the order of preference where an IOMMU translates.
enum class PathKind : std::uint8_t { cdev, group, noiommu, uio };
constexpr std::array<PathKind, 4> all_paths{PathKind::cdev, PathKind::group, PathKind::noiommu, PathKind::uio};

/// As --path takes it: "cdev".
[[nodiscard]] std::string_view to_string(PathKind path) noexcept;
/// "vfio cdev + iommufd"
[[nodiscard]] std::string_view title_of(PathKind path) noexcept;

/// How far a way is open.
enum class PathState : std::uint8_t {
    ready,      ///< opening would work now
    after_bind, ///< only the driver is in the way: `upcie bind` makes it ready
    blocked,    ///< something else is missing
};
[[nodiscard]] std::string_view to_string(PathState state) noexcept;

struct PathAssessment {
    PathKind path = PathKind::cdev;
    PathState state = PathState::blocked;
    std::string reason; ///< why not, or why it is ready: one clause, no full stop
    std::string fix;    ///< what to do; a command that can be pasted where there is one. Empty when ready.
};

/// Judges each way for one function. `all` is every function of the machine: the drivers of its group's other members
/// count.
[[nodiscard]] std::vector<PathAssessment> assess_paths(const HostFacts& host, const pci::FunctionInfo& function,
                                                       const std::vector<pci::FunctionInfo>& all, Context& context);

} // namespace upcie::cli
