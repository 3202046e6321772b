// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <upcie/memory/registry.hpp>
#include <upcie/nvme/command.hpp>
#include <upcie/nvme/prp.hpp>
#include <upcie/nvme/queue_layout.hpp>
#include <upcie/nvme/queue_setup.hpp>
#include <upcie/nvme/sgl.hpp>
#include <upcie/refusal.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// Which namespace a command is for and how large its blocks are: all that the hot path has to know of it.
struct BlockFormat {
    Nsid nsid;
    std::uint32_t block_shift = 9; ///< log2 of the bytes of a block
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

    /// Reads `blocks` blocks from `lba` into registered memory, described by PRPs; by an SGL where PRPs cannot and the
    /// controller can. Refuses: no_registry, not_registered, out_of_bounds, empty, too_long, and what neither can
    /// describe: misaligned, segment_misaligned, too_many_segments.
    [[nodiscard, gnu::always_inline]] Submitted read(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                                     void* data, std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::read, format, lba, blocks, data, cookie);
    }
    /// Writes likewise.
    [[nodiscard, gnu::always_inline]] Submitted write(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                                      const void* data, std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::write, format, lba, blocks, data, cookie);
    }
    /// The same with one extent that was resolved already (a Registration's). Refuses also: length_mismatch.
    [[nodiscard, gnu::always_inline]] Submitted read(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                                     iommu::Extent data, std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::read, format, lba, blocks, data, cookie);
    }
    [[nodiscard, gnu::always_inline]] Submitted write(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                                      iommu::Extent data, std::uint64_t cookie) noexcept {
        return transfer(IoOpcode::write, format, lba, blocks, data, cookie);
    }
    /// Any command as it stands: the caller fills all but the CID, PRPs included.
    [[nodiscard]] Submitted submit(const Command& command, std::uint64_t cookie) noexcept;
    /// Any command that moves `bytes` in or out of `data`: the queue fills the data pointer and the CID. Zero bytes: no
    /// data.
    [[nodiscard]] Submitted submit(const Command& command, std::span<const iommu::Extent> data, ByteCount bytes,
                                   std::uint64_t cookie) noexcept;
    /// A vector of extents for a read or write of `blocks` blocks.
    [[nodiscard]] Submitted transfer(IoOpcode opcode, const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                     std::span<const iommu::Extent> data, std::uint64_t cookie) noexcept;
    [[nodiscard]] Submitted flush(Nsid nsid, std::uint64_t cookie) noexcept;
    /// Refuses: empty, too_long (65536 blocks at most).
    [[nodiscard]] Submitted write_zeroes(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                         std::uint64_t cookie) noexcept;
    /// The time that commands are given, those in flight included unless they were given their own; 0: any time.
    /// Deadlines are looked at when a poll finds nothing, and at every 64th: a command is timed out at its deadline or
    /// up to 1/32 of the time given later (the coarse clock's few milliseconds at least), never before.
    void set_timeout(std::chrono::nanoseconds timeout) noexcept;
    /// Gives one outstanding command a time of its own, counted from now (a Format may take hours). False: no such CID.
    bool set_command_timeout(Cid cid, std::chrono::nanoseconds timeout) noexcept;

    /// Tells the controller about everything submitted since the last call: one doorbell for all.
    void ring() noexcept {
        if (layout_.next != layout_.rung && owner_generation_->load(std::memory_order_acquire) == generation_) {
            count_submitted();
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
        Completion* next = out.data();
        Completion* const last = next + out.size();
        CompletionEntry* const ring_end = layout_.completion + layout_.entries;
        CompletionEntry* upcoming = layout_.upcoming;
        std::uint32_t phase = layout_.phase;
        bool more = next != last;
        while (more) {
            // As far as both the ring and `out` reach without looking at their ends.
            CompletionEntry* const until = upcoming + std::min(ring_end - upcoming, last - next);
            while (upcoming != until) {
                const std::uint32_t dword3 = load_acquire(&upcoming->cid_phase_status);
                if (((dword3 ^ phase) & QueueLayout::phase_bit) != 0) {
                    more = false;
                    break;
                }
                load_barrier();
                Slot& slot = slots_[dword3 & slot_mask_];
                ++upcoming;
                if (word_of(slot) != (dword3 & 0xffffU)) [[unlikely]] {
                    if (!take_odd_completion(dword3)) {
                        continue;
                    }
                }
                slot.free = 1;
                std::uint64_t result = 0;
                std::memcpy(&result, upcoming - 1, sizeof result);
                *next++ = {slot.cookie, result, dword3};
            }
            if (upcoming == ring_end) {
                upcoming = layout_.completion;
                phase ^= QueueLayout::phase_bit;
            }
            more = more && next != last;
        }
        auto count = static_cast<std::size_t>(next - out.data());
        if (upcoming != layout_.upcoming || phase != layout_.phase) {
            layout_.upcoming = upcoming;
            layout_.phase = phase;
            layout_.ring_completion();
            outstanding_ -= static_cast<std::uint32_t>(count);
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
    [[nodiscard]] std::uint32_t outstanding() const noexcept { return outstanding_ + not_rung(); }
    /// True while the controller holds just this command, also after poll() reported that it timed out: its memory may
    /// be touched. False once it was answered, or ended by a reset.
    [[nodiscard]] bool is_outstanding(Cid cid) const noexcept {
        const Slot& slot = slots_[cid.value() & slot_mask_];
        return slot.free == 0 && (slot.marks & unusable) == 0 && slot.cid == cid.value();
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
    // A slot is its command's CID and nothing else while that is in flight and nothing is to be said about it: only
    // then does a completion match at once. Every mark sends the completion down the slow road, so that draining,
    // deadlines and retirement cost the hot path nothing.
    static constexpr std::uint8_t timed = 1;    ///< has a deadline by the clock
    static constexpr std::uint8_t retired = 2;  ///< reported as timed out, still the controller's
    static constexpr std::uint8_t draining = 4; ///< the registry waits for it
    static constexpr std::uint8_t unusable = 8; ///< the slots are more than the queue has commands
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    /// What is known of a command. As large as a submission entry, so that the ring's offset finds the slot: the
    /// command in entry i takes slot i, unless an older one is still in flight there.
    struct alignas(64) Slot {
        std::uint64_t cookie = 0;
        std::uint16_t cid = 0; ///< of the command in flight, or of the last one
        std::uint8_t free = 1;
        std::uint8_t marks = 0;
        std::uint32_t index = 0;
        std::uint64_t* list = nullptr;  ///< first PRP list page
        std::uint64_t list_address = 0; ///< its device address
        std::uint64_t deadline = never; ///< ns of the coarse monotonic clock, where `timed`
    };
    static_assert(sizeof(Slot) == sizeof(Command));

    /// The CID, `free` and `marks` as one word: equal to a CID alone where a completion with it ends the command.
    [[nodiscard]] static std::uint32_t word_of(const Slot& slot) noexcept {
        std::uint32_t word = 0;
        std::memcpy(&word, &slot.cid, sizeof word);
        return word;
    }
    static void set_in_flight(Slot& slot, std::uint32_t cid) noexcept { std::memcpy(&slot.cid, &cid, sizeof cid); }

    /// The slot for the command that goes into `entry`, or null when the queue is full.
    [[nodiscard]] Slot* take_slot(const Command* entry) noexcept {
        auto* slot = reinterpret_cast<Slot*>(reinterpret_cast<std::uintptr_t>(entry) + slots_from_submission_);
        if (slot->free == 0) [[unlikely]] {
            slot = find_free_slot();
        }
        return slot;
    }

    [[gnu::always_inline]] Submitted place(Slot& slot, IoOpcode opcode, const BlockFormat& format, Lba lba,
                                           std::uint32_t blocks, std::uint64_t prp1, std::uint64_t prp2,
                                           std::uint64_t cookie) noexcept {
        Command& entry = *layout_.next;
        const auto cid = static_cast<std::uint16_t>(slot.cid + cid_step_);
        set_in_flight(slot, cid);
        slot.cookie = cookie;
        // Two zero stores of 16 bytes cover dwords 2 to 5 and 12 to 15.
        typedef std::uint64_t Pair __attribute__((vector_size(16), aligned(8), may_alias));
        *reinterpret_cast<Pair*>(&entry.cdw2) = Pair{};
        *reinterpret_cast<Pair*>(&entry.cdw12) = Pair{};
        // Dwords 0 and 1 at once: opcode, no flags, CID, namespace.
        const std::uint64_t head =
            static_cast<std::uint8_t>(opcode) | (std::uint64_t{cid} << 16) | (std::uint64_t{format.nsid.value()} << 32);
        std::memcpy(static_cast<void*>(&entry), &head, sizeof head);
        entry.prp1 = prp1;
        entry.prp2 = prp2;
        std::memcpy(&entry.cdw10, &lba, sizeof lba);
        entry.cdw12 = blocks - 1;
        layout_.advance_tail_from(&entry);
        return Submitted{Cid{cid}};
    }

    [[nodiscard, gnu::always_inline]] Submitted transfer(IoOpcode opcode, const BlockFormat& format, Lba lba,
                                                         std::uint32_t blocks, const void* data,
                                                         std::uint64_t cookie) noexcept {
        const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
        std::uint64_t address = 0;
        if (bytes - 1 >= pointer_limit_ ||
            !memory::TranslationIndex::try_resolve(index_root_, reinterpret_cast<std::uintptr_t>(data), bytes, address))
            [[unlikely]] {
            return transfer_scattered(opcode, format, lba, blocks, data, cookie);
        }
        return transfer_contiguous(opcode, format, lba, blocks, address, bytes, cookie);
    }

    [[nodiscard, gnu::always_inline]] Submitted transfer(IoOpcode opcode, const BlockFormat& format, Lba lba,
                                                         std::uint32_t blocks, iommu::Extent data,
                                                         std::uint64_t cookie) noexcept {
        const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
        if (bytes - 1 >= max_transfer_ || data.length.value() != bytes) [[unlikely]] {
            return refuse(bytes, data.length.value());
        }
        return transfer_contiguous(opcode, format, lba, blocks, data.address.value(), bytes, cookie);
    }

    [[nodiscard, gnu::always_inline]] Submitted transfer_contiguous(IoOpcode opcode, const BlockFormat& format, Lba lba,
                                                                    std::uint32_t blocks, std::uint64_t address,
                                                                    std::uint64_t bytes,
                                                                    std::uint64_t cookie) noexcept {
        Slot* const slot = take_slot(layout_.next);
        if (slot == nullptr) [[unlikely]] {
            return refuse(bytes, bytes);
        }
        std::uint64_t prp2 = 0;
        if ((address & page_mask_) != 0 || bytes > page_size_) {
            const PrpPair prps =
                build_contiguous_prps(address, bytes, {slot->list, &slot->list_address, list_pages_}, page_shift_);
            if (prps.refusal != Refusal::none) [[unlikely]] {
                const iommu::Extent data{DmaAddress{address}, ByteCount{bytes}};
                return transfer(opcode, format, lba, blocks, std::span{&data, 1}, cookie);
            }
            prp2 = prps.prp2;
        }
        return place(*slot, opcode, format, lba, blocks, address, prp2, cookie);
    }

    /// Commands submitted since the last ring().
    [[nodiscard]] std::uint32_t not_rung() const noexcept {
        const auto distance = static_cast<std::int32_t>(layout_.next - layout_.rung);
        return static_cast<std::uint32_t>(distance < 0 ? distance + static_cast<std::int32_t>(layout_.entries)
                                                       : distance);
    }
    void count_submitted() noexcept { outstanding_ += not_rung(); }

    // ---- off the hot path, in queue_pair.cpp
    /// A command's data pointer: two PRP entries or one SGL descriptor, and the flags that say which.
    struct DataPointer {
        std::uint64_t first = 0;
        std::uint64_t second = 0;
        std::uint8_t flags = 0;
        Refusal refusal = Refusal::none;
        std::uint32_t segment = 0;
    };
    template <class MakeNext>
    [[nodiscard]] DataPointer describe(const Slot& slot, std::uint64_t bytes, MakeNext&& make_next) const noexcept;
    Submitted place_described(Slot& slot, const DataPointer& pointer, IoOpcode opcode, const BlockFormat& format,
                              Lba lba, std::uint32_t blocks, std::uint64_t cookie) noexcept;
    [[nodiscard]] PrpListPages lists_of(const Slot& slot) const noexcept;
    [[nodiscard]] Slot* find_free_slot() noexcept;
    [[nodiscard]] Submitted refuse(std::uint64_t bytes, std::uint64_t described) const noexcept;
    [[nodiscard]] Submitted transfer_scattered(IoOpcode opcode, const BlockFormat& format, Lba lba,
                                               std::uint32_t blocks, const void* data, std::uint64_t cookie) noexcept;
    bool take_odd_completion(std::uint32_t dword3) noexcept;
    std::size_t end_after_reset(std::span<Completion> out) noexcept;
    std::size_t end_timed_out(std::span<Completion> out) noexcept;
    void note_deadlines(std::uint64_t time) noexcept;
    void drain() noexcept;
    void let_go() noexcept;

    QueueLayout layout_;
    const std::atomic<std::uint32_t>* owner_generation_ = nullptr;
    const memory::TranslationIndex::Slot* index_root_ = nullptr;
    Slot* slots_ = nullptr;
    std::uintptr_t slots_from_submission_ = 0; ///< from a submission entry to its slot, modulo 2^64
    std::uint64_t max_transfer_ = 0;           ///< 0 while dead, so that the one check refuses everything
    std::uint64_t pointer_limit_ = 0;          ///< the same for pointers: also 0 without a registry
    std::uint64_t page_mask_ = 0;
    std::uint64_t page_size_ = 0;
    std::uint32_t generation_ = 0;
    std::uint32_t slot_mask_ = 0;
    std::uint32_t cid_step_ = 0;    ///< added at each reuse, so that a repeated completion matches nothing
    std::uint32_t outstanding_ = 0; ///< of those that the controller has been told of
    std::uint32_t page_shift_ = 12;
    std::uint32_t list_pages_ = 0;
    SglSupport sgl_ = SglSupport::none;
    std::uint32_t polls_ = 0;
    std::uint32_t capacity_ = 0;
    std::uint32_t drain_remaining_ = 0;
    std::uint32_t reset_cursor_ = 0;
    std::uint64_t drain_epoch_ = 0;
    std::uint64_t timeout_ = 0;
    std::uint64_t next_scan_ = 0; ///< when deadlines are looked at again, in ns of the coarse clock
    std::uint64_t max_transfer_alive_ = 0;
    Counters counters_;
    Qid qid_;
    std::unique_ptr<QueueResources> resources_;
    std::unique_ptr<Slot[]> slot_memory_;
    std::shared_ptr<QueueOwner> owner_;
};

} // namespace upcie::nvme
