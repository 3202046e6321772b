// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/refusal.hpp>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace upcie {

Error to_error(Refusal refusal, std::string operation, std::string subject, std::uint32_t segment) {
    Error error;
    error.operation = std::move(operation);
    error.subject = std::move(subject);
    error.code = EINVAL;
    switch (refusal) {
    case Refusal::none:
        error.hint = "Nothing was refused: this error should not have been made";
        break;
    case Refusal::queue_full:
        error.code = EAGAIN;
        error.hint = "Every command identifier is in use: poll for completions first, or make the queue deeper";
        break;
    case Refusal::queue_dead:
        error.code = ENODEV;
        error.hint = "The controller was reset or is gone: poll until nothing is outstanding, then restart() the queue";
        break;
    case Refusal::no_registry:
        error.hint = "Attach a memory::Registry to the queue, or pass extents instead of a pointer";
        break;
    case Refusal::not_registered:
        error.code = EFAULT;
        error.hint = "Register the buffer with the queue's memory::Registry first";
        break;
    case Refusal::out_of_bounds:
        error.code = EFAULT;
        error.hint = "The range leaves its registration: register the whole buffer, or transfer less";
        break;
    case Refusal::empty:
        error.hint = "Transfer at least one block";
        break;
    case Refusal::too_long:
        error.hint = "Split the transfer: it is above the controller's MDTS, the queue's limit or 65536 blocks";
        break;
    case Refusal::length_mismatch:
        error.hint = "Pass extents whose lengths add up to the bytes of the command";
        break;
    case Refusal::misaligned:
        error.hint = "The device address of the data must be a multiple of 4 (PRP entry 1)";
        break;
    case Refusal::segment_misaligned:
        error.hint = fmt::format("Segment {} does not meet its neighbour at a page of the controller, as PRP lists "
                                 "demand: align the segments, or copy through one buffer",
                                 segment);
        break;
    case Refusal::too_many_segments:
        error.hint =
            fmt::format("The SGL is full at segment {}: transfer less at a time, or make the segments longer", segment);
        break;
    }
    return error;
}

} // namespace upcie
