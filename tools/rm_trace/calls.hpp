// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <upcie/rm/driver_version.hpp>

#include "consulted.hpp"
#include "nodes.hpp"
#include "process_memory.hpp"
#include "sink.hpp"
#include "task.hpp"

namespace upcie::rm {

/// Makes records out of the entries and returns of system calls, whatever way they were caught. The thread in question
/// is stopped whenever one of these is called.
///
/// Threads: one. Holds references: nodes and sink outlive it.
class Calls {
  public:
    Calls(Nodes& nodes, Sink& sink, DriverVersion driver, bool with_memory) noexcept
        : nodes_{nodes}, sink_{sink}, driver_{driver}, with_memory_{with_memory} {}

    /// A call was entered: whether its return is to be seen. If so, `task.pending` holds it.
    [[nodiscard]] bool enter(Task& task, PendingCall call);
    /// The call that `task.pending` holds returned, with `outcome`. When a signal ended it and it may start again (kind
    /// interrupted), it goes to `task.interrupted` and nothing is written yet.
    void leave(Task& task, const Outcome& outcome);
    /// Writes the last of `task.interrupted`: it did not start again.
    void end_interrupted(Task& task);
    /// Writes all that never returned.
    void end_unfinished(Task& task);
    /// A record of `task` that is no system call: times and number are of now.
    std::uint64_t emit_now(const Task& task, decltype(Record::body) body);
    void note(const Task& task, std::string subject, std::string text);
    /// `task` is stopped at every call for the sake of a file: each of these stops is counted, and there is an end.
    void count_watched(Task& task);
    /// --memory: what changed in the mappings of nodes since last time. `occasion`: the record that gave it.
    void record_memory(const Task& task, std::uint64_t occasion);

  private:
    using Body = decltype(Record::body);

    bool enter_ioctl(Task& task, PendingCall& call);
    void leave_ioctl(const Task& task, PendingCall& call);

    bool enter_open(Task& task, PendingCall& call);
    void leave_open(Task& task, PendingCall& call);
    bool enter_stat(Task& task, PendingCall& call);
    void leave_stat(const Task& task, PendingCall& call);
    bool enter_read(const Task& task, PendingCall& call);
    void leave_read(const Task& task, PendingCall& call);
    bool enter_close(Task& task, PendingCall& call);
    bool enter_close_range(Task& task, PendingCall& call);

    bool enter_duplicate(Task& task, PendingCall& call);
    bool enter_message(const Task& task, PendingCall& call);
    void leave_message(const Task& task, PendingCall& call);
    void leave_taken(const Task& task, PendingCall& call);
    bool enter_poll(const Task& task, PendingCall& call);
    void leave_poll(const Task& task, PendingCall& call);
    bool enter_epoll(const Task& task, PendingCall& call);

    bool enter_mapping(Task& task, PendingCall& call);
    void leave_mapping(Task& task, PendingCall& call);

    /// A descriptor goes, or becomes another file: a watch on it ends, and a node or watched file gives a record.
    void end_descriptor(Task& task, PendingCall& call, int fd);
    void watch(Task& task, int fd, std::string path);
    /// `path` of the call as a whole: against its directory where it is relative.
    [[nodiscard]] std::string whole_path(const Task& task, const PendingCall& call, const std::string& path) const;
    /// An open that never returned, of a file that is none of ours.
    void leave_out_uninteresting(const Task& task, PendingCall& call) const;
    void write(Task& task, PendingCall& call);

    Nodes& nodes_;
    Sink& sink_;
    DriverVersion driver_;
    bool with_memory_;
};

/// Whether a thread has to be stopped at every call now, because it opened a file whose reads are recorded.
[[nodiscard]] bool is_watching(const Task& task) noexcept;

} // namespace upcie::rm
