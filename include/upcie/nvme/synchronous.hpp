// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include <upcie/nvme/command_error.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/nvme/queue_pair.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// Waiting for commands of one queue pair, a call at a time. Not for the hot path.
///
/// Takes every completion of the queue, so the queue must have no other user meanwhile: begin() checks. A command that
/// timed out earlier may still be with the controller. Borrows both. Threads: the queue's.
class Synchronous {
  public:
    Synchronous(Controller& controller, QueuePair& queue) noexcept : controller_{controller}, queue_{queue} {}

    /// Errors: EBUSY (commands of somebody else are outstanding), ENODEV (the queue is dead).
    [[nodiscard]] Result<void> begin() const;
    /// Rings, and waits for the next command to end, however it does: its deadline bounds the wait.
    /// Errors: ENODEV (the device is gone), EIO (CSTS.CFS): what is outstanding stays so, until a reset.
    [[nodiscard]] Result<Completion> next();

  private:
    Controller& controller_;
    QueuePair& queue_;
};

/// Runs one command of any kind on an I/O queue: the queue fills the CID and, where there is data, the PRP entries,
/// which are the caller's otherwise. Answers dwords 0 and 1 of the completion. The memory of a command that fails with
/// ETIMEDOUT, EIO or ENODEV may still be touched. Errors: Synchronous's, the queue's refusals, domain nvme (status),
/// ETIMEDOUT, ECANCELED (reset meanwhile).
[[nodiscard]] Result<std::uint64_t> run(Controller& controller, QueuePair& queue, const Command& command,
                                        std::span<const iommu::Extent> data = {}, ByteCount bytes = ByteCount{});

} // namespace upcie::nvme
