// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>

#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "channel.hpp"
#include "report.hpp"
#include "requests.hpp"
#include "session.hpp"

// The question of upcie_probe_vfio_cdev: what does an opener of a vfio cdev get, and what does a second one?
namespace upcie::probes {

/// The first opener's part, and the judgement. `second` leads to a process that runs be_second_opener().
/// Error: the question could not be asked. Takes the device over: it is reset, and told to do DMA.
Result<void> ask_vfio_cdev(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                           Channel& second);

/// What the second process does: tries what it can with the cdev, as told over `first`.
Result<void> be_second_opener(const Requests& requests, const std::string& cdev, Channel& first);

/// Everything about what can be mapped into the IOAS of an attached device, and what the kernel says to the rest.
void look_at_mappings(Report& report, const Requests& requests, const Session& session);
/// Exporting BAR 0 as a dma-buf and mapping that.
void look_at_bar_export(Report& report, const Requests& requests, const Session& session);

} // namespace upcie::probes
