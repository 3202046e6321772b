// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include "machine_report.hpp"
#include "report_probes.hpp"

namespace upcie::cli {

/// What to collect, and under which name.
struct Collecting {
    ProbeChoice probes;
    std::string machine; ///< empty: what the hardware says
};

/// Runs the planned probes one after the other and makes a report of what they say. `heard` is told each entry as it
/// comes. After a signal (Interruption) the rest is skipped, and says so.
[[nodiscard]] MachineReport collect_report(Context& context, const Collecting& collecting,
                                           const std::vector<PlannedProbe>& planned,
                                           const std::function<void(const Json& entry)>& heard);

/// Kernel, IOMMU, processor, distribution; with `identifiers` the host's name.
[[nodiscard]] Json describe_host(Context& context, bool identifiers);

} // namespace upcie::cli
