// SPDX-License-Identifier: BSD-3-Clause
#include "launch.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "filter.hpp"

namespace upcie::rm {

namespace {

[[noreturn]] void give_up(int failure, LaunchFailure::Stage stage) {
    const LaunchFailure reason{stage, errno};
    [[maybe_unused]] const ssize_t told = ::write(failure, &reason, sizeof reason);
    ::_exit(127);
}

bool install(std::vector<sock_filter>& filter) {
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) {
        return true;
    }
    // Without CAP_SYS_ADMIN a filter is allowed only to those who give up gaining privileges.
    return errno == EACCES && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/// In the child: nothing may be allocated here that exec would not throw away anyway.
[[noreturn]] void become(std::vector<sock_filter>& filter, const LaunchOptions& options, std::vector<char*>& arguments,
                         int go, int failure) {
    char traced = 0;
    if (::read(go, &traced, 1) != 1) {
        ::_exit(127); // the tracer could not attach, and has said so
    }
    if (options.filter && !install(filter)) {
        give_up(failure, LaunchFailure::Stage::filter);
    }
    ::execvp(arguments[0], arguments.data());
    give_up(failure, LaunchFailure::Stage::exec);
}

} // namespace

Result<Launched> launch(os::System& system, const LaunchOptions& options) {
    const std::string& program = options.command.front();
    std::array<int, 2> go{};
    std::array<int, 2> failure{};
    if (::pipe2(go.data(), O_CLOEXEC) != 0) {
        return fail(errno, "pipe2", program, "The tracer has no descriptor left: raise its limit (ulimit -n).");
    }
    const os::Fd go_read{system, go[0]};
    const os::Fd go_write{system, go[1]};
    if (::pipe2(failure.data(), O_CLOEXEC) != 0) {
        return fail(errno, "pipe2", program, "The tracer has no descriptor left: raise its limit (ulimit -n).");
    }
    os::Fd failure_read{system, failure[0]};
    const os::Fd failure_write{system, failure[1]};

    auto filter = make_filter(options.memory);
    std::vector<std::string> words = options.command;
    std::vector<char*> arguments;
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);

    const pid_t child = ::fork();
    if (child < 0) {
        return fail(errno, "fork", program, "This user's limit of processes (ulimit -u) may be reached.");
    }
    if (child == 0) {
        become(filter, options, arguments, go_read.get(), failure_write.get());
    }
    if (::ptrace(PTRACE_SEIZE, child, nullptr, options.ptrace_options) != 0) {
        const int code = errno;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        return fail(code, "PTRACE_SEIZE", program,
                    "Tracing is not allowed here: a container may forbid ptrace (docker: --cap-add SYS_PTRACE), or the "
                    "tracer is itself traced.");
    }
    const char traced = 1;
    if (::write(go_write.get(), &traced, 1) != 1) {
        return fail(errno, "write", "the pipe to the program", "This is a fault of the tracer's.");
    }
    return Launched{child, std::move(failure_read)};
}

LaunchFailure launch_failure(const Launched& launched) {
    LaunchFailure reason;
    return ::read(launched.failure.get(), &reason, sizeof reason) == sizeof reason ? reason : LaunchFailure{};
}

} // namespace upcie::rm
