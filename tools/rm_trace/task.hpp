// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/rm/trace.hpp>

#include "system_calls.hpp"

namespace upcie::rm {

/// A mapping of a node, from where it begins.
struct NodeMapping {
    std::uint64_t length = 0;
    NodeName node;
    std::uint64_t offset = 0;
    std::uint32_t protection = 0;
    std::vector<std::byte> last; ///< --memory: what was recorded of it
    bool not_readable = false;   ///< --memory: it was tried, or is too large
};

/// The mappings of nodes in one address space; threads and children of vfork share it.
struct AddressSpace {
    std::map<std::uint64_t, NodeMapping> mappings;

    [[nodiscard]] bool touches(std::uint64_t address, std::uint64_t length) const noexcept;
    /// Takes the range out; what sticks out on either side stays.
    void remove(std::uint64_t address, std::uint64_t length);
    void add(std::uint64_t address, NodeMapping mapping);
};

/// A consulted file that is open: the thread that opened it is stopped at every call, so that its reads are seen.
struct WatchedFile {
    int fd = -1;
    pid_t tid = 0;
    std::string path;
    unsigned calls_left = 0;
};

struct Process {
    pid_t pid = 0;
    std::shared_ptr<AddressSpace> space;
    std::vector<WatchedFile> watched;
};

/// A system call between its entry and its return.
struct PendingCall {
    const SystemCall* call = nullptr;
    std::array<std::uint64_t, 6> arguments{};
    std::uint64_t instruction = 0;
    std::uint64_t stack = 0;
    std::uint64_t time_in = 0;
    std::uint64_t time_out = 0;
    std::uint64_t entered = 0;
    Outcome outcome;
    std::uint32_t restarts = 0;
    /// What will be recorded, as far as it is known; in the order in which it will be written.
    std::vector<decltype(Record::body)> bodies;
};

/// A traced thread.
struct Task {
    pid_t tid = 0;
    std::shared_ptr<Process> process;
    std::optional<PendingCall> pending;
    /// Ended by a signal, and may start again once its handler has returned; the innermost last.
    std::vector<PendingCall> interrupted;
    bool returning_from_handler = false; ///< rt_sigreturn was entered
    bool inside_call = false; ///< its entry was seen as a stop of its own: the filter's stop for it says nothing new
};

} // namespace upcie::rm
