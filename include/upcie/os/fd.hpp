// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

namespace upcie::os {

/// Owns a file descriptor; closes it through the System that opened it.
///
/// Move-only. Threads: one at a time.
class Fd {
  public:
    Fd() noexcept = default;
    /// Takes over `number`; a negative one makes an empty Fd.
    Fd(System& system, int number) noexcept : system_{&system}, number_{number} {}
    Fd(Fd&& other) noexcept : system_{other.system_}, number_{std::exchange(other.number_, -1)} {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            system_ = other.system_;
            number_ = std::exchange(other.number_, -1);
        }
        return *this;
    }
    ~Fd() { reset(); }

    [[nodiscard]] int get() const noexcept { return number_; }
    [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }
    /// Gives the descriptor away: the caller closes it.
    [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
    void reset() noexcept;
    /// Another descriptor of the same open file, close-on-exec. Error: what F_DUPFD_CLOEXEC says (EMFILE).
    [[nodiscard]] Result<Fd> duplicate() const;

  private:
    System* system_ = nullptr;
    int number_ = -1;
};

/// Opens `path` with O_CLOEXEC added. Error: what open(2) says, with a hint for EACCES, EPERM, ENOENT and EBUSY.
[[nodiscard]] Result<Fd> open_file(System& system, const char* path, int flags);
/// A counter for interrupts, close-on-exec and non-blocking. Error: EMFILE, ENFILE, ENOMEM.
[[nodiscard]] Result<Fd> make_eventfd(System& system);

} // namespace upcie::os
