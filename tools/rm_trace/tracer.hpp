// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "calls.hpp"
#include "launch.hpp"
#include "nodes.hpp"
#include "sink.hpp"
#include "task.hpp"

struct __ptrace_syscall_info;

namespace upcie::rm {

class StopRequests;

struct TracerOptions {
    std::vector<std::string> command; ///< empty: attach to `pid`
    pid_t pid = 0;
    bool every_call = false;
    bool memory = false;
    DriverVersion driver;
};

/// Runs a program, or attaches to one, and hands what its threads do to Calls. It stops nothing but what it must: with
/// the filter a thread runs free until a call of system_calls(), and stops once more at that call's return if it is
/// recorded.
///
/// Threads: one, the one that made it (ptrace belongs to a thread).
class Tracer {
  public:
    Tracer(os::System& system, Nodes& nodes, Sink& sink, TracerOptions options)
        : system_{system},
          nodes_{nodes},
          sink_{sink},
          options_{std::move(options)},
          calls_{nodes, sink, options_.driver, options_.memory} {}

    /// Until everything that was traced has ended, or, attached, a signal asked to let go. Answers the exit status to
    /// end with: the program's, 128 + signal when one killed it.
    /// Error: what fork, PTRACE_SEIZE, seccomp and execvp say; of execvp, ENOENT means that there is no such program.
    [[nodiscard]] Result<int> run();

    /// Stops by kind, those at system calls by their names.
    [[nodiscard]] std::vector<SummaryRecord::Count> stops() const;

  private:
    [[nodiscard]] Result<void> start();
    [[nodiscard]] Result<void> attach();
    void loop(const StopRequests& requests);
    void handle(pid_t tid, int status);
    void handle_end(pid_t tid, int status);
    void handle_stop(Task& task, int status);
    void at_call(Task& task, bool from_filter);
    void at_entry(Task& task, const __ptrace_syscall_info& info);
    /// Whether the call that was entered is an interrupted one that the kernel starts over.
    [[nodiscard]] bool starts_again(Task& task, const PendingCall& entered);
    void at_return(Task& task, const __ptrace_syscall_info& info);
    void at_birth(Task& parent, int event);
    void at_exec(Task& task);
    void at_foreign_call(Task& task, const __ptrace_syscall_info& info);
    void release_unclaimed();
    void let_go();
    void let_go_of(Task& task, int signal);

    Task& add_task(pid_t tid, std::shared_ptr<Process> process);
    [[nodiscard]] std::shared_ptr<Process> make_process(pid_t pid, std::shared_ptr<AddressSpace> space);
    [[nodiscard]] std::uint64_t ptrace_options() const noexcept;
    void resume(Task& task, int signal = 0);
    [[nodiscard]] bool stops_everywhere(const Task& task) const noexcept;

    os::System& system_;
    Nodes& nodes_;
    Sink& sink_;
    TracerOptions options_;
    Calls calls_;
    std::optional<Launched> launched_;
    std::unordered_map<pid_t, Task> tasks_;
    std::unordered_map<pid_t, int> unclaimed_; ///< stopped, and nobody has said yet that it made them
    std::unordered_map<const SystemCall*, std::uint64_t> call_stops_;
    std::map<std::string_view, std::uint64_t> event_stops_;
    pid_t main_ = 0;
    bool running_ = false; ///< the program's first exec is done
    bool letting_go_ = false;
    int exit_status_ = 0;
};

} // namespace upcie::rm
