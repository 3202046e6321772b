// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <upcie/result.hpp>

namespace upcie::cli {

/// How a program that was started ended, and what it said until then.
struct ChildEnd {
    std::optional<int> exit_status; ///< nullopt: a signal ended it
    int signal = 0;                 ///< which, where one did
    bool timed_out = false;         ///< the signal was ours: its time was over
    bool interrupted = false;       ///< the signal was ours: somebody wants this program to end (Interruption)
    std::string output;             ///< of its standard output; no more than `largest_output` bytes
    std::string errors;             ///< of its standard error; no more than `largest_errors` bytes
    bool output_cut = false;        ///< there was more
};

constexpr std::size_t largest_output = std::size_t{16} << 20;
constexpr std::size_t largest_errors = std::size_t{64} << 10;

/// Runs `program` (a path; no shell, no search) with `arguments` after its name, reading from /dev/null, as leader of a
/// process group of its own, and waits. Once it has ended, or `limit` is over, all of that group is killed: what a
/// probe started does not outlive it.
///
/// Threads: one at a time. Errors: what pipe2(2) and posix_spawn(3) say.
[[nodiscard]] Result<ChildEnd> run_child(const std::string& program, const std::vector<std::string>& arguments,
                                         std::chrono::milliseconds limit);

} // namespace upcie::cli
