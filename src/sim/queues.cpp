// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <bit>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

// ---- doorbells (Base Specification 2.0, section 3.1.4; NVMe over PCIe Transport 1.0, section 3.1.2)

std::uint64_t Engine::doorbell_offset(std::uint16_t qid, bool completion) const noexcept {
    return reg::doorbells + (2 * std::uint64_t{qid} + (completion ? 1 : 0)) * (std::uint64_t{4} << options_.dstrd);
}

std::size_t Engine::watch_doorbells() {
    std::size_t work = 0;
    for (std::size_t qid = 0; qid < sqs_.size(); ++qid) {
        for (const bool completion : {true, false}) {
            const auto id = static_cast<std::uint16_t>(qid);
            const std::uint64_t offset = doorbell_offset(id, completion);
            const std::uint32_t value = bar_->load(offset);
            std::uint32_t& seen = doorbells_[(offset - reg::doorbells) / 4];
            if (value == seen) {
                continue;
            }
            seen = value;
            ++work;
            if (completion) {
                ring_completion(id, value);
            } else {
                ring_submission(id, value);
            }
        }
    }
    if (!options_.threaded || passes_++ % 64 == 0) {
        sweep_doorbells();
    }
    return work;
}

// Words of the doorbell pages that are no doorbells: behind the last queue, and between doorbells.
void Engine::sweep_doorbells() {
    const std::uint64_t stride = std::uint64_t{1} << options_.dstrd;
    const std::uint64_t used = 2 * sqs_.size() * stride;
    for (std::uint64_t word = 0; word < doorbell_words_; ++word) {
        if (word < used && word % stride == 0) {
            continue;
        }
        const std::uint32_t value = bar_->load(reg::doorbells + word * 4);
        if (value == 0) {
            continue;
        }
        bar_->store(reg::doorbells + word * 4, 0);
        violate(ViolationKind::doorbell_without_queue,
                fmt::format("0x{:x} written to BAR offset 0x{:x}, where no doorbell is (stride {}, queues 0 to {})",
                            value, reg::doorbells + word * 4, 4 * stride, sqs_.size() - 1));
        doorbell_error(0);
    }
}

// Asynchronous event of type error: 0 write to an invalid doorbell, 1 invalid value (figure 146).
void Engine::doorbell_error(std::uint8_t information) {
    if (working()) {
        events_.push_back({0, information, 1});
        deliver_events();
    }
}

/// What both kinds of doorbell demand, whatever the value means. False: it has no effect.
template <class Queue>
bool Engine::may_ring(const Queue& queue, std::uint16_t qid, const char* doorbell, std::uint32_t value) {
    if ((csts_ & bits::csts_fatal) != 0 && (cc_ & bits::cc_enable) != 0) {
        return false; // the host has not seen CSTS.CFS yet
    }
    if (!queue.exists || !working()) {
        const char* why = !working()      ? "the controller is not ready"
                          : queue.deleted ? "it was deleted"
                                          : "never created";
        violate(ViolationKind::doorbell_without_queue,
                fmt::format(fmt::runtime(doorbell), qid, value) + " though " + why);
        doorbell_error(0);
        return false;
    }
    if (value >= queue.entries) {
        violate(ViolationKind::doorbell_value, fmt::format(fmt::runtime(doorbell), qid, value) +
                                                   fmt::format(", the queue has {} entries", queue.entries));
        doorbell_error(1);
        return false;
    }
    return true;
}

void Engine::ring_submission(std::uint16_t qid, std::uint32_t value) {
    SubmissionQueue& queue = sqs_[qid];
    if (!may_ring(queue, qid, "submission queue {}: tail doorbell {}", value)) {
        return;
    }
    ++counters_.doorbells;
    // The host knows of consumed entries by completions only: it may fill up to the head that the newest one told.
    const std::uint32_t used = (queue.tail + queue.entries - queue.reported_head) % queue.entries;
    const std::uint32_t added = (value + queue.entries - queue.tail) % queue.entries;
    if (added > queue.entries - 1 - used) {
        violate(ViolationKind::doorbell_value,
                fmt::format("submission queue {}: tail doorbell {} passes the head {} last reported (tail was {}, {} "
                            "entries): commands are overwritten before they are known to be fetched",
                            qid, value, queue.reported_head, queue.tail, queue.entries));
        doorbell_error(1);
        return;
    }
    queue.tail = value;
}

