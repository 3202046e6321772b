// SPDX-License-Identifier: BSD-3-Clause
#include "stop_requests.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include <unistd.h>

namespace upcie::rm {

namespace {

constexpr std::array watched{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

std::atomic<pid_t> passed_to{0};
std::atomic<bool> was_asked{false};
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_signal(int number, siginfo_t* information, void*) {
    const int kept = errno;
    if (const pid_t program = passed_to.load(); program > 0) {
        if (information->si_code != SI_KERNEL) {
            ::kill(program, number);
        }
    } else {
        was_asked.store(true);
        ::alarm(1); // the signal may have come between a look at asked() and the wait: it is woken again
    }
    errno = kept;
}

void on_alarm(int) {
    ::alarm(1);
}

} // namespace

StopRequests::StopRequests(pid_t program) noexcept {
    passed_to.store(program);
    was_asked.store(false);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO; // no SA_RESTART: a wait has to end
    ::sigemptyset(&action.sa_mask);
    for (const int number : watched) {
        struct sigaction now {};
        // nohup stays in force. What a script's background ignores is still how one that is attached is let go.
        const bool always = program == 0 && number != SIGHUP;
        if (::sigaction(number, nullptr, &now) == 0 && (always || now.sa_handler != SIG_IGN)) {
            ::sigaction(number, &action, nullptr);
        }
    }
    struct sigaction waking {};
    waking.sa_handler = on_alarm;
    ::sigemptyset(&waking.sa_mask);
    ::sigaction(SIGALRM, &waking, nullptr);
    std::signal(SIGPIPE, SIG_IGN); // a trace that cannot be written is an error, no reason to end the program
    std::signal(SIGXFSZ, SIG_IGN);
}

StopRequests::~StopRequests() {
    passed_to.store(0);
    ::alarm(0);
}

bool StopRequests::asked() const noexcept {
    return was_asked.load();
}

} // namespace upcie::rm
