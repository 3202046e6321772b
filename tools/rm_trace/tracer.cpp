// SPDX-License-Identifier: BSD-3-Clause
// The loop: what stopped, why, and what lets it go on.
#include "tracer.hpp"

#include <cerrno>
#include <csignal>
#include <utility>

#include <linux/audit.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "filter.hpp"
#include "proc_status.hpp"
#include "stop_requests.hpp"

namespace upcie::rm {

namespace {

constexpr int call_stop = SIGTRAP | 0x80; // PTRACE_O_TRACESYSGOOD

#if defined(__x86_64__)
constexpr std::uint32_t native_architecture = AUDIT_ARCH_X86_64;
constexpr std::uint64_t x32_bit = 0x40000000;
#else
constexpr std::uint32_t native_architecture = AUDIT_ARCH_AARCH64;
constexpr std::uint64_t x32_bit = 0;
#endif

/// What the kernel gives itself when a signal ends a call that may start again (include/linux/errno.h).
bool may_start_again(std::int64_t value) noexcept {
    constexpr std::int64_t restart_by_signal_action = -512;
    constexpr std::int64_t restart_without_handler = -514;
    constexpr std::int64_t restart_by_block = -516;
    return (value <= restart_by_signal_action && value >= restart_without_handler) || value == restart_by_block;
}

bool stops_group(int signal) noexcept {
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

} // namespace

std::uint64_t Tracer::ptrace_options() const noexcept {
    std::uint64_t options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    if (!options_.command.empty()) {
        options |= PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP;
    }
    return options;
}

bool Tracer::stops_everywhere(const Task& task) const noexcept {
    return options_.every_call || options_.command.empty() || is_watching(task);
}

void Tracer::resume(Task& task, int signal) {
    // Once an entry was seen as a stop of its own, the return has to be, too: what comes in between depends on it.
    // So is one whose call was interrupted: the return of the handler says whether it starts again.
    const bool at_every = task.pending || task.inside_call || !task.interrupted.empty() || stops_everywhere(task);
    // A thread that was killed meanwhile is no error: its end is the next thing that is heard of it.
    (void)::ptrace(at_every ? PTRACE_SYSCALL : PTRACE_CONT, task.tid, nullptr, static_cast<long>(signal));
}

Result<int> Tracer::run() {
    if (auto started = options_.command.empty() ? attach() : start(); !started) {
        return tl::unexpected{started.error()};
    }
    {
        const StopRequests requests{options_.command.empty() ? 0 : main_};
        loop(requests);
    }
    if (launched_ && !running_) {
        const LaunchFailure reason = launch_failure(*launched_);
        if (reason.error != 0) {
            const bool filter = reason.stage == LaunchFailure::Stage::filter;
            return fail(reason.error, filter ? "seccomp" : "execvp", options_.command.front(),
                        filter ? "This kernel or container allows no seccomp filter: use --every-call."
                        : reason.error == ENOENT
                            ? "There is no such program: give its path, or one that PATH leads to."
                            : "It cannot be run: is it a program for this machine, and may this user execute it?");
        }
    }
    return exit_status_;
}

void Tracer::loop(const StopRequests& requests) {
    sink_.flush();
    while (!tasks_.empty() || !unclaimed_.empty()) {
        if (requests.asked() && !letting_go_) {
            let_go();
        }
        int status = 0;
        const pid_t tid = ::waitpid(-1, &status, __WALL);
        if (tid < 0) {
            if (errno == EINTR) {
                continue;
            }
            break; // ECHILD: nothing is left
        }
        handle(tid, status);
        sink_.flush(); // behind resume(): the thread runs while its call is written
    }
}

void Tracer::handle(pid_t tid, int status) {
    if (!WIFSTOPPED(status)) {
        handle_end(tid, status);
        return;
    }
    const auto found = tasks_.find(tid);
    if (found != tasks_.end()) {
        handle_stop(found->second, status);
    } else if (letting_go_) {
        (void)::ptrace(PTRACE_DETACH, tid, nullptr, 0L);
    } else {
        unclaimed_[tid] = status; // its maker's stop comes a little later
    }
}

void Tracer::handle_end(pid_t tid, int status) {
    unclaimed_.erase(tid);
    const auto found = tasks_.find(tid);
    if (found == tasks_.end()) {
        return;
    }
    Task& task = found->second;
    calls_.end_unfinished(task);
    const bool by_signal = WIFSIGNALED(status);
    const int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    if (running_) {
        calls_.emit_now(task, ExitRecord{by_signal, number, tid == task.process->pid});
    }
    if (tid == main_) {
        exit_status_ = by_signal ? 128 + number : number;
    }
    nodes_.forget(); // the number will be another thread's
    tasks_.erase(found);
    release_unclaimed();
}

void Tracer::handle_stop(Task& task, int status) {
    const int signal = WSTOPSIG(status);
    const int event = status >> 16;
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
        ++event_stops_["birth"];
        at_birth(task, event);
        return;
    }
    if (letting_go_) {
        let_go_of(task, event == 0 && signal != call_stop ? signal : 0);
        return;
    }
    switch (event) {
    case PTRACE_EVENT_SECCOMP:
        at_call(task, true);
        return;
    case PTRACE_EVENT_EXEC:
        ++event_stops_["exec"];
        at_exec(task);
        resume(task);
        return;
    case PTRACE_EVENT_STOP:
        if (stops_group(signal)) {
            ++event_stops_["group-stop"];
            (void)::ptrace(PTRACE_LISTEN, task.tid, nullptr, nullptr);
            return;
        }
        ++event_stops_["birth"];
        resume(task);
        return;
    default:
        break;
    }
    if (signal == call_stop) {
        at_call(task, false);
        return;
    }
    ++event_stops_["signal"];
    resume(task, signal);
}

void Tracer::at_call(Task& task, bool from_filter) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, task.tid, sizeof info, &info) <= 0) {
        return; // killed meanwhile
    }
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
        at_return(task, info);
    } else if (from_filter && task.inside_call) {
        ++event_stops_["filter-again"]; // the same entry was a stop before
    } else if (info.op == PTRACE_SYSCALL_INFO_ENTRY || info.op == PTRACE_SYSCALL_INFO_SECCOMP) {
        task.inside_call = !from_filter;
        at_entry(task, info);
    }
    resume(task);
}

