// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace upcie::rm::target {

/// Reads and writes the caller's memory to answer an ioctl as a driver would (target_calls.hpp). The errno to answer,
/// or 0.
int answer_ioctl(pid_t tid, std::uint32_t request, std::uint64_t argument);

/// Whether it is a control on slow_object.
bool is_slow(pid_t tid, std::uint32_t request, std::uint64_t argument);

/// From here on a thread of this process answers the ioctls of types 'F' and those without one, of every thread that is
/// made later and of the caller, by seccomp's user notification. False with errno where the kernel does not allow it.
bool start_supervisor();

} // namespace upcie::rm::target
