// SPDX-License-Identifier: BSD-3-Clause
#include "interruption.hpp"

#include <atomic>
#include <cerrno>

#include <fmt/format.h>

namespace upcie::cli {

namespace {

constexpr int watched[] = {SIGINT, SIGTERM};

std::atomic<int> signal_seen{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use nothing else");

/// The first is noted, and from then on either of them does what it did before there was this.
void note_signal(int number) {
    signal_seen.store(number);
    struct sigaction otherwise {};
    otherwise.sa_handler = SIG_DFL;
    for (const int one : watched) {
        ::sigaction(one, &otherwise, nullptr);
    }
}

} // namespace

Interruption::Interruption() noexcept {
    signal_seen.store(0);
    struct sigaction action {};
    action.sa_handler = note_signal;
    ::sigemptyset(&action.sa_mask);
    for (const int one : watched) {
        ::sigaddset(&action.sa_mask, one); // one at a time, so that the second finds what the first has set
    }
    for (int i = 0; i < 2; ++i) {
        ::sigaction(watched[i], &action, &before_[i]);
    }
}

Interruption::~Interruption() {
    for (int i = 0; i < 2; ++i) {
        ::sigaction(watched[i], &before_[i], nullptr);
    }
}

bool Interruption::requested() noexcept {
    return signal_seen.load(std::memory_order_relaxed) != 0;
}

Error Interruption::error(std::string operation, std::string subject) {
    const char* const name = signal_seen.load() == SIGTERM ? "SIGTERM" : "SIGINT";
    return fail(EINTR, std::move(operation), std::move(subject),
                fmt::format("{} came: what was in flight was waited for, and the rest was left undone.", name))
        .value();
}

} // namespace upcie::cli
