// SPDX-License-Identifier: BSD-3-Clause
#include "stamps.hpp"

#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace upcie::cli {

namespace {

constexpr std::uint64_t magic = 0x3154534549435055ULL; // "UPCIEST1"
constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
constexpr std::size_t header_words = 5; // what the check covers

constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

constexpr std::uint64_t little(std::uint64_t value) noexcept {
    return std::endian::native == std::endian::little ? value : __builtin_bswap64(value);
}

std::uint64_t load(std::span<const std::byte> block, std::size_t word) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, block.data() + word * 8, 8);
    return little(value);
}

void store(std::span<std::byte> block, std::size_t word, std::uint64_t value) noexcept {
    value = little(value);
    std::memcpy(block.data() + word * 8, &value, 8);
}

using Header = std::array<std::uint64_t, header_words + 1>; // with the check

Header header_of(const Stamp& stamp) noexcept {
    Header header{magic, stamp.seed, stamp.nsid | (std::uint64_t{stamp.block_size} << 32), stamp.lba, stamp.pass, 0};
    std::uint64_t check = 0;
    for (std::size_t i = 0; i < header_words; ++i) {
        check = mix(check ^ header[i]);
    }
    header[header_words] = check;
    return header;
}

constexpr std::uint64_t pattern_word(std::uint64_t check, std::size_t index) noexcept {
    return mix(check + (std::uint64_t{index} + 1) * golden);
}

std::uint64_t expected_word(const Header& header, std::size_t word) noexcept {
    return word < header.size() ? header[word] : pattern_word(header[header_words], word - header.size());
}

bool matches(std::span<const std::byte> block, const Header& header) noexcept {
    const std::size_t words = block.size() / 8;
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < words; ++i) {
        difference |= load(block, i) ^ expected_word(header, i);
    }
    return difference == 0;
}

bool all_words_are(std::span<const std::byte> block, std::uint64_t value) noexcept {
    for (std::size_t i = 0; i < block.size() / 8; ++i) {
        if (load(block, i) != value) {
            return false;
        }
    }
    return true;
}

/// Fills in where the block parts from what was expected; answers how many words differ.
std::size_t find_difference(std::span<const std::byte> block, const Header& header, BlockFinding& finding) noexcept {
    std::size_t bad_words = 0;
    for (std::size_t i = 0; i < block.size() / 8; ++i) {
        const std::uint64_t found = load(block, i);
        const std::uint64_t expected = expected_word(header, i);
        if (found == expected) {
            continue;
        }
        ++bad_words;
        for (unsigned byte = 0; byte < 8; ++byte) {
            const auto found_byte = static_cast<std::uint8_t>(found >> (8 * byte));
            const auto expected_byte = static_cast<std::uint8_t>(expected >> (8 * byte));
            if (found_byte == expected_byte) {
                continue;
            }
            if (finding.bad_bytes++ == 0) {
                finding.first_bad_byte = i * 8 + byte;
                finding.found_byte = found_byte;
                finding.expected_byte = expected_byte;
            }
        }
    }
    return bad_words;
}

BlockVerdict verdict_of_intact(const Stamp& found, const Stamp& expected) noexcept {
    if (found.lba != expected.lba) {
        return BlockVerdict::misplaced;
    }
    if (found.seed != expected.seed) {
        return BlockVerdict::other_run;
    }
    if (found.nsid != expected.nsid || found.block_size != expected.block_size) {
        return BlockVerdict::other_namespace;
    }
    return BlockVerdict::stale;
}

} // namespace

std::string_view to_string(BlockVerdict verdict) noexcept {
    switch (verdict) {
    case BlockVerdict::good:
        return "good";
    case BlockVerdict::untouched:
        return "untouched";
    case BlockVerdict::zero:
        return "zero";
    case BlockVerdict::misplaced:
        return "misplaced";
    case BlockVerdict::stale:
        return "stale";
    case BlockVerdict::other_run:
        return "other-run";
    case BlockVerdict::other_namespace:
        return "other-namespace";
    case BlockVerdict::corrupt:
        return "corrupt";
    case BlockVerdict::foreign:
        return "foreign";
    }
    return "unknown";
}

void write_stamp(std::span<std::byte> block, const Stamp& stamp) noexcept {
    const Header header = header_of(stamp);
    for (std::size_t i = 0; i < header.size(); ++i) {
        store(block, i, header[i]);
    }
    const std::size_t words = block.size() / 8;
    for (std::size_t i = header.size(); i < words; ++i) {
        store(block, i, pattern_word(header[header_words], i - header.size()));
    }
}

