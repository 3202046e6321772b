// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/queue_pair.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include <upcie/os/system.hpp>

namespace upcie::nvme {

QueuePair::QueuePair(QueueSetup setup)
    : layout_{setup.layout},
      owner_generation_{&setup.owner->generation()},
      generation_{setup.generation},
      page_shift_{setup.page_shift},
      list_pages_{setup.list_pages},
      capacity_{setup.layout.entries - 1},
      qid_{setup.qid},
      resources_{std::move(setup.resources)},
      owner_{std::move(setup.owner)} {
    // The slot mask is at least the number of entries less one, and a slot's index at most that less one: the
    // identifier 0xffff, which the specification sets aside (Base 2.0, section 3.3.3.1), never comes up.
    cid_step_ = std::bit_ceil(layout_.entries);
    slot_mask_ = cid_step_ - 1;
    slot_memory_ = std::make_unique<Slot[]>(cid_step_);
    free_memory_ = std::make_unique<std::uint16_t[]>(capacity_);
    slots_ = slot_memory_.get();
    free_ = free_memory_.get();
    list_addresses_ = resources_->list_addresses.data();
    // 65536 blocks of 512 bytes is what a command can say at the smallest format.
    constexpr std::uint64_t block_limit = std::uint64_t{65536} << 9;
    max_transfer_ = std::min({setup.max_transfer.value(), prp_capacity(list_pages_, page_shift_), block_limit});
    max_transfer_alive_ = max_transfer_;
    timeout_ = static_cast<std::uint64_t>(std::max<std::int64_t>(setup.timeout.count(), 0));
    free_all_cids();
}

QueuePair& QueuePair::operator=(QueuePair&& other) noexcept {
    if (this != &other) {
        let_go();
        std::destroy_at(this);
        std::construct_at(this, std::move(other));
    }
    return *this;
}

QueuePair::~QueuePair() {
    let_go();
}

void QueuePair::let_go() noexcept {
    if (resources_ != nullptr) {
        owner_->release(qid_, generation_, std::move(resources_));
    }
}

void QueuePair::free_all_cids() noexcept {
    for (std::uint32_t slot = 0; slot < capacity_; ++slot) {
        free_[capacity_ - 1 - slot] = static_cast<std::uint16_t>(slot);
        slots_[slot].state = 0;
    }
    free_count_ = capacity_;
}

void QueuePair::set_timeout(std::chrono::nanoseconds timeout) noexcept {
    timeout_ = static_cast<std::uint64_t>(std::max<std::int64_t>(timeout.count(), 0));
    begin_batch();
}

void QueuePair::begin_batch() noexcept {
    batch_deadline_ = timeout_ == 0 ? never : now() + timeout_;
    earliest_deadline_ = std::min(earliest_deadline_, batch_deadline_);
}

Submitted QueuePair::refuse(std::uint64_t bytes) const noexcept {
    if (!alive()) {
        return Submitted{Refusal::queue_dead};
    }
    if (bytes == 0) {
        return Submitted{Refusal::empty};
    }
    return Submitted{bytes > max_transfer_ ? Refusal::too_long : Refusal::queue_full};
}

Submitted QueuePair::refuse(Refusal refusal) const noexcept {
    if (refusal == Refusal::not_registered && !resources_->reader.attached()) {
        return Submitted{Refusal::no_registry};
    }
    return Submitted{refusal};
}

Submitted QueuePair::transfer_scattered(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                                        const void* data, std::uint64_t cookie) noexcept {
    const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
    std::uint64_t done = 0;
    Refusal refusal = Refusal::none;
    const auto next = [&]() -> iommu::Extent {
        if (done == bytes) {
            return {};
        }
        const memory::Resolution resolution =
            resources_->reader.resolve(static_cast<const std::byte*>(data) + done, ByteCount{bytes - done});
        if (!resolution) {
            refusal = resolution.refusal;
            return {};
        }
        done += resolution.extent.length.value();
        return resolution.extent;
    };
    const PrpPair prps = build_prps(next, bytes, lists_of(free_[free_count_ - 1] & slot_mask_), page_shift_);
    if (refusal != Refusal::none) {
        return refuse(refusal);
    }
    if (prps.refusal != Refusal::none) {
        return Submitted{prps.refusal, prps.segment};
    }
    return place(opcode, format, lba, blocks, prps, cookie);
}

Submitted QueuePair::transfer(IoOpcode opcode, BlockFormat format, Lba lba, std::uint32_t blocks,
                              std::span<const iommu::Extent> data, std::uint64_t cookie) noexcept {
    const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
    if (free_count_ == 0 || bytes - 1 >= max_transfer_) {
        return refuse(bytes);
    }
    const PrpPair prps = build_prps(data, bytes, lists_of(free_[free_count_ - 1] & slot_mask_), page_shift_);
    if (prps.refusal != Refusal::none) {
        return Submitted{prps.refusal, prps.segment};
    }
    return place(opcode, format, lba, blocks, prps, cookie);
}

Submitted QueuePair::submit(const Command& command, std::uint64_t cookie) noexcept {
    if (!alive()) {
        return Submitted{Refusal::queue_dead};
    }
    if (free_count_ == 0) {
        return Submitted{Refusal::queue_full};
    }
    const std::uint16_t cid = take_cid(cookie);
    Command& entry = layout_.next_submission();
    entry = command;
    entry.cid = cid;
    layout_.advance_tail();
    return Submitted{Cid{cid}};
}

Submitted QueuePair::submit(const Command& command, std::span<const iommu::Extent> data, ByteCount bytes,
                            std::uint64_t cookie) noexcept {
    Command filled = command;
    filled.prp1 = 0;
    filled.prp2 = 0;
    if (bytes != ByteCount{}) {
        if (free_count_ == 0 || bytes.value() > max_transfer_) {
            return refuse(bytes.value());
        }
        const PrpPair prps =
            build_prps(data, bytes.value(), lists_of(free_[free_count_ - 1] & slot_mask_), page_shift_);
        if (prps.refusal != Refusal::none) {
            return Submitted{prps.refusal, prps.segment};
        }
        filled.prp1 = prps.prp1;
        filled.prp2 = prps.prp2;
    } else if (!data.empty()) {
        return Submitted{Refusal::length_mismatch};
    }
    return submit(filled, cookie);
}

Submitted QueuePair::flush(Nsid nsid, std::uint64_t cookie) noexcept {
    Command command;
    command.opcode = static_cast<std::uint8_t>(IoOpcode::flush);
    command.nsid = nsid.value();
    return submit(command, cookie);
}

Submitted QueuePair::write_zeroes(BlockFormat format, Lba lba, std::uint32_t blocks, std::uint64_t cookie) noexcept {
    if (blocks == 0 || blocks > 65536) {
        return Submitted{blocks == 0 ? Refusal::empty : Refusal::too_long};
    }
    Command command;
    command.opcode = static_cast<std::uint8_t>(IoOpcode::write_zeroes);
    command.nsid = format.nsid.value();
    command.cdw10 = static_cast<std::uint32_t>(lba.value());
    command.cdw11 = static_cast<std::uint32_t>(lba.value() >> 32);
    command.cdw12 = blocks - 1;
    return submit(command, cookie);
}

// A completion whose slot is not just "this CID, in flight". True: it ends a live command all the same.
bool QueuePair::take_odd_completion(std::uint32_t dword3) noexcept {
    Slot& slot = slots_[dword3 & slot_mask_];
    const bool outstanding = (slot.state & in_flight) != 0 && (slot.state & 0xffffU) == (dword3 & 0xffffU);
    if (!outstanding) {
        ++counters_.stray;
        return false;
    }
    if ((slot.state & draining) != 0) {
        --drain_remaining_;
    }
    if ((slot.state & retired) != 0) {
        ++counters_.late;
        slot.state = 0;
        free_[free_count_++] = static_cast<std::uint16_t>(dword3 + cid_step_);
        return false;
    }
    return true;
}

// The controller was disabled since this queue was created: nothing will complete any more, and nothing is touched any
// more, so every command ends here and its identifier is free.
std::size_t QueuePair::end_after_reset(std::span<Completion> out) noexcept {
    max_transfer_ = 0;
    std::size_t count = 0;
    for (; reset_cursor_ < capacity_ && count < out.size(); ++reset_cursor_) {
        Slot& slot = slots_[reset_cursor_];
        if ((slot.state & in_flight) == 0) {
            continue;
        }
        const std::uint32_t cid = slot.state & 0xffffU;
        if ((slot.state & retired) == 0) { // a timed-out command was reported already
            out[count++] = {slot.cookie, 0, cid, Outcome::reset};
        }
        slot.state = 0;
        free_[free_count_++] = static_cast<std::uint16_t>(cid + cid_step_);
    }
    if (outstanding() == 0 && resources_->reader.behind()) {
        drain_epoch_ = 0;
        resources_->reader.announce(resources_->reader.epoch());
    }
    return count;
}

std::size_t QueuePair::end_timed_out(std::span<Completion> out) noexcept {
    if (earliest_deadline_ == never || out.empty()) {
        return 0;
    }
    const std::uint64_t time = now();
    if (time < earliest_deadline_) {
        return 0;
    }
    std::size_t count = 0;
    earliest_deadline_ = never;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
        Slot& slot = slots_[i];
        if ((slot.state & (in_flight | retired)) != in_flight) {
            continue;
        }
        if (slot.deadline <= time && count < out.size()) {
            out[count++] = {slot.cookie, 0, slot.state & 0xffffU, Outcome::timed_out};
            slot.state |= retired;
            ++counters_.timed_out;
        } else {
            earliest_deadline_ = std::min(earliest_deadline_, slot.deadline);
        }
    }
    return count;
}

