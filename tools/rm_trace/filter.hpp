// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <linux/filter.h>

namespace upcie::rm {

/// What a stop of the filter says (SECCOMP_RET_DATA).
enum class FilterReason : std::uint16_t {
    native = 1,  ///< a call of system_calls()
    foreign = 2, ///< an ioctl in another calling convention of the machine (32-bit): not decoded
};

/// A seccomp program that stops (SECCOMP_RET_TRACE) at the calls of system_calls() and lets all others through. A call
/// that never stops costs what a lookup in a bitmap does (Linux 5.11). Threads: any.
[[nodiscard]] std::vector<sock_filter> make_filter(bool with_memory);

} // namespace upcie::rm
