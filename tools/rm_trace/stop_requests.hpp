// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

namespace upcie::rm {

/// What the tracer does on SIGINT, SIGTERM, SIGHUP and SIGQUIT, for the whole process and as long as it lives.
/// With a program that it started: the signal is the program's to answer, so it is passed on, except where the
/// terminal has given it to the program already. Attached: it asks to let go. A signal that was ignored before stays
/// ignored (nohup), except that attached SIGINT, SIGTERM and SIGQUIT always ask: a script's background ignores them.
class StopRequests {
  public:
    /// `program`: whom to pass signals on to; 0: nobody, a signal asks to let go.
    explicit StopRequests(pid_t program) noexcept;
    StopRequests(const StopRequests&) = delete;
    StopRequests& operator=(const StopRequests&) = delete;
    ~StopRequests();

    /// Whether a signal asked to let go.
    [[nodiscard]] bool asked() const noexcept;
};

} // namespace upcie::rm
