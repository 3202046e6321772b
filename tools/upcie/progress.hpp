// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <string_view>

namespace upcie::cli {

/// A line on standard error that tells how far a long run is: from the second second on, once a second.
///
/// On a terminal the line is overwritten; elsewhere each is a line of its own, every ten seconds. Threads: one.
class Progress {
  public:
    using Clock = std::chrono::steady_clock;
    Progress(std::ostream& err, bool terminal, Clock::time_point start = Clock::now())
        : err_{err}, terminal_{terminal}, start_{start}, last_{start} {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { finish(); }

    /// True when it is time for a line: making its text is then worth the while.
    [[nodiscard]] bool due(Clock::time_point now = Clock::now()) noexcept;
    void show(std::string_view text);
    void finish();
    [[nodiscard]] double seconds(Clock::time_point now = Clock::now()) const noexcept {
        return std::chrono::duration<double>(now - start_).count();
    }

    /// Whether standard error is a terminal.
    [[nodiscard]] static bool on_terminal() noexcept;

  private:
    std::ostream& err_;
    bool terminal_;
    bool open_ = false; ///< a line without its end is on the screen
    Clock::time_point start_;
    Clock::time_point last_;
};

} // namespace upcie::cli