void Tracer::at_entry(Task& task, const __ptrace_syscall_info& info) {
    // The layout of both is the same up to what the filter says.
    const std::uint64_t number = info.entry.nr;
    if (info.arch != native_architecture || (x32_bit != 0 && (number & x32_bit) != 0)) {
        at_foreign_call(task, info);
        return;
    }
    const SystemCall* const call = find_system_call(number);
    ++call_stops_[call];
    if (!running_) {
        return;
    }
    PendingCall entered;
    entered.call = call;
    for (std::size_t i = 0; i < entered.arguments.size(); ++i) {
        entered.arguments[i] = info.entry.args[i];
    }
    entered.instruction = info.instruction_pointer;
    entered.stack = info.stack_pointer;
    entered.time_in = monotonic_now();
    if (number == SYS_rt_sigreturn) {
        task.returning_from_handler = true;
        return;
    }
    if (starts_again(task, entered)) {
        return;
    }
    if (is_watching(task)) {
        calls_.count_watched(task);
    }
    if (call != nullptr) {
        (void)calls_.enter(task, std::move(entered));
    }
}

bool Tracer::starts_again(Task& task, const PendingCall& entered) {
    while (!task.interrupted.empty()) {
        PendingCall& before = task.interrupted.back();
        const bool same = before.call == entered.call && before.arguments == entered.arguments &&
                          before.instruction == entered.instruction;
        const bool by_block = entered.call != nullptr && entered.call->kind == CallKind::restart;
        if (before.stack == entered.stack && (same || by_block)) {
            task.pending = std::move(before);
            task.interrupted.pop_back();
            ++task.pending->restarts;
            return true;
        }
        if (entered.stack < before.stack) {
            return false; // further down the stack: a call of the handler
        }
        calls_.end_interrupted(task); // the handler did not return to it
    }
    return false;
}

void Tracer::at_return(Task& task, const __ptrace_syscall_info& info) {
    task.inside_call = false;
    if (std::exchange(task.returning_from_handler, false)) {
        // What the interrupted call answers is restored now: EINTR, or what makes it start again.
        ++call_stops_[nullptr];
        if (!task.interrupted.empty() && task.interrupted.back().stack == info.stack_pointer &&
            info.exit.rval == -EINTR) {
            calls_.end_interrupted(task);
        }
        return;
    }
    if (!task.pending) {
        ++call_stops_[nullptr];
        return;
    }
    ++call_stops_[task.pending->call];
    const std::int64_t value = info.exit.rval;
    Outcome outcome;
    if (may_start_again(value)) {
        outcome = {Outcome::Kind::interrupted, -1, EINTR};
    } else {
        outcome.value = info.exit.is_error != 0 ? -1 : value;
        outcome.error = info.exit.is_error != 0 ? static_cast<int>(-value) : 0;
    }
    calls_.leave(task, outcome);
}

std::vector<SummaryRecord::Count> Tracer::stops() const {
    std::map<std::string_view, std::uint64_t> all = event_stops_;
    for (const auto& [call, count] : call_stops_) {
        all[call != nullptr ? call->name : "other"] += count;
    }
    std::vector<SummaryRecord::Count> counts;
    for (const auto& [kind, count] : all) {
        counts.push_back({std::string{kind}, count});
    }
    return counts;
}

} // namespace upcie::rm
