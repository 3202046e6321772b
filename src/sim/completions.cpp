// SPDX-License-Identifier: BSD-3-Clause
// How commands end: completions made, held back by faults, written into the rings, signalled.
#include <array>
#include <cstring>

#include "sim/engine.hpp"

namespace upcie::sim {

std::uint16_t Engine::unused_cid(const SubmissionQueue& queue, std::uint16_t near) const {
    auto cid = static_cast<std::uint16_t>(near ^ 0x8000U);
    while (queue.outstanding.count(cid) != 0) {
        ++cid;
    }
    return cid;
}

void Engine::finish(std::uint16_t qid, const Command& command, const Answer& answer, const FaultRule* fault) {
    if (answer.later) {
        return;
    }
    if (!answer.status.ok()) {
        log_error(qid, command, answer.status);
    }
    Completion completion{qid, command.cid, qid, command.cid, answer.status, answer.dword0, true, false};
    const FaultAction action = fault == nullptr ? FaultAction::lost : fault->action; // lost never comes here
    if (action == FaultAction::stray || action == FaultAction::bad_cid) {
        Completion wrong = completion;
        wrong.shown_cid = fault->cid ? *fault->cid : unused_cid(sqs_[qid], command.cid);
        wrong.frees_cid = false;
        complete(wrong);
        if (action == FaultAction::bad_cid) {
            return; // its own never comes
        }
    }
    completion.wrong_phase = action == FaultAction::phase;
    if (action == FaultAction::bad_sqid) {
        completion.shown_sqid = static_cast<std::uint16_t>(qid + 1);
    }
    complete(completion);
    if (action == FaultAction::duplicate) {
        completion.frees_cid = false;
        complete(completion);
    }
    count_down(qid);
}

void Engine::complete(Completion completion) {
    cqs_[sqs_[completion.sqid].cqid].waiting.push_back(completion);
}

// A completion of `qid` was made: commands held back for such may be due.
void Engine::count_down(std::uint16_t qid) {
    for (Held& held : held_) {
        if (held.sqid == qid && held.remaining != 0 && --held.remaining == 0) {
            held.due = now();
        }
    }
}

std::size_t Engine::release_due() {
    std::size_t work = 0;
    for (std::size_t i = 0; i < held_.size();) {
        if (held_[i].remaining != 0 || now() < held_[i].due) {
            ++i;
            continue;
        }
        const Held held = held_[i];
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
        finish(held.sqid, held.command, held.answer ? *held.answer : execute(held.command, held.sqid, nullptr));
        ++work;
        i = 0; // a queue that was deleted just now took others along
    }
    return work;
}

std::size_t Engine::post_all() {
    std::size_t work = 0;
    for (CompletionQueue& queue : cqs_) {
        while (!queue.waiting.empty() && (queue.tail + 1) % queue.entries != queue.head) {
            if (!post(queue, queue.waiting.front())) {
                return work;
            }
            queue.waiting.pop_front();
            ++work;
        }
    }
    return work;
}

bool Engine::post(CompletionQueue& queue, const Completion& completion) {
    nvme::CompletionEntry entry;
    SubmissionQueue& submission = sqs_[completion.sqid];
    entry.result_low = completion.dword0;
    entry.submission_head = static_cast<std::uint16_t>(submission.head);
    entry.submission_queue = completion.shown_sqid;
    const std::uint32_t phase = completion.wrong_phase ? queue.phase ^ 1U : queue.phase;
    const std::uint32_t dword3 =
        completion.shown_cid | (phase << 16) | (static_cast<std::uint32_t>(completion.status.raw()) << 17);
    const DmaAddress address{queue.base + std::uint64_t{queue.tail} * sizeof entry};
    std::array<std::byte, 12> body{};
    std::memcpy(body.data(), &entry, body.size());
    auto fault = space_->write(address, body);
    if (!fault) {
        fault = space_->store_release(address + ByteCount{body.size()}, dword3);
    }
    if (fault) {
        note(*fault, "writing a completion");
        fail_fatally();
        return false;
    }
    if (completion.frees_cid) {
        submission.outstanding.erase(completion.cid);
    }
    submission.reported_head = submission.head;
    ++queue.tail;
    if (queue.tail == queue.entries) {
        queue.tail = 0;
        queue.phase ^= 1U;
    }
    ++counters_.completions;
    queue.signal = true;
    return true;
}

void Engine::signal_all() {
    for (CompletionQueue& queue : cqs_) {
        if (!queue.signal) {
            continue;
        }
        queue.signal = false;
        if (queue.interrupts && queue.vector < eventfds_.size() && eventfds_[queue.vector]) {
            const std::uint64_t one = 1;
            if (system_.write(eventfds_[queue.vector].get(), &one, sizeof one) == sizeof one) {
                ++counters_.interrupts;
            }
        }
    }
}

} // namespace upcie::sim
