// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "channel.hpp"
#include "command.hpp"
#include "identity.hpp"
#include "report.hpp"

namespace upcie::probes {

/// What both sides of a two-process probe can be told.
struct SideOptions {
    std::string socket;
    std::vector<std::uint32_t> allowed_uids;
    std::optional<std::uint64_t> memlock; ///< this side's RLIMIT_MEMLOCK, set before anything else
};
/// --socket, --memlock, and for the side that listens --allow-uid.
void add_side_options(CLI::App& app, SideOptions& options, const std::string& default_socket, bool listens);

/// Applies --memlock. Error: of limit_memlock().
Result<void> apply(os::System& system, const SideOptions& options);

/// Tells the other side who this process is, and learns the same; both go into the report as processes. Answers the
/// other side's identity: its process, effective user and capabilities, and memory limit. Error: of the channel, EPROTO
/// for an identity that is none.
[[nodiscard]] Result<Identity> introduce(Report& report, os::System& system, Channel& other, const std::string& self,
                                         const std::string& peer);

/// Takes the findings that `message` carries into `report`. Error: EPROTO.
Result<void> take_findings(Report& report, const Message& message);

/// The environment of a report about a device that this process was given: nothing more than the kernel's name where
/// sysfs does not show the device.
[[nodiscard]] Environment given_environment(os::System& system, const std::string& bdf);
void describe_given_device(Report& report, os::System& system, const std::string& bdf);

/// Tells the other side, which waits, that this one failed and why.
void tell_failure(Channel& other, const Error& error);

} // namespace upcie::probes
