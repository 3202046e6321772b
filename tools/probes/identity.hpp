// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "report.hpp"

namespace upcie::probes {

/// Who a process is, as the kernel's permission checks and memory accounting see it.
struct Identity {
    pid_t pid = 0;
    std::uint32_t uid = 0; ///< real
    std::uint32_t effective_uid = 0;
    std::uint32_t gid = 0;
    std::uint32_t effective_gid = 0;
    std::vector<std::uint32_t> groups; ///< supplementary
    std::uint64_t effective_capabilities = 0;
    std::uint64_t permitted_capabilities = 0;
    std::uint64_t bounding_capabilities = 0;
    int dumpable = 0;                         ///< PR_GET_DUMPABLE: 0 no, 1 yes, 2 by root only
    std::optional<std::uint64_t> memlock;     ///< RLIMIT_MEMLOCK, soft, in bytes; none: unlimited
    std::optional<std::uint64_t> memlock_max; ///< the hard limit
    std::uint64_t locked = 0;                 ///< VmLck in bytes: what this process counts against its own limit
    std::uint64_t pinned = 0;                 ///< VmPin in bytes: what drivers pinned on this process's account

    /// Capability by its number in linux/capability.h.
    [[nodiscard]] bool capable(unsigned number) const noexcept { return (effective_capabilities >> number & 1) != 0; }
    [[nodiscard]] Value json() const;
};

/// This process. Error: what reading /proc/self/status says; EPROTO when it lacks a field.
[[nodiscard]] Result<Identity> who_am_i(os::System& system);
/// The fields that `status` (the text of /proc/PID/status) has. Error: EPROTO naming the first that is missing.
[[nodiscard]] Result<Identity> parse_status(std::string_view status);

/// Sets the soft RLIMIT_MEMLOCK, raising the hard one only where it is lower. Error: EPERM without CAP_SYS_RESOURCE.
Result<void> limit_memlock(os::System& system, std::uint64_t bytes);

} // namespace upcie::probes
