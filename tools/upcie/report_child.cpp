// SPDX-License-Identifier: BSD-3-Clause
#include "report_child.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <upcie/os/fd.hpp>

#include "interruption.hpp"

namespace upcie::cli {

namespace {

/// What the child writes on one of its descriptors.
class Ear {
  public:
    explicit Ear(std::size_t largest) noexcept : largest_{largest} {}

    [[nodiscard]] Result<void> open() {
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            return fail(errno, "pipe2", "a probe's output", "Too many files are open: ulimit -n gives room for more.");
        }
        hear_ = os::Fd{os::real_system(), ends[0]};
        speak_ = os::Fd{os::real_system(), ends[1]};
        ::fcntl(hear_.get(), F_SETFL, O_NONBLOCK);
        return {};
    }
    [[nodiscard]] int child_side() const noexcept { return speak_.get(); }
    void close_child_side() noexcept { speak_.reset(); }
    /// -1 once all has been heard: poll(2) passes it over.
    [[nodiscard]] int descriptor() const noexcept { return hear_.get(); }

    /// All that is there now.
    void listen() {
        std::array<char, 16384> piece{};
        while (hear_) {
            const ssize_t got = ::read(hear_.get(), piece.data(), piece.size());
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0 && errno == EAGAIN) {
                return;
            }
            if (got <= 0) {
                hear_.reset();
                return;
            }
            const auto fits = std::min(static_cast<std::size_t>(got), largest_ - text_.size());
            text_.append(piece.data(), fits);
            cut_ = cut_ || fits < static_cast<std::size_t>(got);
        }
    }
    [[nodiscard]] std::string& text() noexcept { return text_; }
    [[nodiscard]] bool cut() const noexcept { return cut_; }

  private:
    std::size_t largest_;
    os::Fd hear_;
    os::Fd speak_;
    std::string text_;
    bool cut_ = false;
};

/// Both structures of posix_spawn(3), which want to be given back.
class SpawnTerms {
  public:
    SpawnTerms() noexcept {
        ::posix_spawn_file_actions_init(&actions_);
        ::posix_spawnattr_init(&attributes_);
    }
    SpawnTerms(const SpawnTerms&) = delete;
    SpawnTerms& operator=(const SpawnTerms&) = delete;
    ~SpawnTerms() {
        ::posix_spawnattr_destroy(&attributes_);
        ::posix_spawn_file_actions_destroy(&actions_);
    }

    [[nodiscard]] int set(int output, int errors) noexcept {
        sigset_t none{};
        sigset_t ordinary{};
        ::sigemptyset(&none);
        ::sigemptyset(&ordinary);
        for (const int one : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) {
            ::sigaddset(&ordinary, one);
        }
        for (const int error : {
                 ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0),
                 ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO),
                 ::posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO),
                 ::posix_spawnattr_setpgroup(&attributes_, 0),
                 ::posix_spawnattr_setsigmask(&attributes_, &none),
                 ::posix_spawnattr_setsigdefault(&attributes_, &ordinary),
                 ::posix_spawnattr_setflags(&attributes_,
                                            POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF),
             }) {
            if (error != 0) {
                return error;
            }
        }
        return 0;
    }
    [[nodiscard]] const posix_spawn_file_actions_t* actions() const noexcept { return &actions_; }
    [[nodiscard]] const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

  private:
    posix_spawn_file_actions_t actions_{};
    posix_spawnattr_t attributes_{};
};

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments, int output, int errors) {
    std::vector<std::string> words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    SpawnTerms terms;
    int error = terms.set(output, errors);
    pid_t pid = -1;
    if (error == 0) {
        error = ::posix_spawn(&pid, program.c_str(), terms.actions(), terms.attributes(), pointers.data(), ::environ);
    }
    if (error != 0) {
        return fail(error, "posix_spawn", program,
                    "It has to be a program that this user may run and memory has room for.");
    }
    return pid;
}

/// Whether it has ended. It is left as a zombie, so that its number, which is its group's too, is nobody else's yet.
bool has_ended(pid_t pid) noexcept {
    siginfo_t end{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == pid;
}

} // namespace

Result<ChildEnd> run_child(const std::string& program, const std::vector<std::string>& arguments,
                           std::chrono::milliseconds limit) {
    Ear output{largest_output};
    Ear errors{largest_errors};
    for (Ear* const ear : {&output, &errors}) {
        if (auto opened = ear->open(); !opened) {
            return tl::unexpected{std::move(opened.error())};
        }
    }
    const auto pid = spawn(program, arguments, output.child_side(), errors.child_side());
    if (!pid) {
        return tl::unexpected{pid.error()};
    }
    output.close_child_side();
    errors.close_child_side();
    ChildEnd end;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!has_ended(*pid)) {
        if (std::chrono::steady_clock::now() >= deadline) {
            end.timed_out = true;
            break;
        }
        if (Interruption::requested()) {
            end.interrupted = true;
            break;
        }
        constexpr int step_ms = 20; // the end itself wakes nobody
        std::array<pollfd, 2> watched{{{output.descriptor(), POLLIN, 0}, {errors.descriptor(), POLLIN, 0}}};
        ::poll(watched.data(), watched.size(), step_ms);
        output.listen();
        errors.listen();
    }
    ::kill(-*pid, SIGKILL);
    int status = 0;
    while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    output.listen();
    errors.listen();
    if (WIFEXITED(status)) {
        end.exit_status = WEXITSTATUS(status);
        end.timed_out = end.interrupted = false; // it ended by itself just then
    } else {
        end.signal = WTERMSIG(status);
    }
    end.output = std::move(output.text());
    end.errors = std::move(errors.text());
    end.output_cut = output.cut();
    return end;
}

} // namespace upcie::cli
