// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/queue_pair.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <upcie/os/system.hpp>

namespace upcie::nvme {

namespace {

constexpr std::uint64_t nanoseconds_per_second = 1'000'000'000;

/// A few milliseconds coarse, and the cheapest clock there is: deadlines are no finer.
std::uint64_t now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * nanoseconds_per_second + static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t positive(std::chrono::nanoseconds time) noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
}

} // namespace

QueuePair::QueuePair(QueueSetup setup)
    : layout_{setup.layout},
      owner_generation_{&setup.owner->generation()},
      generation_{setup.generation},
      page_shift_{setup.page_shift},
      list_pages_{setup.list_pages},
      sgl_{setup.sgl},
      capacity_{setup.layout.entries - 1},
      timeout_{positive(setup.timeout)},
      qid_{setup.qid},
      resources_{std::move(setup.resources)},
      owner_{std::move(setup.owner)} {
    // One slot fewer than entries: as many commands as the submission ring holds with one entry empty. It also keeps
    // the identifier 0xffff, which the specification sets aside (Base 2.0, section 3.3.3.1), from ever coming up.
    cid_step_ = std::bit_ceil(layout_.entries);
    slot_mask_ = cid_step_ - 1;
    slot_memory_ = std::make_unique<Slot[]>(cid_step_);
    slots_ = slot_memory_.get();
    slots_from_submission_ =
        reinterpret_cast<std::uintptr_t>(slots_) - reinterpret_cast<std::uintptr_t>(layout_.submission);
    for (std::uint32_t i = 0; i < cid_step_; ++i) {
        slots_[i].cid = static_cast<std::uint16_t>(i);
        slots_[i].free = i < capacity_ ? 1 : 0;
        slots_[i].marks = i < capacity_ ? 0 : unusable;
        slots_[i].index = i;
        if (i < capacity_ && list_pages_ != 0) {
            slots_[i].list = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(layout_.prp_lists) +
                                                              std::size_t{i} * layout_.prp_list_stride);
            slots_[i].list_address = resources_->list_addresses[std::size_t{i} * list_pages_];
        }
    }
    layout_.restart();
    page_size_ = std::uint64_t{1} << page_shift_;
    page_mask_ = page_size_ - 1;
    // 65536 blocks of 512 bytes is what a command can say at the smallest format.
    constexpr std::uint64_t block_limit = std::uint64_t{65536} << 9;
    max_transfer_alive_ = std::min({setup.max_transfer.value(), prp_capacity(list_pages_, page_shift_), block_limit});
    max_transfer_ = max_transfer_alive_;
    index_root_ = resources_->reader.index_root();
    pointer_limit_ = index_root_ != nullptr ? max_transfer_ : 0;
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

PrpListPages QueuePair::lists_of(const Slot& slot) const noexcept {
    return {slot.list, resources_->list_addresses.data() + std::size_t{slot.index} * list_pages_, list_pages_};
}

// The slot that goes with the ring's entry is still in flight, or there is none: any free one will do.
QueuePair::Slot* QueuePair::find_free_slot() noexcept {
    Slot* const end = slots_ + capacity_;
    Slot* const found = std::find_if(slots_, end, [](const Slot& slot) { return slot.free != 0; });
    return found == end ? nullptr : found;
}

Submitted QueuePair::refuse(std::uint64_t bytes, std::uint64_t described) const noexcept {
    if (!alive()) {
        return Submitted{Refusal::queue_dead};
    }
    if (bytes == 0) {
        return Submitted{Refusal::empty};
    }
    if (bytes > max_transfer_) {
        return Submitted{Refusal::too_long};
    }
    return Submitted{bytes != described ? Refusal::length_mismatch : Refusal::queue_full};
}

// PRPs where they will do; for what they cannot describe, an SGL where the controller takes one. `make_next()` answers
// a walk over the extents from the beginning.
template <class MakeNext>
QueuePair::DataPointer QueuePair::describe(const Slot& slot, std::uint64_t bytes, MakeNext&& make_next) const noexcept {
    const PrpPair prps = build_prps_from(make_next(), bytes, lists_of(slot), page_shift_);
    const bool beyond_prps = prps.refusal == Refusal::misaligned || prps.refusal == Refusal::segment_misaligned;
    if (!beyond_prps || sgl_ == SglSupport::none) {
        return {prps.prp1, prps.prp2, 0, prps.refusal, prps.segment};
    }
    const SglPointer sgl = build_sgl_from(make_next(), bytes, lists_of(slot), page_shift_, sgl_);
    DataPointer pointer{0, 0, psdt_sgl, sgl.refusal, sgl.segment};
    static_assert(sizeof sgl.first == sizeof pointer.first + sizeof pointer.second);
    std::memcpy(&pointer.first, &sgl.first, sizeof pointer.first);
    std::memcpy(&pointer.second, reinterpret_cast<const std::byte*>(&sgl.first) + sizeof pointer.first,
                sizeof pointer.second);
    return pointer;
}

