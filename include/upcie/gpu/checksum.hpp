// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace upcie::gpu {

static_assert(std::endian::native == std::endian::little, "words are taken as the device has them");

/// A checksum that device code computes in any order and any number of threads: the sum, modulo 2^64, of every
/// 64-bit little-endian word mixed with its place. Finds words that differ, are missing, or lie elsewhere; no defence
/// against an adversary. Runtime::checksum() computes the same on the device.
///
/// `bytes` are whole words; what is left over counts as if filled up with zeros. Threads: any.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
    std::uint64_t sum = 0;
    std::uint64_t place = 0;
    for (std::size_t offset = 0; offset < bytes.size(); offset += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + offset,
                    bytes.size() - offset < sizeof word ? bytes.size() - offset : sizeof word);
        place += 0x9e3779b97f4a7c15; // odd: places do not repeat
        word ^= place;
        word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
        word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
        sum += word ^ (word >> 32);
    }
    return sum;
}

} // namespace upcie::gpu
