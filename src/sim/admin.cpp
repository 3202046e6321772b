// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

constexpr nvme::Status invalid_opcode = generic(0x01);
constexpr nvme::Status prp_offset_invalid = generic(0x13);
constexpr nvme::Status invalid_namespace = generic(0x0b);
constexpr nvme::Status aborted_by_request = generic(0x07);
constexpr nvme::Status aborted_by_deletion = generic(0x08);
constexpr nvme::Status completion_queue_invalid = specific(0x00);
constexpr nvme::Status invalid_queue_identifier = specific(0x01);
constexpr nvme::Status invalid_queue_size = specific(0x02);
constexpr nvme::Status event_limit_exceeded = specific(0x05);
constexpr nvme::Status invalid_interrupt_vector = specific(0x08);
constexpr nvme::Status invalid_format = specific(0x0a);
constexpr nvme::Status invalid_queue_deletion = specific(0x0c);

} // namespace

Answer Engine::execute(const Command& command, std::uint16_t qid, const FaultRule* fault) {
    if ((command.flags & 3) != 0 || !data_pointer_offered(command, qid)) {
        return {invalid_field}; // noted by check_reserved()
    }
    return qid == 0 ? execute_admin(command) : execute_io(command, fault);
}

Answer Engine::execute_admin(const Command& command) {
    switch (static_cast<nvme::AdminOpcode>(command.opcode)) {
    case nvme::AdminOpcode::delete_submission_queue:
        return delete_submission_queue(command);
    case nvme::AdminOpcode::create_submission_queue:
        return create_submission_queue(command);
    case nvme::AdminOpcode::get_log_page:
        return get_log_page(command);
    case nvme::AdminOpcode::delete_completion_queue:
        return delete_completion_queue(command);
    case nvme::AdminOpcode::create_completion_queue:
        return create_completion_queue(command);
    case nvme::AdminOpcode::identify:
        return identify(command);
    case nvme::AdminOpcode::abort:
        return abort(command);
    case nvme::AdminOpcode::set_features:
        return set_features(command);
    case nvme::AdminOpcode::get_features:
        return get_features(command);
    case nvme::AdminOpcode::asynchronous_event_request:
        return await_event(command);
    case nvme::AdminOpcode::format_nvm:
        return format(command);
    default:
        return {invalid_opcode};
    }
}

// ---- queues (Base Specification 2.0, sections 5.4 to 5.7)

Answer Engine::create_completion_queue(const Command& command) {
    const auto qid = static_cast<std::uint16_t>(command.cdw10);
    const std::uint32_t entries = (command.cdw10 >> 16) + 1;
    const auto vector = static_cast<std::uint16_t>(command.cdw11 >> 16);
    const bool interrupts = (command.cdw11 & 2) != 0;
    if (qid == 0 || qid > granted_cqs_ || cqs_[qid].exists) {
        return {invalid_queue_identifier};
    }
    if (entries < 2 || entries > options_.mqes + 1U) {
        return {invalid_queue_size};
    }
    if ((command.cdw11 & 1) == 0) {
        violate(ViolationKind::queue_memory,
                fmt::format("completion queue {}: PC is 0 though CAP.CQR demands one piece", qid));
        return {invalid_field};
    }
    if ((command.prp1 & ((std::uint64_t{1} << page_shift_) - 1)) != 0) {
        violate(ViolationKind::queue_memory,
                fmt::format("completion queue {} at 0x{:x} begins inside a page", qid, command.prp1));
        return {prp_offset_invalid};
    }
    if (interrupts && vector >= std::max(1U, vector_count(options_))) {
        return {invalid_interrupt_vector};
    }
    if (((cc_ >> 20) & 15) != 4) {
        violate(ViolationKind::controller_setup,
                fmt::format("CC.IOCQES is {}, completion entries have 2^4 bytes", (cc_ >> 20) & 15));
        return {invalid_queue_size};
    }
    const std::string what = fmt::format("completion queue {}", qid);
    if (!check_ring(what, command.prp1, std::uint64_t{entries} * 16, iommu::Access::write)) {
        return {invalid_field};
    }
    check_zeroed(what, command.prp1, entries);
    CompletionQueue queue;
    queue.exists = true;
    queue.base = command.prp1;
    queue.entries = entries;
    queue.vector = vector;
    queue.interrupts = interrupts;
    cqs_[qid] = queue;
    return {};
}

