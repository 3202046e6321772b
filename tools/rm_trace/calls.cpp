// SPDX-License-Identifier: BSD-3-Clause
// Which of the parts looks at a call, and the writing of what they made.
#include "calls.hpp"

#include <algorithm>
#include <cerrno>

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace upcie::rm {

namespace {

/// prctl and seccomp do other things, too.
bool installs_filter(const PendingCall& call) {
    return call.call->number == SYS_prctl ? call.arguments[0] == PR_SET_SECCOMP
                                          : call.arguments[0] <= SECCOMP_SET_MODE_FILTER;
}

} // namespace

bool Calls::enter(Task& task, PendingCall call) {
    call.entered = sink_.next_sequence();
    bool wanted = false;
    switch (call.call->kind) {
    case CallKind::ioctl:
        wanted = enter_ioctl(task, call);
        break;
    case CallKind::open:
        wanted = enter_open(task, call);
        break;
    case CallKind::stat_path:
    case CallKind::stat_descriptor:
    case CallKind::access:
    case CallKind::read_link:
    case CallKind::make_node:
        wanted = enter_stat(task, call);
        break;
    case CallKind::read:
        wanted = enter_read(task, call);
        break;
    case CallKind::close:
        wanted = enter_close(task, call);
        break;
    case CallKind::close_range:
        wanted = enter_close_range(task, call);
        break;
    case CallKind::duplicate:
    case CallKind::fcntl:
        wanted = enter_duplicate(task, call);
        break;
    case CallKind::send_message:
    case CallKind::receive_message:
        wanted = enter_message(task, call);
        break;
    case CallKind::take_descriptor:
        wanted = true;
        break;
    case CallKind::poll:
        wanted = enter_poll(task, call);
        break;
    case CallKind::epoll_control:
        wanted = enter_epoll(task, call);
        break;
    case CallKind::map:
    case CallKind::unmap:
    case CallKind::remap:
        wanted = enter_mapping(task, call);
        break;
    case CallKind::protect_self:
        if (!installs_filter(call)) {
            break;
        }
        note(task, "own-filter",
             "the program installs a seccomp filter of its own: calls that it refuses or answers are not seen here "
             "(--every-call sees them)");
        break;
    case CallKind::ring:
        nodes_.remember_nothing();
        note(task, "io-uring", "the program uses io_uring: files that it opens and closes that way are not seen");
        break;
    case CallKind::leave:
        record_memory(task, 0);
        break;
    case CallKind::restart:
    case CallKind::none:
        break;
    }
    if (wanted) {
        task.pending = std::move(call);
    }
    return wanted;
}

void Calls::leave(Task& task, const Outcome& outcome) {
    PendingCall& call = *task.pending;
    call.outcome = outcome;
    call.time_out = monotonic_now();
    switch (call.call->kind) {
    case CallKind::ioctl:
        leave_ioctl(task, call);
        break;
    case CallKind::open:
        leave_open(task, call);
        break;
    case CallKind::stat_path:
    case CallKind::stat_descriptor:
    case CallKind::read_link:
        leave_stat(task, call);
        break;
    case CallKind::read:
        leave_read(task, call);
        break;
    case CallKind::receive_message:
        leave_message(task, call);
        break;
    case CallKind::take_descriptor:
        leave_taken(task, call);
        break;
    case CallKind::poll:
        leave_poll(task, call);
        break;
    case CallKind::map:
    case CallKind::unmap:
    case CallKind::remap:
        leave_mapping(task, call);
        break;
    default:
        break;
    }
    if (outcome.kind == Outcome::Kind::interrupted) {
        task.interrupted.push_back(std::move(call));
    } else {
        write(task, call);
    }
    task.pending.reset();
}

void Calls::end_interrupted(Task& task) {
    PendingCall call = std::move(task.interrupted.back());
    task.interrupted.pop_back();
    leave_out_uninteresting(task, call);
    write(task, call);
}

void Calls::end_unfinished(Task& task) {
    while (!task.interrupted.empty()) {
        end_interrupted(task);
    }
    if (task.pending) {
        PendingCall call = std::move(*task.pending);
        task.pending.reset();
        call.outcome = {Outcome::Kind::unfinished, 0, 0};
        call.time_out = monotonic_now();
        leave_out_uninteresting(task, call);
        write(task, call);
    }
}

void Calls::leave_out_uninteresting(const Task& task, PendingCall& call) const {
    if (const auto* open = call.bodies.empty() ? nullptr : std::get_if<OpenRecord>(&call.bodies.front())) {
        const std::string path = whole_path(task, call, open->path);
        if (interest_in(path) == Interest::none && !nodes_.is_pretended(path)) {
            call.bodies.clear();
        }
    }
}

void Calls::write(Task& task, PendingCall& call) {
    std::uint64_t sequence = 0;
    bool of_node = false;
    for (Body& body : call.bodies) {
        Record record;
        std::visit(
            [&](auto& one) {
                if constexpr (requires { one.outcome; }) {
                    one.outcome = call.outcome;
                }
            },
            body);
        if (auto* close = std::get_if<CloseRecord>(&body); close != nullptr && close->outcome.succeeded()) {
            close->outcome.value = 0; // dup2 answers the descriptor
        }
        if (std::holds_alternative<CloseRecord>(body)) {
            nodes_.forget(); // another thread may have used it since the entry
        }
        if (auto* ioctl = std::get_if<IoctlRecord>(&body)) {
            ioctl->restarts = call.restarts;
            of_node = true;
        }
        of_node = of_node || std::holds_alternative<PollRecord>(body);
        record.stamp.entered = call.entered;
        record.stamp.pid = task.process->pid;
        record.stamp.tid = task.tid;
        record.stamp.time_in = call.time_in;
        record.stamp.time_out = call.time_out;
        record.body = std::move(body);
        sequence = sink_.emit(std::move(record));
    }
    if (of_node && call.outcome.kind == Outcome::Kind::returned) {
        record_memory(task, sequence);
    }
}

std::uint64_t Calls::emit_now(const Task& task, Body body) {
    Record record;
    record.stamp.entered = sink_.next_sequence();
    record.stamp.pid = task.process->pid;
    record.stamp.tid = task.tid;
    record.stamp.time_in = record.stamp.time_out = monotonic_now();
    record.body = std::move(body);
    return sink_.emit(std::move(record));
}

void Calls::note(const Task& task, std::string subject, std::string text) {
    emit_now(task, NoteRecord{std::move(subject), std::move(text)});
}

bool is_watching(const Task& task) noexcept {
    const auto& watched = task.process->watched;
    return std::any_of(watched.begin(), watched.end(), [&](const WatchedFile& one) { return one.tid == task.tid; });
}

} // namespace upcie::rm
