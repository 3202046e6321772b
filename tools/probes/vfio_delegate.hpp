// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "channel.hpp"
#include "report.hpp"
#include "requests.hpp"

// The question of upcie_probe_vfio_delegate: what survives the exit of the process that bound the device, for another
// that it was delegated to, and is a restart of the first a handover or fatal?
namespace upcie::probes {

/// The primary's part up to its end: opens, starts the controller, hands everything over and, when the secondary has
/// had its look, calls `end`, which ends the process: only so is nothing given back before. Returns with an error
/// alone: the question could not be asked.
Result<void> hand_over_and_end(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                               Channel& secondary, const std::function<void()>& end);

/// The secondary's part and the judgement: looks before and after the primary's end. Where `handover_socket` is not
/// empty, it then waits there for the restarted primary (of a user in `admitted`) and gives everything back.
Result<void> outlive_primary(Report& report, const Requests& requests, Channel& primary,
                             const std::string& handover_socket, const std::vector<std::uint32_t>& admitted);

/// The restarted primary's part: tries to open anew, then takes what the secondary gives back.
Result<void> be_restarted_primary(Report& report, const Requests& requests, Channel& secondary);

} // namespace upcie::probes
