// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace upcie::rm {

/// A little-endian number at `offset` of `block`, or nothing where it does not lie within. Every driver of this
/// contract runs little-endian.
template <class Number>
[[nodiscard]] constexpr std::optional<Number> load(std::span<const std::byte> block, std::size_t offset) noexcept {
    if (offset > block.size() || block.size() - offset < sizeof(Number)) {
        return std::nullopt;
    }
    Number value = 0;
    for (std::size_t i = sizeof(Number); i-- > 0;) {
        value = static_cast<Number>(static_cast<std::uint64_t>(value) << 8 |
                                    std::to_integer<std::uint64_t>(block[offset + i]));
    }
    return value;
}

[[nodiscard]] constexpr auto load_u8(std::span<const std::byte> block, std::size_t offset) noexcept {
    return load<std::uint8_t>(block, offset);
}
[[nodiscard]] constexpr auto load_u16(std::span<const std::byte> block, std::size_t offset) noexcept {
    return load<std::uint16_t>(block, offset);
}
[[nodiscard]] constexpr auto load_u32(std::span<const std::byte> block, std::size_t offset) noexcept {
    return load<std::uint32_t>(block, offset);
}
[[nodiscard]] constexpr auto load_u64(std::span<const std::byte> block, std::size_t offset) noexcept {
    return load<std::uint64_t>(block, offset);
}

} // namespace upcie::rm
