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
#include <upcie/units.hpp>

namespace upcie::os {

/// A set of capabilities (capabilities(7)), bit n for capability n.
class CapabilitySet {
  public:
    constexpr CapabilitySet() noexcept = default;
    constexpr explicit CapabilitySet(std::uint64_t bits) noexcept : bits_{bits} {}
    [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
    [[nodiscard]] constexpr bool has(unsigned number) const noexcept {
        return number < 64 && ((bits_ >> number) & 1U) != 0;
    }
    /// "CAP_SYS_ADMIN"; false for a name that is not known.
    [[nodiscard]] bool has(std::string_view name) const noexcept;
    /// Names in the order of their numbers; one newer than this library is "CAP_<number>".
    [[nodiscard]] std::vector<std::string> names() const;
    friend constexpr bool operator==(CapabilitySet, CapabilitySet) noexcept = default;

  private:
    std::uint64_t bits_ = 0;
};

/// Memory that counts against limits, from /proc/self/status. Which of the two a pinning shows up in depends on the
/// way: mlock and vfio type1 raise VmLck, iommufd raises VmPin.
struct MemoryAccounting {
    ByteCount locked; ///< VmLck
    ByteCount pinned; ///< VmPin
};

/// Who this process is and what it may do.
struct Credentials {
    pid_t pid = 0;
    uid_t real_uid = 0, effective_uid = 0, saved_uid = 0;
    gid_t real_gid = 0, effective_gid = 0, saved_gid = 0;
    std::vector<gid_t> groups; ///< supplementary
    CapabilitySet inheritable, permitted, effective, bounding, ambient;
    bool no_new_privileges = false;
    int dumpable = 0; ///< PR_GET_DUMPABLE: 0 no, 1 yes, 2 by root alone; ptrace and pidfd_getfd ask it
    MemoryAccounting memory;
};

/// Reads /proc/self/status and asks prctl(2). Errors: what they say; EPROTO when the file lacks a line. Threads: any.
[[nodiscard]] Result<Credentials> read_credentials(System& system);
/// VmLck and VmPin now. Errors: as read_credentials. Threads: any.
[[nodiscard]] Result<MemoryAccounting> read_memory_accounting(System& system);

/// RLIMIT_MEMLOCK of this process; nothing means unlimited.
struct MemlockLimit {
    std::optional<ByteCount> soft;
    std::optional<ByteCount> hard;
    friend bool operator==(const MemlockLimit&, const MemlockLimit&) noexcept = default;
};

[[nodiscard]] Result<MemlockLimit> memlock_limit(System& system);
/// Errors: EPERM (raising the hard limit needs CAP_SYS_RESOURCE), EINVAL (soft above hard). Threads: any; for the
/// process.
Result<void> set_memlock_limit(System& system, const MemlockLimit& limit);

} // namespace upcie::os