void Engine::ring_completion(std::uint16_t qid, std::uint32_t value) {
    CompletionQueue& queue = cqs_[qid];
    if (!may_ring(queue, qid, "completion queue {}: head doorbell {}", value)) {
        return;
    }
    const std::uint32_t posted = (queue.tail + queue.entries - queue.head) % queue.entries;
    const std::uint32_t taken = (value + queue.entries - queue.head) % queue.entries;
    if (taken > posted) {
        violate(ViolationKind::doorbell_value,
                fmt::format("completion queue {}: head doorbell {} passes the tail {} (head was {}, {} entries)", qid,
                            value, queue.tail, queue.head, queue.entries));
        doorbell_error(1);
        return;
    }
    queue.head = value;
}

// ---- fetching

std::size_t Engine::fetch_all() {
    std::size_t work = 0;
    for (std::size_t qid = 0; qid < sqs_.size(); ++qid) {
        constexpr int burst = 32; // then the next queue's turn
        for (int i = 0; i < burst && working() && fetch(static_cast<std::uint16_t>(qid)); ++i) {
            ++work;
        }
    }
    return work;
}

bool Engine::fetch(std::uint16_t qid) {
    SubmissionQueue& queue = sqs_[qid];
    if (!queue.exists || queue.head == queue.tail) {
        return false;
    }
    if (!bus_master_) {
        if (!noted_no_master_) {
            violate(ViolationKind::dma_while_not_master,
                    fmt::format("submission queue {} has commands while bus mastering is off", qid));
            noted_no_master_ = true;
        }
        return false;
    }
    std::array<std::byte, sizeof(Command)> raw{};
    const auto fault = space_->read(DmaAddress{queue.base + std::uint64_t{queue.head} * sizeof(Command)}, raw);
    if (fault) {
        note(*fault, "fetching a command");
        fail_fatally();
        return false;
    }
    const auto command = std::bit_cast<Command>(raw);
    queue.head = (queue.head + 1) % queue.entries;
    ++counters_.commands;
    if ((csts_ & bits::csts_shutdown) != 0) {
        violate(ViolationKind::after_shutdown,
                fmt::format("queue {}: command {} (opcode 0x{:02x}) after shutdown", qid, command.cid, command.opcode));
        return true;
    }
    if (!queue.outstanding.insert(command.cid).second) {
        violate(ViolationKind::cid_in_use,
                fmt::format("queue {}: command identifier {} (opcode 0x{:02x}) is outstanding", qid, command.cid,
                            command.opcode));
        Completion conflict{qid, command.cid, qid, command.cid, generic(0x03), 0, false, false};
        complete(conflict);
        return true;
    }
    check_reserved(command, qid);
    begin(command, qid);
    return true;
}

// PRPs always, SGLs as Identify says, and over PCIe never of an admin command.
bool Engine::data_pointer_offered(const Command& command, std::uint16_t qid) const noexcept {
    const unsigned psdt = command.flags & 0xc0U;
    return psdt == 0 || (psdt == nvme::psdt_sgl && qid != 0 && options_.sgl != nvme::SglSupport::none);
}

