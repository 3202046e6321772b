// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace upcie::sim {

/// A rule of the specification, or of plain prudence, that the driver broke. The simulator goes on after noting it.
enum class ViolationKind : std::uint8_t {
    access_fault,           ///< an address that is not mapped, or not for this kind of access; nothing was touched
    dma_while_not_master,   ///< work for the controller while bus mastering is off: nothing was touched
    doorbell_value,         ///< a doorbell beyond the queue's end, or one that passes the other side's index
    doorbell_without_queue, ///< a doorbell of a queue that does not exist (any more), or while disabled
    register_write,         ///< a read-only register written, or one that may not change while enabled
    controller_setup, ///< enabled with values that the controller does not take (page size, queue memory, entry size)
    queue_memory,     ///< ring memory that is misaligned, not contiguous, not mapped, or overlaps another ring
    queue_not_zeroed, ///< a completion ring with phase bits set when it was created: phantom completions
    cid_in_use,       ///< a command identifier that an outstanding command of that queue has
    reserved_field,   ///< PSDT, FUSE, metadata pointer, or reserved dwords that are not zero
    prp_misaligned,   ///< PRP entry 1 not a dword multiple, an offset where none may be, a list not at a qword
    prp_unused,       ///< PRP entry 2 not zero though PRP entry 1 covers the transfer
    sgl_invalid,      ///< a descriptor of another kind, length, place or alignment than may be
    after_shutdown,   ///< a command after the host asked for shutdown
};

/// "doorbell_value" and so on.
[[nodiscard]] std::string_view to_string(ViolationKind kind) noexcept;

struct Violation {
    ViolationKind kind;
    std::string text; ///< what was seen, with numbers: "queue 1: tail doorbell 300, the queue has 256 entries"
};

/// One a line, for an assertion's message.
[[nodiscard]] std::string to_string(const std::vector<Violation>& violations);

} // namespace upcie::sim
