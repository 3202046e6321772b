// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <sys/types.h>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::os {

/// Owns a range of this process's address space and unmaps it at the end.
///
/// Move-only. Threads: one at a time for the object; the memory is as shared as its user makes it.
class Mapping {
  public:
    Mapping() noexcept = default;
    /// Takes over memory that `system` mapped.
    Mapping(System& system, void* address, ByteCount length) noexcept
        : system_{&system}, address_{address}, length_{length} {}
    /// A window into memory that `keep` owns: nothing is unmapped, `keep` is let go at the end (a simulated BAR, which
    /// the simulator must see at the same address as the driver for a race detector to follow the two).
    Mapping(std::shared_ptr<void> keep, void* address, ByteCount length) noexcept
        : keep_{std::move(keep)}, address_{address}, length_{length} {}
    Mapping(Mapping&& other) noexcept
        : system_{other.system_},
          keep_{std::move(other.keep_)},
          address_{std::exchange(other.address_, nullptr)},
          length_{std::exchange(other.length_, ByteCount{})} {}
    Mapping& operator=(Mapping&& other) noexcept {
        if (this != &other) {
            reset();
            system_ = other.system_;
            keep_ = std::move(other.keep_);
            address_ = std::exchange(other.address_, nullptr);
            length_ = std::exchange(other.length_, ByteCount{});
        }
        return *this;
    }
    ~Mapping() { reset(); }

    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(address_); }
    [[nodiscard]] ByteCount size() const noexcept { return length_; }
    [[nodiscard]] explicit operator bool() const noexcept { return address_ != nullptr; }
    void reset() noexcept;

    /// MAP_SHARED read-write mapping of `fd` from `offset` (a multiple of the page size).
    /// Error: EINVAL for length 0 or an unaligned offset, else what mmap(2) says.
    [[nodiscard]] static Result<Mapping> map(System& system, int fd, off_t offset, ByteCount length,
                                             bool writable = true);

  private:
    System* system_ = nullptr;
    std::shared_ptr<void> keep_; ///< when set, it owns the memory
    void* address_ = nullptr;
    ByteCount length_;
};

} // namespace upcie::os
