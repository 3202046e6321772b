// SPDX-License-Identifier: BSD-3-Clause
#include "traced_run.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../tools/rm_common/trace_reader.hpp"

extern char** environ;

namespace upcie::rm::test {

NodeFolder::NodeFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "upcie-rm-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error{"mkdtemp: " + std::string{std::strerror(errno)}};
    }
    path_ = name;
    for (const char* one : {"control", "gpu", "uvm"}) {
        std::ofstream{file(one)} << std::string(8192, one[0]);
    }
}

NodeFolder::~NodeFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
}

Child::Child(const std::vector<std::string>& command) {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
        throw std::runtime_error{"pipe2"};
    }
    std::vector<std::string> words = command;
    std::vector<char*> arguments;
    for (auto& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions{};
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
    // A test that runs in the background of a script has SIGINT ignored, which its children would inherit.
    posix_spawnattr_t attributes{};
    ::posix_spawnattr_init(&attributes);
    sigset_t defaults{};
    ::sigemptyset(&defaults);
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
        ::sigaddset(&defaults, number);
    }
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int problem = ::posix_spawn(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    output_ = pipe[0];
    if (problem != 0) {
        throw std::runtime_error{command.front() + ": " + std::strerror(problem)};
    }
}

Child::~Child() {
    if (status_ == -2) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
}

std::string Child::line() {
    std::string text;
    char letter = 0;
    while (::read(output_, &letter, 1) == 1 && letter != '\n') {
        text += letter;
    }
    return text;
}

bool Child::ended() {
    if (status_ != -2) {
        return true;
    }
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
        return false;
    }
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

int Child::wait() {
    for (int i = 0; i < 60000 && !ended(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return ended() ? status_ : -1;
}

std::vector<std::string> traced_command(const NodeFolder& folder, const std::string& nodes,
                                        const std::vector<std::string>& words, const Manner& manner) {
    const std::string in = nodes.empty() ? folder.path() : nodes;
    std::vector<std::string> command{UPCIE_TRACER, "--quiet", "--driver", "550.163.01", "-o", folder.file("trace")};
    command.insert(command.end(), manner.more.begin(), manner.more.end());
    if (manner.every_call) {
        command.emplace_back("--every-call");
    }
    for (const char* one : {"control=control", "gpu=device", "uvm=uvm"}) {
        command.emplace_back("--node");
        command.push_back(in + "/" + one);
    }
    command.emplace_back("--");
    command.emplace_back(manner.is_static ? UPCIE_TARGET_STATIC : UPCIE_TARGET);
    if (manner.supervised) {
        command.emplace_back("--supervised");
    }
    for (const char* one : {"/control", "/gpu", "/uvm"}) {
        command.push_back(in + one);
    }
    command.insert(command.end(), words.begin(), words.end());
    return command;
}

void read_into(TracedRun& run, const NodeFolder& folder) {
    auto trace = read_trace(folder.file("trace"));
    if (!trace) {
        throw std::runtime_error{trace.error().message()};
    }
    run.trace = std::move(*trace);
    run.ioctls.clear();
    run.ioctl_records.clear();
    for (const Record& record : run.trace.records) {
        if (const auto* ioctl = std::get_if<IoctlRecord>(&record.body)) {
            run.ioctls.push_back(ioctl);
            run.ioctl_records.push_back(&record);
        }
    }
}

TracedRun run_traced(const NodeFolder& folder, const std::vector<std::string>& words, const Manner& manner,
                     const std::string& nodes) {
    TracedRun run;
    Child child{traced_command(folder, nodes, words, manner)};
    run.status = child.wait();
    read_into(run, folder);
    return run;
}

std::string why_not_traceable() {
    static const std::string reason = [] {
        const NodeFolder folder;
        Child child{{UPCIE_TRACER, "--quiet", "-o", folder.file("trace"), "--", "/bin/true"}};
        const int status = child.wait();
        return status == 0 ? std::string{}
                           : "upcie_rm_trace cannot trace here (see its message): ptrace or seccomp "
                             "is forbidden, or this runs under user-mode emulation";
    }();
    return reason;
}

} // namespace upcie::rm::test
