// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <signal.h>

#include <upcie/result.hpp>

namespace upcie::cli {

/// While one lives, the first SIGINT or SIGTERM is only noted, so that a long run can end in order and report what it
/// has; the second ends the process as it would have without. Threads: made and destroyed by one, asked by any.
class Interruption {
  public:
    Interruption() noexcept;
    ~Interruption();
    Interruption(const Interruption&) = delete;
    Interruption& operator=(const Interruption&) = delete;

    /// Whether a signal has come.
    [[nodiscard]] static bool requested() noexcept;
    /// EINTR, naming the signal.
    [[nodiscard]] static Error error(std::string operation, std::string subject);

  private:
    struct sigaction before_[2]{};
};

} // namespace upcie::cli
