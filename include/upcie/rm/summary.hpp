// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// How often something was called.
struct Tally {
    std::uint64_t calls = 0;
    std::uint64_t failures = 0; ///< the ioctl failed, or the driver answered another status than NV_OK
    std::uint64_t nanoseconds = 0;
};

/// What a trace holds, in numbers. Each ioctl record counts once: as its escape (what XFER wraps, where it is wrapped),
/// as its UVM command, or as one of another node. Controls and classes split up RM_CONTROL and the allocations.
struct Summary {
    std::uint64_t ioctls = 0;
    std::map<std::uint32_t, Tally> escapes;
    std::map<std::uint32_t, Tally> xfer_wrapped; ///< of these escapes, those that came by XFER
    std::map<std::uint32_t, Tally> controls;
    std::map<std::uint32_t, Tally> classes; ///< of RM_ALLOC, RM_ALLOC_MEMORY and RM_ALLOC_OBJECT
    std::map<std::uint32_t, Tally> uvm;
    std::map<std::uint64_t, Tally> others;        ///< by request: ioctls that are neither
    std::map<std::string, std::uint64_t> nodes;   ///< ioctls by path of the node
    std::map<std::string, std::uint64_t> records; ///< by type, ioctls included
    std::map<std::string, std::uint64_t> failed;  ///< "RM_CONTROL ...: NV_ERR_NOT_SUPPORTED (0x56)": how often
    std::uint64_t unfinished = 0;
    std::uint64_t nanoseconds = 0;         ///< in ioctls
    std::uint64_t elapsed_nanoseconds = 0; ///< from the first record to the last
    std::uint64_t processes = 0;
    std::uint64_t threads = 0;
};

/// Counts a trace. Threads: any.
[[nodiscard]] Summary summarise(const Trace& trace);

} // namespace upcie::rm
