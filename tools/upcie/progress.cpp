// SPDX-License-Identifier: BSD-3-Clause
#include "progress.hpp"

#include <ostream>

#include <unistd.h>

namespace upcie::cli {

bool Progress::due(Clock::time_point now) noexcept {
    constexpr std::chrono::seconds first{2};
    const std::chrono::seconds pace{terminal_ ? 1 : 10};
    if (now - start_ < first || (last_ != start_ && now - last_ < pace)) {
        return false;
    }
    last_ = now;
    return true;
}

void Progress::show(std::string_view text) {
    if (terminal_) {
        err_ << "\r\x1b[K" << text << std::flush; // ECMA-48: erase to the end of the line
        open_ = true;
    } else {
        err_ << text << '\n' << std::flush;
    }
}

void Progress::finish() {
    if (open_) {
        err_ << '\n' << std::flush;
        open_ = false;
    }
}

bool Progress::on_terminal() noexcept {
    return ::isatty(STDERR_FILENO) != 0;
}

} // namespace upcie::cli
