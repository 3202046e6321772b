// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace upcie::sim {

/// Decimal or 0x…, all of the text, no sign.
[[nodiscard]] inline std::optional<std::uint64_t> parse_number(std::string_view text) {
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
        base = 16;
        text.remove_prefix(2);
    }
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (code != std::errc{} || end != text.data() + text.size() || text.empty()) {
        return std::nullopt;
    }
    return value;
}

/// A number that may end in K, M, G or T, powers of 1024.
[[nodiscard]] inline std::optional<std::uint64_t> parse_size(std::string_view text) {
    unsigned shift = 0;
    if (!text.empty() && !text.starts_with("0x")) {
        switch (text.back()) {
        case 'K':
        case 'k':
            shift = 10;
            break;
        case 'M':
        case 'm':
            shift = 20;
            break;
        case 'G':
        case 'g':
            shift = 30;
            break;
        case 'T':
        case 't':
            shift = 40;
            break;
        default:
            break;
        }
    }
    if (shift != 0) {
        text.remove_suffix(1);
    }
    const auto number = parse_number(text);
    if (!number || *number > std::numeric_limits<std::uint64_t>::max() >> shift) {
        return std::nullopt;
    }
    return *number << shift;
}

/// "100" or "100..199", both included.
[[nodiscard]] inline std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_span(std::string_view text) {
    const std::size_t dots = text.find("..");
    const auto first = parse_number(text.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : parse_number(text.substr(dots + 2));
    if (!first || !last || *last < *first) {
        return std::nullopt;
    }
    return std::pair{*first, *last};
}

/// Parts between separators; an empty text has none.
[[nodiscard]] inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            break;
        }
        text.remove_prefix(end + 1);
    }
    return parts;
}

} // namespace upcie::sim
