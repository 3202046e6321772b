// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <upcie/open.hpp>
#include <upcie/pci/enumeration.hpp>

#include "host_facts.hpp"

namespace upcie::cli {

/// "vfio cdev + iommufd"
[[nodiscard]] std::string_view title_of(Path path) noexcept;

/// How far a way is open.
enum class PathState : std::uint8_t {
    ready,      ///< opening would work now
    after_bind, ///< only the driver is in the way: `upcie bind` makes it ready
    blocked,    ///< something else is missing
};
[[nodiscard]] std::string_view to_string(PathState state) noexcept;

struct PathAssessment {
    Path path = Path::cdev;
    PathState state = PathState::blocked;
    std::string reason; ///< why not, or why it is ready: one clause, no full stop
    std::string fix;    ///< what to do; a command that can be pasted where there is one. Empty when ready.
};

/// Judges each way for one function: what the machine lacks, then the driver, then what the library says
/// (examine_paths).
[[nodiscard]] std::vector<PathAssessment> assess_paths(const HostFacts& host, const pci::FunctionInfo& function,
                                                       Context& context);

} // namespace upcie::cli
