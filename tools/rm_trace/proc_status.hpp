// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "nodes.hpp"
#include "task.hpp"

/// What /proc says of processes. Nothing, or empty, where a process is gone. Threads: any.
namespace upcie::rm {

[[nodiscard]] std::string link_target(const std::string& path);
/// The process that a thread belongs to.
[[nodiscard]] std::optional<pid_t> process_id_of(pid_t tid);
[[nodiscard]] std::optional<pid_t> parent_of(pid_t tid);
[[nodiscard]] std::vector<pid_t> threads_of(pid_t pid);
[[nodiscard]] std::vector<std::string> command_line_of(pid_t pid);
/// Mappings of nodes that a process has already, by where they begin.
[[nodiscard]] std::vector<std::pair<std::uint64_t, NodeMapping>> mapped_nodes(pid_t pid, const Nodes& nodes);

} // namespace upcie::rm
