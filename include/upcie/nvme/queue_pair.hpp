// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <time.h>

#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/command.hpp>
#include <upcie/nvme/prp.hpp>
#include <upcie/nvme/queue_layout.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/refusal.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// Which namespace a command is for and how large its blocks are: all that the hot path has to know of it.
struct BlockFormat {
    Nsid nsid;
    std::uint8_t block_shift = 9; ///< log2 of the bytes of a block
};

/// What came of a submission: the command's identifier, or why there is none.
class Submitted {
  public:
    constexpr explicit Submitted(Cid cid) noexcept : cid_{cid.value()} {}
    constexpr explicit Submitted(Refusal refusal, std::uint32_t segment = 0) noexcept
        : segment_{segment}, refusal_{refusal} {}
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return refusal_ == Refusal::none; }
    [[nodiscard]] constexpr Cid cid() const noexcept { return Cid{cid_}; }
    [[nodiscard]] constexpr Refusal refusal() const noexcept { return refusal_; }
    /// The refusal in words. Errors: see to_error().
    [[nodiscard]] Error error(std::string operation, std::string subject) const {
        return to_error(refusal_, std::move(operation), std::move(subject), segment_);
    }

  private:
    std::uint32_t segment_ = 0;
    std::uint16_t cid_ = 0;
    Refusal refusal_ = Refusal::none;
};

/// The memory and descriptors of one queue pair, kept together: nothing of it may go while the controller can touch it.
struct QueueResources {
    memory::DmaBuffer rings;                   ///< submission ring, then completion ring, each from a page's start
    memory::DmaBuffer lists;                   ///< PRP list pages, `list_pages` for each command
    std::vector<std::uint64_t> list_addresses; ///< device address of every list page
    memory::Reader reader;                     ///< holds the registered memory that commands in flight may use
    os::Fd interrupt;                          ///< eventfd; empty for a polled queue
};

/// What a queue pair asks of the controller that made it. Cold, virtual. Threads: any.
class QueueOwner {
  public:
    virtual ~QueueOwner() = default;
    /// Counts confirmed disables of the controller: a queue made before the present count is dead.
    [[nodiscard]] const std::atomic<std::uint32_t>& generation() const noexcept { return generation_; }
    /// Deletes the queue on the controller and frees the resources; keeps them until the controller is confirmed
    /// disabled when that fails.
    virtual void release(Qid qid, std::uint32_t generation, std::unique_ptr<QueueResources> resources) noexcept = 0;
    /// Creates the queue again after a reset, over the same memory; answers the generation it belongs to.
    /// Errors: as Controller::create_queue_pair.
    virtual Result<std::uint32_t> recreate(Qid qid, const QueueResources& resources, std::uint32_t entries) = 0;

  protected:
    std::atomic<std::uint32_t> generation_{0};
};

/// All that a queue pair is made of.
struct QueueSetup {
    Qid qid;
    QueueLayout layout;           ///< rings, doorbells and entries filled in, completion ring zeroed
    unsigned page_shift = 12;     ///< of the controller's page (CC.MPS + 12)
    std::uint32_t list_pages = 0; ///< PRP list pages a command has
    ByteCount max_transfer;       ///< of one command; what the list pages can describe may be less and then counts
    std::uint32_t generation = 0; ///< the owner's when the queue was created
    std::chrono::nanoseconds timeout{std::chrono::seconds{30}}; ///< of a command, unless it names its own; 0: none
    std::unique_ptr<QueueResources> resources;
    std::shared_ptr<QueueOwner> owner;
};

/// One NVMe submission and completion queue: commands go in by submit and ring, come out by poll.
///
/// Move-only; holds its controller. At destruction the queue is deleted on the controller before its memory goes.
/// Threads: one at a time, for everything. The hot path (submission, ring, poll) never allocates, locks, or calls
/// virtually, and makes no system call of its own (the coarse clock is read through the vDSO, once a batch).
class QueuePair {
  public:
    struct Counters {
        std::uint64_t stray = 0;     ///< completions for a command that was not outstanding, dropped
        std::uint64_t late = 0;      ///< completions of commands that had been reported as timed out
        std::uint64_t timed_out = 0; ///< commands reported as timed out
    };