void Engine::check_reserved(const Command& command, std::uint16_t qid) {
    const auto refuse = [&](const char* what, std::uint64_t value) {
        violate(ViolationKind::reserved_field, fmt::format("queue {}: command {} (opcode 0x{:02x}) has {} 0x{:x}", qid,
                                                           command.cid, command.opcode, what, value));
    };
    if ((command.flags & 3) != 0) {
        refuse("FUSE, which no feature here uses,", command.flags & 3U);
    }
    if ((command.flags & 0x3c) != 0) {
        refuse("reserved flags", command.flags);
    }
    if (!data_pointer_offered(command, qid)) {
        refuse("a PSDT that is not offered here,", static_cast<unsigned>(command.flags) >> 6);
    }
    if (command.cdw2 != 0 || command.cdw3 != 0) {
        refuse("reserved dwords 2 and 3", command.cdw2 | (std::uint64_t{command.cdw3} << 32));
    }
    if (command.mptr != 0) {
        refuse("a metadata pointer without metadata", command.mptr);
    }
}

void Engine::begin(const Command& command, std::uint16_t qid) {
    const FaultRule* const fault = faults_.on_command(command, qid);
    if (fault == nullptr) {
        finish(qid, command, execute(command, qid, nullptr));
        return;
    }
    switch (fault->action) {
    case FaultAction::fatal:
        fail_fatally();
        return;
    case FaultAction::gone:
        vanish();
        return;
    case FaultAction::late:
        held_.push_back({command, qid, std::nullopt, fault->count, now() + fault->delay});
        return;
    case FaultAction::reorder:
        held_.push_back({command, qid, execute(command, qid, nullptr), fault->count, now()});
        return;
    case FaultAction::lost:
        static_cast<void>(execute(command, qid, nullptr));
        return;
    case FaultAction::error: {
        const nvme::Status status{static_cast<nvme::StatusCodeType>(fault->status_type), fault->status_code,
                                  fault->do_not_retry};
        finish(qid, command, Answer{status});
        return;
    }
    case FaultAction::dropped:
        finish(qid, command, Answer{});
        return;
    default:
        finish(qid, command, execute(command, qid, fault), fault);
        return;
    }
}

// ---- ring memory

bool Engine::queue_memory_overlaps(std::uint64_t base, std::uint64_t bytes) const {
    const auto meets = [&](std::uint64_t other, std::uint64_t length) {
        return base < other + length && other < base + bytes;
    };
    for (const SubmissionQueue& queue : sqs_) {
        if (queue.exists && meets(queue.base, std::uint64_t{queue.entries} * 64)) {
            return true;
        }
    }
    for (const CompletionQueue& queue : cqs_) {
        if (queue.exists && meets(queue.base, std::uint64_t{queue.entries} * 16)) {
            return true;
        }
    }
    return false;
}

bool Engine::check_ring(const std::string& what, std::uint64_t base, std::uint64_t bytes, iommu::Access access) {
    const auto fault = space_->check(DmaAddress{base}, ByteCount{bytes}, access);
    if (fault) {
        violate(ViolationKind::queue_memory, fmt::format("{} at 0x{:x}, {} bytes: {} (a ring is one contiguous piece)",
                                                         what, base, bytes, fault->reason));
        return false;
    }
    if (queue_memory_overlaps(base, bytes)) {
        violate(ViolationKind::queue_memory,
                fmt::format("{} at 0x{:x}, {} bytes, lies over another queue's ring", what, base, bytes));
        return false;
    }
    return true;
}

// Freshly allocated rings must be zero, or old phase bits pass for completions (Base Specification 2.0, section 4.2.4).
void Engine::check_zeroed(const std::string& what, std::uint64_t base, std::uint32_t entries) {
    for (std::uint32_t i = 0; i < entries; ++i) {
        std::uint32_t dword3 = 0;
        const auto fault =
            space_->read(DmaAddress{base + std::uint64_t{i} * 16 + 12}, std::as_writable_bytes(std::span{&dword3, 1}));
        if (fault) {
            return; // write-only memory: nothing to see
        }
        if ((dword3 & 0x10000) != 0) {
            violate(ViolationKind::queue_not_zeroed,
                    fmt::format("{}: entry {} has its phase bit set already", what, i));
            return;
        }
    }
}

} // namespace upcie::sim