// Registrations were removed. Marks what is in flight now; when the last of that has completed, the registry may unmap.
// A timed-out command counts until the controller answers it: it may still write.
void QueuePair::drain() noexcept {
    if (drain_epoch_ == 0) {
        drain_epoch_ = resources_->reader.epoch();
        drain_remaining_ = 0;
        for (std::uint32_t i = 0; i < capacity_; ++i) {
            if ((slots_[i].state & in_flight) != 0) {
                slots_[i].state |= draining;
                ++drain_remaining_;
            }
        }
    }
    if (drain_remaining_ == 0) {
        resources_->reader.announce(drain_epoch_);
        drain_epoch_ = 0;
    }
}

std::uint32_t QueuePair::timed_out_outstanding() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
        count += (slots_[i].state & retired) != 0 ? 1 : 0;
    }
    return count;
}

Result<bool> QueuePair::wait_for_interrupt(os::System& system, std::chrono::milliseconds timeout) {
    const std::string subject = fmt::format("queue {}", qid_.value());
    if (!resources_->interrupt) {
        return fail(ENOTSUP, "wait for interrupt", subject, "Create the queue with an interrupt vector, or poll it");
    }
    pollfd waiting{resources_->interrupt.get(), POLLIN, 0};
    const int ready = system.poll(&waiting, 1, static_cast<int>(timeout.count()));
    if (ready < 0) {
        return fail(errno, "poll", subject, "Call again after EINTR; anything else is a fault of this program");
    }
    if (ready == 0) {
        return false;
    }
    std::uint64_t fired = 0;
    if (system.read(resources_->interrupt.get(), &fired, sizeof fired) < 0 && errno != EAGAIN) {
        return fail(errno, "read eventfd", subject, "The descriptor was closed behind the queue's back");
    }
    return true;
}

