// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace upcie::nvme {

static_assert(std::endian::native == std::endian::little,
              "NVMe structures are little-endian and so are its users here");

/// The T at `offset`, which lies inside: the caller's structures have fixed sizes.
template <class T>
[[nodiscard]] T load_at(std::span<const std::byte> data, std::size_t offset) noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    std::memcpy(&value, data.data() + offset, sizeof value);
    return value;
}

} // namespace upcie::nvme