    explicit QueuePair(QueueSetup setup);
    QueuePair(QueuePair&&) noexcept = default;
    QueuePair& operator=(QueuePair&&) noexcept;
    ~QueuePair();

    // ---- submission. Nothing reaches the controller before ring(). Refuses: queue_full, queue_dead, and as said.

    /// Reads `blocks` blocks from `lba` into registered memory. Refuses: no_registry, not_registered, out_of_bounds,
    /// empty, too_long, misaligned, segment_misaligned.
    [[nodiscard]] Submitted read(BlockFormat format, Lba lba, std::uint32_t blocks, void* data,
                                 std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::read, format, lba, blocks, data, cookie);
    }
    /// Writes likewise.
    [[nodiscard]] Submitted write(BlockFormat format, Lba lba, std::uint32_t blocks, const void* data,
                                  std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::write, format, lba, blocks, data, cookie);
    }
    /// The same with one extent that was resolved already (a Registration's). Refuses also: length_mismatch.
    [[nodiscard]] Submitted read(BlockFormat format, Lba lba, std::uint32_t blocks, iommu::Extent data,
                                 std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::read, format, lba, blocks, data, cookie);
    }
    [[nodiscard]] Submitted write(BlockFormat format, Lba lba, std::uint32_t blocks, iommu::Extent data,
                                  std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::write, format, lba, blocks, data, cookie);
    }
    /// Any command as it stands: the caller fills all but the CID, PRPs included.
    [[nodiscard]] Submitted submit(const Command& command, std::uint64_t cookie) noexcept;
    /// Any command that moves `bytes` in or out of `data`: the queue fills PRPs and CID. Zero bytes: no data.
    [[nodiscard]] Submitted submit(const Command& command, std::span<const iommu::Extent> data, ByteCount bytes,
                                   std::uint64_t cookie) noexcept;
    /// A vector of extents for a read or write of `blocks` blocks.
    [[nodiscard]] Submitted transfer(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                                     std::span<const iommu::Extent> data, std::uint64_t cookie) noexcept;
    [[nodiscard]] Submitted flush(Nsid nsid, std::uint64_t cookie) noexcept;
    /// Refuses: empty, too_long (65536 blocks at most).
    [[nodiscard]] Submitted write_zeroes(BlockFormat format, Lba lba, std::uint32_t blocks,
                                         std::uint64_t cookie) noexcept;
    /// The deadline of commands submitted from now on; 0: none.
    void set_timeout(std::chrono::nanoseconds timeout) noexcept;

    /// Tells the controller about everything submitted since the last call: one doorbell for all.
    void ring() noexcept {
        if (layout_.tail != layout_.rung_tail && owner_generation_->load(std::memory_order_acquire) == generation_) {
            layout_.ring_submission();
        }
    }

    // ---- completion

    /// Takes up to out.size() ended commands: completed ones by their CID, then timed-out ones, and after a reset of
    /// the controller every outstanding one with Outcome::reset. Rings the completion doorbell once.
    [[nodiscard]] std::size_t poll(std::span<Completion> out) noexcept {
        if (owner_generation_->load(std::memory_order_acquire) != generation_) [[unlikely]] {
            return end_after_reset(out);
        }
        std::size_t count = 0;
        std::uint32_t dword3 = 0;
        const std::uint32_t head = layout_.head;
        while (count < out.size() && layout_.peek_completion(dword3)) {
            const CompletionEntry& entry = layout_.completion[layout_.head];
            Slot& slot = slots_[dword3 & slot_mask_];
            if (slot.state != ((dword3 & 0xffffU) | in_flight)) [[unlikely]] {
                if (!take_odd_completion(dword3)) {
                    layout_.advance_head();
                    continue;
                }
            }
            slot.state = 0;
            Completion& completion = out[count++];
            completion.cookie = slot.cookie;
            completion.result = entry.result_low | (std::uint64_t{entry.result_high} << 32);
            completion.cid_phase_status = dword3;
            completion.outcome = Outcome::completed;
            free_[free_count_++] = static_cast<std::uint16_t>(dword3 + cid_step_);
            layout_.advance_head();
        }
        if (layout_.head != head) {
            layout_.ring_completion();
        }
        if (count == 0 || (++polls_ & 63U) == 0) {
            count += end_timed_out(out.subspan(count));
        }
        if (resources_->reader.behind()) [[unlikely]] {
            drain();
        }
        return count;
    }

    /// Waits until the queue's interrupt fires or time runs out, then lets poll() find what there is. True: it fired.
    /// Errors: ENOTSUP for a queue made without an interrupt, EINTR, and what poll(2) says.
    [[nodiscard]] Result<bool> wait_for_interrupt(os::System& system, std::chrono::milliseconds timeout);

    // ---- the queue itself

    /// The registry that pointers resolve through; replaces another. Error: EBUSY while commands are outstanding.
    Result<void> attach(memory::Registry& registry);
    /// After a reset of the controller and once outstanding() is 0: makes the queue usable again.
    /// Errors: EBUSY (poll first), EALREADY (it is alive), and what creating a queue says.
    Result<void> restart();

    [[nodiscard]] Qid qid() const noexcept { return qid_; }
    /// Commands that may be outstanding: the ring's entries less one.
    [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
    /// Commands submitted and not yet handed out, the timed-out ones that the controller still holds included.
    [[nodiscard]] std::uint32_t outstanding() const noexcept { return capacity_ - free_count_; }
    /// True while the controller holds just this command, also after poll() reported that it timed out: its memory may
    /// be touched. False once it was answered, or ended by a reset.
    [[nodiscard]] bool is_outstanding(Cid cid) const noexcept {
        return (slots_[cid.value() & slot_mask_].state & (0xffffU | in_flight)) == (cid.value() | in_flight);
    }
    /// Of the outstanding ones, those that poll() has reported as timed out. Looks at every slot.
    [[nodiscard]] std::uint32_t timed_out_outstanding() const noexcept;
    [[nodiscard]] bool alive() const noexcept {
        return owner_generation_->load(std::memory_order_acquire) == generation_;
    }
    [[nodiscard]] ByteCount max_transfer() const noexcept { return ByteCount{max_transfer_alive_}; }
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] const QueueLayout& layout() const noexcept { return layout_; }

  private:
    // State of a slot: its present CID in 15:0 and these. A completion counts only when it equals CID | in_flight; any
    // other bit sends it down the slow road, so that draining and time-outs cost the hot path nothing.
    static constexpr std::uint32_t in_flight = 1U << 16;
    static constexpr std::uint32_t retired = 1U << 17;  ///< reported as timed out
    static constexpr std::uint32_t draining = 1U << 18; ///< the registry waits for it
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    struct Slot {
        std::uint64_t cookie = 0;
        std::uint64_t deadline = never; ///< ns of the coarse monotonic clock
        std::uint32_t state = 0;
        std::uint32_t padding = 0;
    };

    [[nodiscard]] static std::uint64_t now() noexcept {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
        return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
    }

    [[nodiscard]] PrpListPages lists_of(std::uint32_t slot) const noexcept {
        return {reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(layout_.prp_lists) +
                                                 std::size_t{slot} * layout_.prp_list_stride),
                list_addresses_ + std::size_t{slot} * list_pages_, list_pages_};
    }

    /// First command of a batch: looks at the clock once for all of it.
    void begin_batch() noexcept;

    /// Takes the CID off the free ones and notes the command as in flight.
    std::uint16_t take_cid(std::uint64_t cookie) noexcept {
        if (layout_.tail == layout_.rung_tail) {
            begin_batch();
        }
        const std::uint16_t cid = free_[--free_count_];
        Slot& slot = slots_[cid & slot_mask_];
        slot.cookie = cookie;
        slot.deadline = batch_deadline_;
        slot.state = cid | in_flight;
        return cid;
    }

    [[nodiscard]] Submitted place(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks, PrpPair prps,
                                  std::uint64_t cookie) noexcept {
        const std::uint16_t cid = take_cid(cookie);
        Command& entry = layout_.next_submission();
        entry.opcode = static_cast<std::uint8_t>(opcode);
        entry.flags = 0;
        entry.cid = cid;
        entry.nsid = format.nsid.value();
        entry.cdw2 = 0;
        entry.cdw3 = 0;
        entry.mptr = 0;
        entry.prp1 = prps.prp1;
        entry.prp2 = prps.prp2;
        entry.cdw10 = static_cast<std::uint32_t>(lba.value());
        entry.cdw11 = static_cast<std::uint32_t>(lba.value() >> 32);
        entry.cdw12 = blocks - 1;
        entry.cdw13 = 0;
        entry.cdw14 = 0;
        entry.cdw15 = 0;
        layout_.advance_tail();
        return Submitted{Cid{cid}};
    }

    [[nodiscard]] Submitted transfer(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                                     const void* data, std::uint64_t cookie) noexcept {
        const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
        if (free_count_ == 0 || bytes - 1 >= max_transfer_) [[unlikely]] {
            return refuse(bytes);
        }
        const memory::Resolution resolution = resources_->reader.resolve(data, ByteCount{bytes});
        if (!resolution) [[unlikely]] {
            return refuse(resolution.refusal);
        }
        if (resolution.extent.length.value() != bytes) [[unlikely]] {
            return transfer_scattered(opcode, format, lba, blocks, data, cookie);
        }
        return transfer(opcode, format, lba, blocks, resolution.extent, cookie);
    }

    [[nodiscard]] Submitted transfer(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                                     iommu::Extent data, std::uint64_t cookie) noexcept {
        const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
        if (free_count_ == 0 || bytes - 1 >= max_transfer_ || data.length.value() != bytes) [[unlikely]] {
            return data.length.value() != bytes && free_count_ != 0 ? Submitted{Refusal::length_mismatch}
                                                                    : refuse(bytes);
        }
        const PrpPair prps = build_contiguous_prps(data.address.value(), bytes,
                                                   lists_of(free_[free_count_ - 1] & slot_mask_), page_shift_);
        if (prps.refusal != Refusal::none) [[unlikely]] {
            return transfer(opcode, format, lba, blocks, std::span{&data, 1}, cookie);
        }
        return place(opcode, format, lba, blocks, prps, cookie);
    }

    // ---- off the hot path, in queue_pair.cpp
    [[nodiscard]] Submitted refuse(std::uint64_t bytes) const noexcept;
    [[nodiscard]] Submitted refuse(Refusal refusal) const noexcept;
    [[nodiscard]] Submitted transfer_scattered(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                                               const void* data, std::uint64_t cookie) noexcept;
    bool take_odd_completion(std::uint32_t dword3) noexcept;
    std::size_t end_after_reset(std::span<Completion> out) noexcept;
    std::size_t end_timed_out(std::span<Completion> out) noexcept;
    void drain() noexcept;
    void free_all_cids() noexcept;
    void let_go() noexcept;

    QueueLayout layout_;
    const std::atomic<std::uint32_t>* owner_generation_ = nullptr;
    Slot* slots_ = nullptr;
    std::uint16_t* free_ = nullptr; ///< identifiers that may be used, the next one last
    std::uint32_t free_count_ = 0;
    std::uint32_t slot_mask_ = 0;
    std::uint32_t cid_step_ = 0; ///< added at each reuse, so that a repeated completion matches nothing
    std::uint32_t generation_ = 0;
    std::uint32_t page_shift_ = 12;
    std::uint32_t list_pages_ = 0;
    std::uint64_t max_transfer_ = 0; ///< 0 while dead, so that the one check refuses everything
    std::uint64_t max_transfer_alive_ = 0;
    const std::uint64_t* list_addresses_ = nullptr;
    std::uint64_t batch_deadline_ = never;
    std::uint64_t earliest_deadline_ = never; ///< no command's deadline is before it
    std::uint64_t timeout_ = 0;
    std::uint32_t polls_ = 0;
    std::uint32_t capacity_ = 0;
    std::uint32_t drain_remaining_ = 0;
    std::uint32_t reset_cursor_ = 0;
    std::uint64_t drain_epoch_ = 0;
    Counters counters_;
    Qid qid_;
    std::unique_ptr<QueueResources> resources_;
    std::unique_ptr<Slot[]> slot_memory_;
    std::unique_ptr<std::uint16_t[]> free_memory_;
    std::shared_ptr<QueueOwner> owner_;
};

} // namespace upcie::nvme
