// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::sim {

/// Controller registers (Base Specification 2.0, section 3.1.3), offsets in BAR 0.
namespace reg {
constexpr std::uint64_t cap = 0x00;
constexpr std::uint64_t vs = 0x08;
constexpr std::uint64_t intms = 0x0c;
constexpr std::uint64_t intmc = 0x10;
constexpr std::uint64_t cc = 0x14;
constexpr std::uint64_t csts = 0x1c;
constexpr std::uint64_t nssr = 0x20;
constexpr std::uint64_t aqa = 0x24;
constexpr std::uint64_t asq = 0x28;
constexpr std::uint64_t acq = 0x30;
constexpr std::uint64_t doorbells = 0x1000;
} // namespace reg

/// BAR 0: shared memory that the driver writes and the controller looks at. Every access is atomic.
class Bar {
  public:
    [[nodiscard]] static Result<std::shared_ptr<Bar>> create(os::System& system, ByteCount size);

    [[nodiscard]] std::byte* data() const noexcept { return mapping_.data(); }
    [[nodiscard]] ByteCount size() const noexcept { return mapping_.size(); }

    [[nodiscard]] std::uint32_t load(std::uint64_t offset) const noexcept {
        return __atomic_load_n(at<std::uint32_t>(offset), __ATOMIC_ACQUIRE);
    }
    void store(std::uint64_t offset, std::uint32_t value) noexcept {
        __atomic_store_n(at<std::uint32_t>(offset), value, __ATOMIC_RELEASE);
    }
    [[nodiscard]] std::uint64_t load_width(std::uint64_t offset, unsigned width) const noexcept;
    void store_width(std::uint64_t offset, unsigned width, std::uint64_t value) noexcept;
    /// A 64-bit register that the host may have written in halves.
    [[nodiscard]] std::uint64_t load_wide(std::uint64_t offset) const noexcept {
        return load(offset) | (std::uint64_t{load(offset + 4)} << 32);
    }

  private:
    Bar(os::Fd fd, os::Mapping mapping) noexcept : fd_{std::move(fd)}, mapping_{std::move(mapping)} {}
    template <class Word>
    [[nodiscard]] Word* at(std::uint64_t offset) const noexcept {
        return reinterpret_cast<Word*>(mapping_.data() + offset);
    }

    os::Fd fd_;
    os::Mapping mapping_;
};

} // namespace upcie::sim
