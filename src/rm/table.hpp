// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <upcie/rm/parameter_size.hpp>

namespace upcie::rm {

/// As the tables spell it.
inline constexpr std::uint32_t absent = ParameterSize::absent;

/// Whether the rows stand in ascending order of `key`, as find_in() needs them; checked when compiling.
template <class Row, std::size_t N, class Key>
[[nodiscard]] constexpr bool ascending(const Row (&table)[N], Key Row::*key) {
    return std::is_sorted(table, table + N, [key](const Row& a, const Row& b) { return a.*key < b.*key; });
}

/// The row of this number, or nullptr.
template <class Row, std::size_t N, class Key>
[[nodiscard]] const Row* find_in(const Row (&table)[N], Key Row::*key, std::uint32_t number) noexcept {
    const Row* row =
        std::lower_bound(table, table + N, number, [key](const Row& a, std::uint32_t b) { return a.*key < b; });
    return row != table + N && row->*key == number ? row : nullptr;
}

} // namespace upcie::rm
