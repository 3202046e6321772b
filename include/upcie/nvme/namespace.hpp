// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <upcie/nvme/controller.hpp>
#include <upcie/nvme/identify.hpp>
#include <upcie/nvme/queue_pair.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// Blocks [first, first + blocks).
struct LbaRange {
    Lba first;
    std::uint32_t blocks = 0;
};

/// A namespace whose blocks can be read and written: what QueuePair's commands need to know of it, and the same
/// commands as calls that wait.
///
/// A value that holds its controller. Threads: any for itself; a call occupies the queue that it is given, which must
/// belong to the same controller and have nothing outstanding.
class Namespace {
  public:
    /// Errors: ENODEV (not active), ENOTSUP (a format with metadata, or with blocks below 512 bytes or above 64 KiB),
    /// EPROTO, and those of Controller::admin.
    [[nodiscard]] static Result<Namespace> open(std::shared_ptr<Controller> controller, Nsid nsid);

    [[nodiscard]] Nsid nsid() const noexcept { return info_.nsid; }
    [[nodiscard]] BlockFormat format() const noexcept { return format_; }
    [[nodiscard]] std::uint32_t block_size() const noexcept { return std::uint32_t{1} << format_.block_shift; }
    [[nodiscard]] std::uint64_t blocks() const noexcept { return info_.size_blocks; }
    [[nodiscard]] ByteCount size() const noexcept { return ByteCount{info_.size_blocks << format_.block_shift}; }
    [[nodiscard]] const NamespaceInfo& info() const noexcept { return info_; }

    /// Error: ERANGE when [lba, lba + blocks) is not inside, EINVAL when it is empty.
    [[nodiscard]] Result<void> check_range(const char* operation, Lba lba, std::uint64_t blocks) const;

    // ---- calls that wait. Errors of all: EBUSY (the queue has other commands outstanding), ENODEV (the queue is dead,
    // the device gone), EIO (CSTS.CFS), ETIMEDOUT, ECANCELED (reset meanwhile), domain nvme (status), and
    // check_range's. After ETIMEDOUT, EIO and ENODEV the controller may still touch the memory: keep it registered.

    /// Any number of blocks, in as many commands as the queue's max_transfer() asks for, several at once. `data` must
    /// resolve in the queue's registry. When one command fails, others may have taken effect.
    /// Errors also: EFAULT (not registered), EINVAL (no registry, or misaligned).
    Result<void> read(QueuePair& queue, Lba lba, std::uint64_t blocks, void* data) const;
    Result<void> write(QueuePair& queue, Lba lba, std::uint64_t blocks, const void* data) const;
    /// Makes earlier writes durable.
    Result<void> flush(QueuePair& queue) const;
    /// Errors also: ENOTSUP (ONCS).
    Result<void> write_zeroes(QueuePair& queue, Lba lba, std::uint64_t blocks) const;
    /// Tells that the blocks' contents do not matter any more (Dataset Management, AD). 1 to 256 ranges.
    /// Errors also: ENOTSUP (ONCS), EINVAL (number of ranges), ENOMEM.
    Result<void> deallocate(QueuePair& queue, std::span<const LbaRange> ranges) const;

  private:
    Namespace(std::shared_ptr<Controller> controller, NamespaceInfo info, BlockFormat format);
    [[nodiscard]] std::string subject() const;
    template <class Submit>
    Result<void> run_split(QueuePair& queue, const char* operation, Lba lba, std::uint64_t blocks,
                           std::uint64_t blocks_a_command, Submit submit) const;

    std::shared_ptr<Controller> controller_;
    NamespaceInfo info_;
    BlockFormat format_;
};

} // namespace upcie::nvme
