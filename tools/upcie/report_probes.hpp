// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "machine_report.hpp"

namespace upcie::cli {

/// Which probes are to run, and how.
struct ProbeChoice {
    std::vector<std::string> devices; ///< PCI addresses or cdevs that may be taken over
    std::vector<std::string> only;    ///< probes or questions; empty: all
    bool stubs = false;               ///< those of a GPU made of host memory too
    bool identifiers = false;
    std::chrono::milliseconds limit{std::chrono::minutes{2}}; ///< of each
};

/// A probe that is to run, or that is not, with the reason.
struct PlannedProbe {
    std::string probe;                  ///< "vfio_share": the program's name after upcie_probe_
    std::string variant;                ///< empty, or the option that makes this another run of the same probe
    std::string device;                 ///< which it takes over; empty: none
    std::string program;                ///< its path; empty where there is none
    std::vector<std::string> arguments; ///< without --json
    unsigned patience = 1;              ///< how many times the limit it may take
    std::string_view outcome;           ///< empty: it is to run; else probe_outcome::skipped or absent
    std::string reason;                 ///< why it does not
    std::string remedy;
};

/// Where the probes are looked for: the context's folders, else that of this program, then PATH.
[[nodiscard]] std::vector<std::string> probe_folders(Context& context);

/// All probes that this program knows, and those that lie in the folders and that it does not know, in an order that is
/// always the same. Error: EINVAL for a word of `only` that names none, ENOENT where there is no probe at all.
[[nodiscard]] Result<std::vector<PlannedProbe>> plan_probes(Context& context, const ProbeChoice& choice);

/// Runs it and answers its entry of report.json: never fails, for what went wrong is what people have to see.
[[nodiscard]] Json run_probe(const PlannedProbe& planned, std::chrono::milliseconds usual_limit);

} // namespace upcie::cli
