// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/os/system.hpp>

#include "probed_gpu.hpp"

namespace upcie::probes {

/// --as BDF: the PCI function whose DMA is meant, for the kernel module to import as.
void add_importer_option(CLI::App& app, std::string& function);

/// The kernel module's importer where it is loaded and a function was named, else the flavour's own; where there is
/// neither, nothing, and the report says why the scatter list is not seen.
[[nodiscard]] Describe find_importer(Report& report, os::System& system, const std::string& function, ProbedGpu& gpu);

} // namespace upcie::probes
