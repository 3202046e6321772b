// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/sim/options.hpp>

namespace upcie::sim {

/// One namespace's blocks: sparse memory, or a part of a file.
class Medium {
  public:
    /// All namespaces of `options`, in order.
    [[nodiscard]] static Result<std::vector<Medium>> create(os::System& system, const Options& options);

    [[nodiscard]] std::uint64_t blocks() const noexcept { return memory_.size().value() / block_size_; }
    [[nodiscard]] std::uint32_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] std::span<std::byte> bytes(std::uint64_t lba, std::uint64_t count) const noexcept {
        return {memory_.data() + lba * block_size_, static_cast<std::size_t>(count * block_size_)};
    }
    void zero(std::uint64_t lba, std::uint64_t count) noexcept;
    /// New block size; every block reads as zeroes after.
    void format(std::uint32_t block_size) noexcept;

  private:
    Medium(os::System& system, os::Mapping memory, std::uint32_t block_size, bool anonymous) noexcept
        : system_{&system}, memory_{std::move(memory)}, block_size_{block_size}, anonymous_{anonymous} {}

    os::System* system_;
    os::Mapping memory_;
    std::uint32_t block_size_;
    bool anonymous_;
};

} // namespace upcie::sim
