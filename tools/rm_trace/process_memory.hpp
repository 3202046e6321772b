// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// The memory of a stopped thread. Holds nothing but the number.
///
/// Threads: any.
class ProcessMemory {
  public:
    explicit ProcessMemory(pid_t tid) noexcept : tid_{tid} {}

    /// Reads up to `bytes`; what is not readable ends it, with the errno. Never makes up zeros.
    [[nodiscard]] Capture read(std::uint64_t address, std::size_t bytes) const;
    /// The same of a mapping, also one of device memory whose driver lets a debugger look (/proc/PID/mem).
    [[nodiscard]] Capture read_mapping(std::uint64_t address, std::size_t bytes) const;
    /// Fills each capture from its address, all in one system call where all of it is readable.
    struct Wanted {
        std::uint64_t address = 0;
        std::size_t bytes = 0;
        Capture* capture = nullptr;
    };
    void read_all(std::span<const Wanted> wanted) const;
    /// Reads `bytes` whole, or nothing.
    [[nodiscard]] bool read_exactly(std::uint64_t address, void* to, std::size_t bytes) const;
    template <class T>
    [[nodiscard]] std::optional<T> value(std::uint64_t address) const {
        T answer{};
        return read_exactly(address, &answer, sizeof answer) ? std::optional<T>{answer} : std::nullopt;
    }
    /// A string that ends with a zero, at most PATH_MAX bytes; nothing when it does not end, or is not readable.
    [[nodiscard]] std::optional<std::string> text(std::uint64_t address) const;

  private:
    std::size_t read_some(std::uint64_t address, std::byte* to, std::size_t bytes, int& error) const;
    pid_t tid_;
};

} // namespace upcie::rm
