// SPDX-License-Identifier: BSD-3-Clause
// What tracing costs, as ratios in one run: a program that computes for a second with and without the tracer, and an
// ioctl that is recorded against the two bare stops that ptrace needs for it. Best of several, taken in turn, since
// other work of the machine only ever adds.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "traced_run.hpp"

namespace {

using upcie::rm::test::Child;
using upcie::rm::test::NodeFolder;

/// A tracer that does nothing: `stops` times per ioctl (1: at entry, by the filter; 2: at its return, too).
[[noreturn]] void trace_bare(const std::vector<std::string>& command, int stops) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::raise(SIGSTOP);
        std::array filter{sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
                          sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_ioctl},
                          sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRACE},
                          sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
        sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
            ::_exit(1);
        }
        std::vector<std::string> words = command;
        std::vector<char*> arguments;
        for (auto& word : words) {
            arguments.push_back(word.data());
        }
        arguments.push_back(nullptr);
        ::execv(arguments[0], arguments.data());
        ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    if (::ptrace(PTRACE_SEIZE, child, nullptr,
                 static_cast<unsigned long>(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) != 0) {
        ::_exit(1);
    }
    ::kill(child, SIGCONT);
    while (::waitpid(-1, &status, __WALL) > 0 && WIFSTOPPED(status)) {
        const bool entry = status >> 8 == (SIGTRAP | (PTRACE_EVENT_SECCOMP << 8));
        const int signal = status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80) ? WSTOPSIG(status) : 0;
        ::ptrace(entry && stops == 2 ? PTRACE_SYSCALL : PTRACE_CONT, child, nullptr, static_cast<long>(signal));
    }
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

double printed_by(const std::vector<std::string>& command) {
    Child child{command};
    const double value = std::strtod(child.line().c_str(), nullptr);
    if (child.wait() != 0 || value <= 0) {
        std::fprintf(stderr, "%s failed\n", command.front().c_str());
        std::exit(1);
    }
    return value;
}

} // namespace

int main(int count, char** words) {
    // The program is its own bare tracer: "overhead bare STOPS COMMAND...".
    if (count > 3 && std::string{words[1]} == "bare") {
        trace_bare({words + 3, words + count}, std::atoi(words[2]));
    }
    if (const auto reason = upcie::rm::test::why_not_traceable(); !reason.empty()) {
        std::printf("SKIP: %s\n", reason.c_str());
        return 77;
    }
    const int rounds = count > 1 ? std::atoi(words[1]) : 5;
    const NodeFolder folder;
    const auto plain = [&](std::vector<std::string> what) {
        what.insert(what.begin(), {UPCIE_TARGET, folder.file("control"), folder.file("gpu"), folder.file("uvm")});
        return what;
    };
    const auto bare = [&](const char* stops, std::vector<std::string> what) {
        what = plain(std::move(what));
        what.insert(what.begin(), {"/proc/self/exe", "bare", stops});
        return what;
    };
    const std::vector<std::string> calls{"timed", "20000"};
    constexpr double never = 1e30;
    struct {
        double plain = never, one_stop = never, two_stops = never, traced = never;
        double computes = never, computes_traced = never;
    } best;
    const auto keep = [](double& least, double value) { least = std::min(least, value); };
    for (int i = 0; i < rounds; ++i) {
        keep(best.plain, printed_by(plain(calls)));
        keep(best.one_stop, printed_by(bare("1", calls)));
        keep(best.two_stops, printed_by(bare("2", calls)));
        keep(best.traced, printed_by(upcie::rm::test::traced_command(folder, {}, calls, {})));
        keep(best.computes, printed_by(plain({"computes"})));
        keep(best.computes_traced, printed_by(upcie::rm::test::traced_command(folder, {}, {"computes"}, {})));
    }
    std::printf("an ioctl                          %8.0f ns\n", best.plain);
    std::printf("  stopped once, nothing done      %8.0f ns\n", best.one_stop);
    std::printf("  stopped twice, nothing done     %8.0f ns\n", best.two_stops);
    std::printf("  recorded                        %8.0f ns   %.2f of the two bare stops\n", best.traced,
                best.traced / best.two_stops);
    std::printf("computing                         %8.3f s\n", best.computes);
    std::printf("  under the tracer                %8.3f s    %+.2f %%\n", best.computes_traced,
                100 * (best.computes_traced / best.computes - 1));
    return 0;
}
