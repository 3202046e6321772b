// SPDX-License-Identifier: BSD-3-Clause
#include <iommu/hints.hpp>

#include <fmt/format.h>

namespace upcie::iommu {

std::string memlock_hint(os::System& system, ByteCount wanted, const char* accounting) {
    struct rlimit limit {};
    std::string now;
    if (system.getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        now = "unknown";
    } else if (limit.rlim_cur == RLIM_INFINITY) {
        now = "unlimited, so that the machine itself is out of memory";
    } else {
        now = fmt::format("{} bytes", limit.rlim_cur);
    }
    return fmt::format(
        "Pinning {} more bytes went over a limit: RLIMIT_MEMLOCK is {}. {} Raise it with `ulimit -l`, memlock "
        "in /etc/security/limits.conf or LimitMEMLOCK= of the service; a process with CAP_IPC_LOCK is not "
        "limited.",
        wanted.value(), now, accounting);
}

} // namespace upcie::iommu
