// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>

namespace upcie::rm {

/// How a program is to be started.
struct LaunchOptions {
    std::vector<std::string> command;
    bool filter = true; ///< install the seccomp filter; otherwise it is stopped at every call
    bool memory = false;
    std::uint64_t ptrace_options = 0;
};

/// A program that was started and runs up to its exec, already traced.
struct Launched {
    pid_t pid = 0;
    os::Fd failure; ///< readable once it has ended without an exec: why (LaunchFailure)
};

struct LaunchFailure {
    enum class Stage : int { filter, exec };
    Stage stage = Stage::exec;
    int error = 0;
};

/// Starts the program, traced by this thread. Error: what fork, PTRACE_SEIZE or pipe say.
[[nodiscard]] Result<Launched> launch(os::System& system, const LaunchOptions& options);
/// Why it ended before its exec; error 0 when it did not.
[[nodiscard]] LaunchFailure launch_failure(const Launched& launched);

} // namespace upcie::rm
