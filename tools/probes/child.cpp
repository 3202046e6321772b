// SPDX-License-Identifier: BSD-3-Clause
#include "child.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace upcie::probes {

Result<Child> Child::start(const std::vector<std::string>& arguments, bool quiet) {
    std::vector<std::string> words{"/proc/self/exe"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);

    posix_spawn_file_actions_t actions{};
    ::posix_spawn_file_actions_init(&actions);
    if (quiet) {
        ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return fail(error, "posix_spawn", "/proc/self/exe", "A second process is needed: start it by hand instead.");
    }
    return Child{pid};
}

Child::~Child() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
}

Result<int> Child::wait(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        int status = 0;
        const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
        if (ended == pid_) {
            pid_ = -1;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (ended < 0 && errno != EINTR) {
            return fail(errno, "waitpid", "the second process", "It was waited for already.");
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            return fail(ETIMEDOUT, "waitpid", "the second process", "It does not end: --timeout gives it more time.");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
}

Result<ScratchFolder> ScratchFolder::make() {
    const char* const base = std::getenv("TMPDIR");
    std::string path = std::string{base != nullptr && *base != '\0' ? base : "/tmp"} + "/upcie-probe-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
        return fail(errno, "mkdtemp", path, "Set TMPDIR to a folder that this user may write to.");
    }
    return ScratchFolder{std::move(path)};
}

Result<void> ScratchFolder::let_others_in() const {
    if (::chmod(path_.c_str(), 0711) != 0) {
        return fail(errno, "chmod", path_, "Set TMPDIR to a folder on a file system with modes.");
    }
    return {};
}

ScratchFolder::~ScratchFolder() {
    if (!path_.empty()) {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
}

} // namespace upcie::probes