Answer Engine::create_submission_queue(const Command& command) {
    const auto qid = static_cast<std::uint16_t>(command.cdw10);
    const std::uint32_t entries = (command.cdw10 >> 16) + 1;
    const auto cqid = static_cast<std::uint16_t>(command.cdw11 >> 16);
    if (qid == 0 || qid > granted_sqs_ || sqs_[qid].exists || cqid == 0 || cqid > granted_cqs_) {
        return {invalid_queue_identifier};
    }
    if (!cqs_[cqid].exists) {
        return {completion_queue_invalid};
    }
    if (entries < 2 || entries > options_.mqes + 1U) {
        return {invalid_queue_size};
    }
    if ((command.cdw11 & 1) == 0) {
        violate(ViolationKind::queue_memory,
                fmt::format("submission queue {}: PC is 0 though CAP.CQR demands one piece", qid));
        return {invalid_field};
    }
    if ((command.prp1 & ((std::uint64_t{1} << page_shift_) - 1)) != 0) {
        violate(ViolationKind::queue_memory,
                fmt::format("submission queue {} at 0x{:x} begins inside a page", qid, command.prp1));
        return {prp_offset_invalid};
    }
    if (((cc_ >> 16) & 15) != 6) {
        violate(ViolationKind::controller_setup,
                fmt::format("CC.IOSQES is {}, submission entries have 2^6 bytes", (cc_ >> 16) & 15));
        return {invalid_queue_size};
    }
    if (!check_ring(fmt::format("submission queue {}", qid), command.prp1, std::uint64_t{entries} * 64,
                    iommu::Access::read)) {
        return {invalid_field};
    }
    SubmissionQueue queue;
    queue.exists = true;
    queue.base = command.prp1;
    queue.entries = entries;
    queue.cqid = cqid;
    sqs_[qid] = queue;
    return {};
}

Answer Engine::delete_completion_queue(const Command& command) {
    const auto qid = static_cast<std::uint16_t>(command.cdw10);
    if (qid == 0 || qid >= cqs_.size() || !cqs_[qid].exists) {
        return {invalid_queue_identifier};
    }
    for (const SubmissionQueue& queue : sqs_) {
        if (queue.exists && queue.cqid == qid) {
            return {invalid_queue_deletion};
        }
    }
    cqs_[qid] = {};
    cqs_[qid].deleted = true;
    bar_->store(doorbell_offset(qid, true), 0);
    doorbells_[(doorbell_offset(qid, true) - reg::doorbells) / 4] = 0;
    return {};
}

Answer Engine::delete_submission_queue(const Command& command) {
    const auto qid = static_cast<std::uint16_t>(command.cdw10);
    if (qid == 0 || qid >= sqs_.size() || !sqs_[qid].exists) {
        return {invalid_queue_identifier};
    }
    // What it had fetched and not finished ends here, told or not (5.6: the host gets at most one completion for each).
    for (auto held = held_.begin(); held != held_.end();) {
        if (held->sqid != qid) {
            ++held;
            continue;
        }
        complete({qid, held->command.cid, qid, held->command.cid, aborted_by_deletion, 0, true, false});
        held = held_.erase(held);
    }
    post_all();
    CompletionQueue& completions = cqs_[sqs_[qid].cqid];
    std::erase_if(completions.waiting, [&](const Completion& waiting) { return waiting.sqid == qid; });
    sqs_[qid] = {};
    sqs_[qid].deleted = true;
    bar_->store(doorbell_offset(qid, false), 0);
    doorbells_[(doorbell_offset(qid, false) - reg::doorbells) / 4] = 0;
    return {};
}

// ---- abort (5.1): what a fault holds back can be aborted, all else is done already. Dword 0 bit 0: not aborted.
Answer Engine::abort(const Command& command) {
    const auto sqid = static_cast<std::uint16_t>(command.cdw10);
    const auto cid = static_cast<std::uint16_t>(command.cdw10 >> 16);
    const auto found = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
        return held.sqid == sqid && held.command.cid == cid && !held.answer;
    });
    if (found == held_.end()) {
        return {{}, 1};
    }
    const Command aborted = found->command;
    held_.erase(found);
    finish(sqid, aborted, {aborted_by_request});
    return {};
}

// ---- asynchronous events (5.2)

Answer Engine::await_event(const Command& command) {
    if (event_requests_.size() == max_event_requests) {
        return {event_limit_exceeded};
    }
    event_requests_.push_back(command);
    deliver_events();
    Answer answer;
    answer.later = true;
    return answer;
}

// A type that was told is silent until its log page has been read.
void Engine::deliver_events() {
    for (auto event = events_.begin(); event != events_.end() && !event_requests_.empty();) {
        if (masked_events_.test(event->type)) {
            ++event;
            continue;
        }
        const Command request = event_requests_.front();
        event_requests_.pop_front();
        Answer answer;
        answer.dword0 = event->type | (std::uint32_t{event->information} << 8) | (std::uint32_t{event->log_page} << 16);
        masked_events_.set(event->type);
        masked_by_[event->type] = event->log_page;
        event = events_.erase(event);
        finish(0, request, answer);
    }
}

// ---- format (5.14)
Answer Engine::format(const Command& command) {
    const std::uint32_t index = command.cdw10 & 15;
    const std::uint32_t erase = (command.cdw10 >> 9) & 7;
    if (command.nsid != ~0U && medium(command.nsid) == nullptr) {
        return {invalid_namespace};
    }
    if (index > 1) {
        return {invalid_format};
    }
    if (erase > 2 || (command.cdw10 & 0x1f0) != 0) { // no metadata, no protection information
        return {invalid_field};
    }
    for (std::uint32_t nsid = 1; nsid <= media_.size(); ++nsid) {
        if (command.nsid == nsid || command.nsid == ~0U) {
            media_[nsid - 1].format(index == 0 ? 512 : 4096);
        }
    }
    return {};
}

} // namespace upcie::sim
