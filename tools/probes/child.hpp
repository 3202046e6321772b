// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <upcie/result.hpp>

namespace upcie::probes {

/// Another process of this program, started anew (fork and exec, never a bare fork) as the same user. One that still
/// runs when this object goes is killed.
///
/// Move-only. Threads: one.
class Child {
  public:
    /// `arguments` without the program's name. With `quiet` its standard output goes nowhere; its errors are always
    /// seen. Error: what posix_spawn(3) says.
    [[nodiscard]] static Result<Child> start(const std::vector<std::string>& arguments, bool quiet);

    Child(Child&& other) noexcept : pid_{std::exchange(other.pid_, -1)} {}
    Child& operator=(Child&&) = delete;
    ~Child();

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    /// Its exit status, or 128 + the signal that ended it. Error: ETIMEDOUT.
    [[nodiscard]] Result<int> wait(std::chrono::milliseconds patience);

  private:
    explicit Child(pid_t pid) noexcept : pid_{pid} {}
    pid_t pid_;
};

/// A folder of this user's own for sockets, removed (with `files` in it) at the end.
class ScratchFolder {
  public:
    /// Error: what mkdtemp(3) says.
    [[nodiscard]] static Result<ScratchFolder> make();
    ScratchFolder(ScratchFolder&& other) noexcept : path_{std::exchange(other.path_, {})} {}
    ScratchFolder& operator=(ScratchFolder&&) = delete;
    ~ScratchFolder();
    [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }
    /// Lets other users reach what is in it by name; what they may do with it, its own mode says.
    /// Error: what chmod(2) says.
    Result<void> let_others_in() const;

  private:
    explicit ScratchFolder(std::string path) : path_{std::move(path)} {}
    std::string path_;
};

} // namespace upcie::probes
