// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "channel.hpp"
#include "report.hpp"
#include "requests.hpp"
#include "session.hpp"

namespace upcie::probes {

/// What a primary hands to a secondary: descriptors, and the numbers that mean nothing without them. The IOAS id
/// travels with its iommufd; guessing it would work by accident (a first IOAS is mostly 2 or 3).
struct Delegation {
    os::Fd device;
    os::Fd iommufd;
    os::Fd memory_file;
    std::uint32_t ioas = 0;
    std::uint64_t memory_iova = 0;
    std::uint64_t memory_length = 0;
    std::string cdev;
    std::string bdf;
    bool nvme = false; ///< whether the device is a drive, which can be told to write somewhere

    /// Sends another's (`session`, `memory`) as a message "delegate"; `extra` travels along. Error: of Channel::send.
    static Result<void> send(Channel& channel, const Session& session, const SharedMemory& memory,
                             std::uint64_t memory_iova, const pci::FunctionInfo& function,
                             Value extra = Value::object());
    /// The same for what this process was given itself.
    Result<void> pass_on(Channel& channel, Value extra = Value::object()) const;
    /// Error: EPROTO when the message lacks something.
    [[nodiscard]] static Result<Delegation> take(Message& message);
};

/// The secondary's look at what it was given; everything goes into the report under "share.":
/// the device's info and registers, a second bind, its own opens, and mappings of its own, with the device as a
/// witness. `shared` is the given memory, mapped; the witness writes to its last page. Error: ENOMEM and the like,
/// nothing that is an answer.
Result<void> look_at_delegation(Report& report, const Requests& requests, const Delegation& given,
                                const SharedMemory& own, const os::Mapping& shared);

/// "0x..." of CAP as read through an own mapping of BAR 0 of `device`; null when it cannot be mapped.
[[nodiscard]] Value read_cap(const Requests& requests, int device);

/// Where things lie in the memory that primary and secondary share.
namespace layout {
constexpr std::uint64_t rings = 0;       ///< the admin queue of whoever drives the device
constexpr std::uint64_t scratch = 8192;  ///< a page for the primary's own data
constexpr std::uint64_t witness = 12288; ///< a page that the secondary lets the device write to
constexpr std::uint64_t words = 16384;   ///< a page for what the processes write for each other
constexpr std::uint64_t length = 20480;
} // namespace layout

} // namespace upcie::probes