std::optional<Stamp> read_stamp(std::span<const std::byte> block) noexcept {
    if (block.size() < smallest_stamped_block || load(block, 0) != magic) {
        return std::nullopt;
    }
    Stamp stamp;
    stamp.seed = load(block, 1);
    stamp.nsid = static_cast<std::uint32_t>(load(block, 2));
    stamp.block_size = static_cast<std::uint32_t>(load(block, 2) >> 32);
    stamp.lba = load(block, 3);
    stamp.pass = load(block, 4);
    if (load(block, header_words) != header_of(stamp)[header_words]) {
        return std::nullopt;
    }
    return stamp;
}

BlockFinding judge_block(std::span<const std::byte> block, const Stamp& expected) {
    BlockFinding finding;
    const Header header = header_of(expected);
    if (matches(block, header)) {
        finding.found = expected;
        return finding;
    }
    finding.found = read_stamp(block);
    if (all_words_are(block, poison_word)) {
        finding.verdict = BlockVerdict::untouched;
        return finding;
    }
    if (all_words_are(block, 0)) {
        finding.verdict = BlockVerdict::zero;
        return finding;
    }
    if (finding.found && matches(block, header_of(*finding.found))) {
        finding.verdict = verdict_of_intact(*finding.found, expected);
        return finding;
    }
    const std::size_t bad_words = find_difference(block, header, finding);
    const bool mostly_as_expected = bad_words * 2 <= block.size() / 8;
    if (finding.found && !mostly_as_expected) {
        // Another block's stamp with a damaged pattern: the damage is counted against that block.
        finding.bad_bytes = 0;
        find_difference(block, header_of(*finding.found), finding);
    }
    finding.verdict = finding.found || mostly_as_expected ? BlockVerdict::corrupt : BlockVerdict::foreign;
    return finding;
}

std::string BlockFinding::describe(const Stamp& expected) const {
    const std::string place = fmt::format("LBA {}", expected.lba);
    const auto found_stamp = found.value_or(Stamp{});
    switch (verdict) {
    case BlockVerdict::good:
        return place + " is as written";
    case BlockVerdict::untouched:
        return place +
               " was read with success, but no data arrived in memory: the DMA went elsewhere or was dropped (look "
               "for IOMMU faults in dmesg)";
    case BlockVerdict::zero:
        return place + " holds zeroes: it was never written, was deallocated, or the write was lost";
    case BlockVerdict::misplaced: {
        std::string text = fmt::format("{} holds the block written for LBA {}", place, found_stamp.lba);
        if (found_stamp.seed != expected.seed) {
            text += fmt::format(" by another run (seed {:#x})", found_stamp.seed);
        } else if (found_stamp.nsid != expected.nsid) {
            text += fmt::format(" of namespace {}", found_stamp.nsid);
        } else if (found_stamp.pass != expected.pass) {
            text += fmt::format(" in pass {}", found_stamp.pass);
        }
        return text;
    }
    case BlockVerdict::stale:
        return fmt::format("{} is stale: it holds pass {} of this run where pass {} was expected", place,
                           found_stamp.pass, expected.pass);
    case BlockVerdict::other_run:
        return fmt::format("{} holds the block of another run: seed {:#x}, expected {:#x}", place, found_stamp.seed,
                           expected.seed);
    case BlockVerdict::other_namespace:
        return fmt::format(
            "{} holds a block written for namespace {} with {}-byte blocks, expected namespace {} with {}", place,
            found_stamp.nsid, found_stamp.block_size, expected.nsid, expected.block_size);
    case BlockVerdict::corrupt: {
        std::string text =
            fmt::format("{} is corrupt: {} of {} bytes differ, the first at byte {} (found {:#04x}, expected "
                        "{:#04x}",
                        place, bad_bytes, expected.block_size, first_bad_byte, found_byte, expected_byte);
        const auto flipped = static_cast<std::uint8_t>(found_byte ^ expected_byte);
        text += bad_bytes == 1 && std::has_single_bit(flipped) ? ", a single bit)" : ")";
        if (found && found->lba != expected.lba) {
            text += fmt::format("; its stamp is that of LBA {}", found->lba);
        }
        return text;
    }
    case BlockVerdict::foreign:
        return fmt::format("{} holds foreign data: no stamp, {} of {} bytes differ", place, bad_bytes,
                           expected.block_size);
    }
    return place;
}

void poison(std::span<std::byte> memory) noexcept {
    for (std::size_t i = 0; i < memory.size() / 8; ++i) {
        store(memory, i, poison_word);
    }
}

} // namespace upcie::cli
