// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <upcie/os/fd.hpp>

#include "device.hpp"
#include "stamps.hpp"

namespace upcie::cli {

/// Where the data of `upcie write` come from.
class Fill {
  public:
    /// "zero", "ones", a byte ("0xa5"), or "stamp". Error: EINVAL.
    [[nodiscard]] static Result<Fill> pattern(const std::string& text, std::uint64_t seed, const Target& target);
    /// A file whose first byte belongs to block `lba`. Errors: what open(2) and fstat(2) say; EINVAL for an empty one.
    [[nodiscard]] static Result<Fill> file(os::System& system, const std::string& path, std::uint64_t lba,
                                           std::uint32_t block_size);

    /// Blocks that the file fills; none for a pattern.
    [[nodiscard]] std::optional<std::uint64_t> file_blocks() const noexcept { return file_blocks_; }
    /// Fills whole blocks from `lba` on. Error: what pread(2) says.
    Result<void> fill(std::span<std::byte> memory, std::uint64_t lba);

  private:
    os::System* system_ = nullptr;
    os::Fd file_;
    std::string path_;
    std::uint64_t file_lba_ = 0;
    std::optional<std::uint64_t> file_blocks_;
    std::uint8_t byte_ = 0;
    std::optional<Stamp> stamp_;
    std::uint32_t block_size_ = 512;
};

} // namespace upcie::cli