Submitted QueuePair::place_described(Slot& slot, const DataPointer& pointer, IoOpcode opcode, const BlockFormat& format,
                                     Lba lba, std::uint32_t blocks, std::uint64_t cookie) noexcept {
    if (pointer.refusal != Refusal::none) {
        return Submitted{pointer.refusal, pointer.segment};
    }
    Command& entry = *layout_.next;
    const Submitted submitted = place(slot, opcode, format, lba, blocks, pointer.first, pointer.second, cookie);
    entry.flags = pointer.flags; // the controller has not been told of the entry yet
    return submitted;
}

// Everything about a pointer that the short way does not settle: refusals, several extents, odd pages.
Submitted QueuePair::transfer_scattered(IoOpcode opcode, const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                        const void* data, std::uint64_t cookie) noexcept {
    const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
    if (bytes - 1 >= max_transfer_) {
        return refuse(bytes, bytes);
    }
    Slot* const slot = take_slot(layout_.next);
    if (slot == nullptr) {
        return refuse(bytes, bytes);
    }
    Refusal refusal = Refusal::none;
    const auto from_the_beginning = [&] {
        return [this, &refusal, data, bytes, done = std::uint64_t{0}]() mutable -> iommu::Extent {
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
    };
    const DataPointer pointer = describe(*slot, bytes, from_the_beginning);
    if (refusal != Refusal::none) {
        return Submitted{refusal};
    }
    return place_described(*slot, pointer, opcode, format, lba, blocks, cookie);
}

Submitted QueuePair::transfer(IoOpcode opcode, const BlockFormat& format, Lba lba, std::uint32_t blocks,
                              std::span<const iommu::Extent> data, std::uint64_t cookie) noexcept {
    const std::uint64_t bytes = std::uint64_t{blocks} << format.block_shift;
    Slot* const slot = bytes - 1 < max_transfer_ ? take_slot(layout_.next) : nullptr;
    if (slot == nullptr) {
        return refuse(bytes, bytes);
    }
    const DataPointer pointer = describe(*slot, bytes, [data] { return walk_extents(data); });
    return place_described(*slot, pointer, opcode, format, lba, blocks, cookie);
}

Submitted QueuePair::submit(const Command& command, std::uint64_t cookie) noexcept {
    if (!alive()) {
        return Submitted{Refusal::queue_dead};
    }
    Slot* const slot = take_slot(layout_.next);
    if (slot == nullptr) {
        return Submitted{Refusal::queue_full};
    }
    const auto cid = static_cast<std::uint16_t>(slot->cid + cid_step_);
    set_in_flight(*slot, cid);
    slot->cookie = cookie;
    *layout_.next = command;
    layout_.next->cid = cid;
    layout_.advance_tail();
    return Submitted{Cid{cid}};
}

Submitted QueuePair::submit(const Command& command, std::span<const iommu::Extent> data, ByteCount bytes,
                            std::uint64_t cookie) noexcept {
    Command filled = command;
    filled.prp1 = 0;
    filled.prp2 = 0;
    if (bytes != ByteCount{}) {
        Slot* const slot = bytes.value() <= max_transfer_ ? take_slot(layout_.next) : nullptr;
        if (slot == nullptr) {
            return refuse(bytes.value(), bytes.value());
        }
        const DataPointer pointer = describe(*slot, bytes.value(), [data] { return walk_extents(data); });
        if (pointer.refusal != Refusal::none) {
            return Submitted{pointer.refusal, pointer.segment};
        }
        filled.prp1 = pointer.first;
        filled.prp2 = pointer.second;
        filled.flags = static_cast<std::uint8_t>((filled.flags & 0x3f) | pointer.flags);
    } else if (!data.empty()) {
        return Submitted{Refusal::length_mismatch};
    }
    return submit(filled, cookie); // takes the same slot
}

Submitted QueuePair::flush(Nsid nsid, std::uint64_t cookie) noexcept {
    Command command;
    command.opcode = static_cast<std::uint8_t>(IoOpcode::flush);
    command.nsid = nsid.value();
    return submit(command, cookie);
}

Submitted QueuePair::write_zeroes(const BlockFormat& format, Lba lba, std::uint32_t blocks,
                                  std::uint64_t cookie) noexcept {
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

// A completion whose slot does not hold just its CID. True: it ends a live command all the same.
bool QueuePair::take_odd_completion(std::uint32_t dword3) noexcept {
    Slot& slot = slots_[dword3 & slot_mask_];
    if (slot.free != 0 || (slot.marks & unusable) != 0 || slot.cid != static_cast<std::uint16_t>(dword3)) {
        ++counters_.stray;
        return false;
    }
    if ((slot.marks & draining) != 0) {
        --drain_remaining_;
    }
    if ((slot.marks & retired) != 0) {
        ++counters_.late;
        --outstanding_;
        slot.free = 1;
        return false;
    }
    return true;
}

// The controller was disabled since this queue was created: nothing will complete any more, and nothing is touched any
// more, so every command ends here and its identifier is free.
std::size_t QueuePair::end_after_reset(std::span<Completion> out) noexcept {
    max_transfer_ = 0;
    pointer_limit_ = 0;
    std::size_t count = 0;
    count_submitted(); // those that the controller never heard of end here too
    layout_.rung = layout_.next;
    for (; reset_cursor_ < capacity_ && count < out.size(); ++reset_cursor_) {
        Slot& slot = slots_[reset_cursor_];
        if (slot.free != 0) {
            continue;
        }
        if ((slot.marks & retired) == 0) { // a timed-out command was reported already
            out[count++] = Completion::without_answer(slot.cookie, Cid{slot.cid}, Outcome::reset);
        }
        slot.free = 1;
        --outstanding_;
    }
    if (outstanding_ == 0 && resources_->reader.behind()) {
        drain_epoch_ = 0;
        resources_->reader.announce(resources_->reader.epoch());
    }
    return count;
}

void QueuePair::set_timeout(std::chrono::nanoseconds timeout) noexcept {
    note_deadlines(now()); // what is in flight keeps the time that it was given
    timeout_ = positive(timeout);
    next_scan_ = 0;
}

bool QueuePair::set_command_timeout(Cid cid, std::chrono::nanoseconds timeout) noexcept {
    Slot& slot = slots_[cid.value() & slot_mask_];
    if (slot.free != 0 || (slot.marks & (unusable | retired)) != 0 || slot.cid != cid.value()) {
        return false;
    }
    slot.marks |= timed;
    slot.deadline = positive(timeout) == 0 ? never : now() + positive(timeout);
    next_scan_ = 0;
    return true;
}

// Gives every command in flight that has none a deadline, counted from `time`.
void QueuePair::note_deadlines(std::uint64_t time) noexcept {
    for (std::uint32_t i = 0; i < capacity_; ++i) {
        Slot& slot = slots_[i];
        if (slot.free == 0 && (slot.marks & timed) == 0) {
            slot.marks |= timed;
            slot.deadline = timeout_ == 0 ? never : time + timeout_;
        }
    }
}

// Deadlines cost the submission nothing: a command gets its own when it is first looked at here. Looks are timeout / 32
// apart, so few commands live to see one.
std::size_t QueuePair::end_timed_out(std::span<Completion> out) noexcept {
    if (outstanding_ == 0 || out.empty()) {
        return 0;
    }
    const std::uint64_t time = now();
    if (time < next_scan_) {
        return 0;
    }
    note_deadlines(time);
    std::size_t count = 0;
    next_scan_ = timeout_ == 0 ? never : time + timeout_ / 32;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
        Slot& slot = slots_[i];
        if (slot.free != 0 || (slot.marks & retired) != 0) {
            continue;
        }
        if (slot.deadline <= time && count < out.size()) {
            out[count++] = Completion::without_answer(slot.cookie, Cid{slot.cid}, Outcome::timed_out);
            slot.marks |= retired;
            ++counters_.timed_out;
        } else {
            next_scan_ = std::min(next_scan_, slot.deadline);
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
            if (slots_[i].free == 0) {
                slots_[i].marks |= draining;
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
        count += slots_[i].free == 0 && (slots_[i].marks & retired) != 0 ? 1 : 0;
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
    index_root_ = resources_->reader.index_root();
    pointer_limit_ = max_transfer_;
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
    layout_.restart();
    reset_cursor_ = 0;
    next_scan_ = 0;
    max_transfer_ = max_transfer_alive_;
    pointer_limit_ = index_root_ != nullptr ? max_transfer_ : 0;
    generation_ = *generation;
    return {};
}

} // namespace upcie::nvme
