// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <upcie/result.hpp>

namespace upcie {

/// Why the hot path did not do what was asked: one byte, no allocation. to_error() turns it into words.
enum class Refusal : std::uint8_t {
    none = 0,
    queue_full,         ///< every command identifier is in use (or retired by a time-out)
    queue_dead,         ///< the controller was reset or lost: poll what is outstanding, then restart the queue
    no_registry,        ///< a pointer was given to a queue that no registry is attached to
    not_registered,     ///< no registration holds the first byte
    out_of_bounds,      ///< the range leaves the registration that holds its first byte
    empty,              ///< no bytes, or no extents
    too_long,           ///< more than the controller takes in one command (MDTS) or than 65536 blocks
    length_mismatch,    ///< the extents together are not what the command transfers
    misaligned,         ///< the first address is not a multiple of 4, as PRP entry 1 demands
    segment_misaligned, ///< a boundary between two extents is not at a page of the controller
    too_many_segments   ///< more descriptors than the queue has room for
};

/// The same as an Error with its errno value and what to do: EAGAIN (queue_full), ENODEV (queue_dead), EFAULT
/// (not_registered, out_of_bounds), EINVAL (the rest). `segment` counts from 0 and is named where it matters.
[[nodiscard]] Error to_error(Refusal refusal, std::string operation, std::string subject, std::uint32_t segment = 0);

} // namespace upcie
