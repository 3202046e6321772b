// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "output.hpp"

// Whether a document is what its schema says (docs/probes.md), before anything is made of it.
namespace upcie::cli {

/// A report of a machine, with all that the probes said in it; members that are not known are left alone. `file` is
/// named by the errors: EINVAL (a member that has to be there is not, or is of another type: its path is in the hint),
/// ENOTSUP (the report, or that of a probe in it, has another version of its schema).
Result<void> check_machine_report(const Json& document, const std::string& file);
/// The same of what one probe printed.
Result<void> check_probe_report(const Json& document, const std::string& file);

} // namespace upcie::cli
