// SPDX-License-Identifier: BSD-3-Clause
// Threads and processes: how they come to be traced, and how they are let go.
#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc_status.hpp"
#include "tracer.hpp"

namespace upcie::rm {

namespace {

bool share_memory(pid_t a, pid_t b) {
    constexpr int compare_memory = 1; // KCMP_VM of linux/kcmp.h
    return ::syscall(SYS_kcmp, a, b, compare_memory, 0, 0) == 0;
}

std::shared_ptr<AddressSpace> copy_of(const AddressSpace& space) {
    auto copy = std::make_shared<AddressSpace>();
    for (const auto& [start, mapping] : space.mappings) {
        copy->mappings.emplace(
            start, NodeMapping{mapping.length, mapping.node, mapping.offset, mapping.protection, {}, false});
    }
    return copy;
}

} // namespace

Task& Tracer::add_task(pid_t tid, std::shared_ptr<Process> process) {
    Task& task = tasks_[tid];
    task.tid = tid;
    task.process = std::move(process);
    return task;
}

std::shared_ptr<Process> Tracer::make_process(pid_t pid, std::shared_ptr<AddressSpace> space) {
    auto process = std::make_shared<Process>();
    process->pid = pid;
    process->space = std::move(space);
    return process;
}

Result<void> Tracer::start() {
    LaunchOptions options;
    options.command = options_.command;
    options.filter = !options_.every_call;
    options.memory = options_.memory;
    options.ptrace_options = ptrace_options();
    auto launched = launch(system_, options);
    if (!launched) {
        return tl::unexpected{launched.error()};
    }
    launched_ = std::move(*launched);
    main_ = launched_->pid;
    add_task(main_, make_process(main_, std::make_shared<AddressSpace>()));
    return {};
}

Result<void> Tracer::attach() {
    main_ = options_.pid;
    running_ = true;
    const auto process = make_process(process_id_of(main_).value_or(main_), std::make_shared<AddressSpace>());
    main_ = process->pid;
    // A thread may make another while the list is read: until nothing new is in it.
    for (bool more = true; more;) {
        more = false;
        const auto threads = threads_of(main_);
        if (threads.empty()) {
            return fail(ESRCH, "PTRACE_SEIZE", fmt::format("process {}", options_.pid), "There is no such process.");
        }
        for (const pid_t tid : threads) {
            if (tasks_.contains(tid)) {
                continue;
            }
            if (::ptrace(PTRACE_SEIZE, tid, nullptr, ptrace_options()) != 0) {
                if (errno == ESRCH && tid != main_) {
                    continue; // it has ended since
                }
                return fail(errno, "PTRACE_SEIZE", fmt::format("process {}", options_.pid),
                            "Only one's own processes may be attached to, by one tracer at a time; "
                            "/proc/sys/kernel/yama/ptrace_scope may keep it to root.");
            }
            (void)::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
            add_task(tid, process);
            more = true;
        }
    }
    for (auto& [address, mapping] : mapped_nodes(main_, nodes_)) {
        process->space->add(address, std::move(mapping));
    }
    calls_.emit_now(tasks_.at(main_), BirthRecord{"attach", 0, nodes_.held(main_)});
    for (const auto& [tid, task] : tasks_) {
        if (tid != main_) {
            calls_.emit_now(task, BirthRecord{"attach", 0, {}});
        }
    }
    return {};
}

void Tracer::at_birth(Task& parent, int event) {
    unsigned long message = 0;
    const pid_t maker = parent.tid;
    if (::ptrace(PTRACE_GETEVENTMSG, maker, nullptr, &message) == 0 && message != 0) {
        const auto tid = static_cast<pid_t>(message);
        if (!tasks_.contains(tid)) {
            const auto process = parent.process;
            const bool is_thread = event == PTRACE_EVENT_CLONE && process_id_of(tid) == process->pid;
            BirthRecord record;
            record.parent = maker;
            if (is_thread) {
                record.how = "thread";
                add_task(tid, process);
            } else {
                const bool shares =
                    event == PTRACE_EVENT_VFORK || (event == PTRACE_EVENT_CLONE && share_memory(maker, tid));
                record.how = event == PTRACE_EVENT_FORK ? "fork" : event == PTRACE_EVENT_VFORK ? "vfork" : "clone";
                record.nodes = nodes_.held(tid);
                add_task(tid, make_process(tid, shares ? process->space : copy_of(*process->space)));
            }
            if (running_) {
                calls_.emit_now(tasks_.at(tid), std::move(record));
            }
        }
        if (const auto waiting = unclaimed_.find(tid); waiting != unclaimed_.end()) {
            const int status = waiting->second;
            unclaimed_.erase(waiting);
            handle_stop(tasks_.at(tid), status);
        }
    }
    const auto again = tasks_.find(maker);
    if (again == tasks_.end()) {
        return;
    }
    if (letting_go_) {
        let_go_of(again->second, 0);
    } else {
        resume(again->second);
    }
}

void Tracer::at_exec(Task& task) {
    unsigned long message = 0;
    (void)::ptrace(PTRACE_GETEVENTMSG, task.tid, nullptr, &message);
    const auto former = static_cast<pid_t>(message);
    // The others of the process are gone, the one that called it has taken the first one's number.
    calls_.end_unfinished(task);
    task.inside_call = false;
    if (former != 0 && former != task.tid) {
        if (const auto caller = tasks_.find(former); caller != tasks_.end()) {
            calls_.end_unfinished(caller->second);
            tasks_.erase(caller);
        }
    }
    nodes_.forget();
    task.process->watched.clear();
    task.process->space = std::make_shared<AddressSpace>();
    if (!running_) {
        running_ = true;
        calls_.emit_now(task, BirthRecord{"start", 0, nodes_.held(task.tid)});
    }
    ExecRecord record;
    record.program = link_target(fmt::format("/proc/{}/exe", task.tid));
    record.arguments = command_line_of(task.tid);
    record.former_tid = former == task.tid ? 0 : former;
    record.nodes = nodes_.held(task.tid);
    calls_.emit_now(task, std::move(record));
    release_unclaimed();
}

void Tracer::release_unclaimed() {
    // Whoever made them may have died before its stop was seen: then nobody will ever claim them.
    for (auto waiting = unclaimed_.begin(); waiting != unclaimed_.end();) {
        const auto [tid, status] = *waiting;
        const auto pid = process_id_of(tid);
        const auto parent = parent_of(tid);
        const auto alive = [&](std::optional<pid_t> one) {
            return one && std::any_of(tasks_.begin(), tasks_.end(),
                                      [&](const auto& task) { return task.second.process->pid == *one; });
        };
        if (!pid || alive(*pid) || alive(parent)) {
            ++waiting;
            continue;
        }
        waiting = unclaimed_.erase(waiting);
        Task& task = add_task(tid, make_process(*pid, std::make_shared<AddressSpace>()));
        for (auto& [address, mapping] : mapped_nodes(tid, nodes_)) {
            task.process->space->add(address, std::move(mapping));
        }
        calls_.emit_now(task, BirthRecord{"clone", 0, nodes_.held(tid)});
        handle_stop(task, status);
    }
}

void Tracer::let_go() {
    letting_go_ = true;
    for (const auto& [tid, task] : tasks_) {
        (void)::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    }
}

void Tracer::let_go_of(Task& task, int signal) {
    calls_.end_unfinished(task);
    const pid_t tid = task.tid;
    nodes_.forget();
    tasks_.erase(tid);
    (void)::ptrace(PTRACE_DETACH, tid, nullptr, static_cast<long>(signal));
}

void Tracer::at_foreign_call(Task& task, const __ptrace_syscall_info& info) {
    ++event_stops_["foreign-call"];
    nodes_.remember_nothing(); // its close in that convention is not seen
    // ioctl in the 32-bit convention; every other call of it is none of ours.
    constexpr std::uint64_t ioctl_32 = 54;
    constexpr std::uint64_t ioctl_x32 = 0x40000000 | 514;
    if (info.entry.nr != ioctl_32 && info.entry.nr != ioctl_x32) {
        return;
    }
    if (const auto node = nodes_.of_descriptor(task.tid, static_cast<int>(info.entry.args[0]))) {
        calls_.note(task, "foreign-call",
                    fmt::format("an ioctl 0x{:x} on {} in the 32-bit convention: not recorded",
                                static_cast<std::uint64_t>(info.entry.args[1]), node->path));
    }
}

} // namespace upcie::rm