Result<void> QueuePair::attach(memory::Registry& registry) {
    if (outstanding() != 0) {
        return fail(EBUSY, "attach registry", fmt::format("queue {}", qid_.value()),
                    "Poll until nothing is outstanding: commands in flight use memory of the present registry");
    }
    resources_->reader = registry.attach();
    drain_epoch_ = 0;
    return {};
}

Result<void> QueuePair::restart() {
    const std::string subject = fmt::format("queue {}", qid_.value());
    if (alive()) {
        return fail(EALREADY, "restart queue", subject, "The queue is alive: only a reset of the controller ends it");
    }
    if (outstanding() != 0) {
        return fail(EBUSY, "restart queue", subject, "Call poll() until nothing is outstanding");
    }
    std::memset(static_cast<void*>(layout_.completion), 0, std::size_t{layout_.entries} * sizeof(CompletionEntry));
    const auto generation = owner_->recreate(qid_, *resources_, layout_.entries);
    if (!generation) {
        return tl::unexpected{generation.error()};
    }
    layout_.tail = layout_.rung_tail = layout_.head = 0;
    layout_.phase = 1;
    reset_cursor_ = 0;
    earliest_deadline_ = never;
    max_transfer_ = max_transfer_alive_;
    generation_ = *generation;
    return {};
}

} // namespace upcie::nvme
