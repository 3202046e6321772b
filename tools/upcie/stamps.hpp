// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace upcie::cli {

/// Who wrote a block and for where. The layout in the block is defined in docs/stamps.md.
struct Stamp {
    std::uint64_t seed = 0;
    std::uint32_t nsid = 0;
    std::uint32_t block_size = 0;
    std::uint64_t lba = 0;
    std::uint64_t pass = 1;
    friend bool operator==(const Stamp&, const Stamp&) = default;
};

constexpr std::size_t stamp_bytes = 48;
constexpr std::size_t smallest_stamped_block = 64;
/// What a read buffer is filled with beforehand, so that data which never arrived is told from zeroes.
constexpr std::uint64_t poison_word = 0x5a5aa5a5c3c33c3cULL;

/// What is wrong with a block; the order is the order in which docs/stamps.md decides.
enum class BlockVerdict : std::uint8_t {
    good,
    untouched,
    zero,
    misplaced,
    stale,
    other_run,
    other_namespace,
    corrupt,
    foreign,
};
constexpr std::size_t block_verdict_count = 9;

/// The name used in JSON and in docs/stamps.md: "other-run".
[[nodiscard]] std::string_view to_string(BlockVerdict verdict) noexcept;

/// A block judged.
struct BlockFinding {
    BlockVerdict verdict = BlockVerdict::good;
    std::optional<Stamp> found;     ///< the stamp in the block, when its magic and check are intact
    std::size_t first_bad_byte = 0; ///< corrupt and foreign: offset in the block
    std::size_t bad_bytes = 0;      ///< corrupt and foreign
    std::uint8_t expected_byte = 0; ///< at first_bad_byte
    std::uint8_t found_byte = 0;

    /// One sentence for people: "LBA 17 holds the block written for LBA 18".
    [[nodiscard]] std::string describe(const Stamp& expected) const;
};

/// Fills a block of stamp.block_size bytes. `block` must have just that size, a multiple of 8 and at least 64.
void write_stamp(std::span<std::byte> block, const Stamp& stamp) noexcept;

/// The stamp in a block when magic and check are intact; its pattern is not looked at.
[[nodiscard]] std::optional<Stamp> read_stamp(std::span<const std::byte> block) noexcept;

/// Compares a block with what should be there. Fast for a good block.
[[nodiscard]] BlockFinding judge_block(std::span<const std::byte> block, const Stamp& expected);

/// Fills memory with poison_word. The size must be a multiple of 8.
void poison(std::span<std::byte> memory) noexcept;

} // namespace upcie::cli
