// SPDX-License-Identifier: BSD-3-Clause
#include "hexdump.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

namespace upcie::cli {

void hexdump(std::ostream& out, std::span<const std::byte> data, std::uint64_t offset) {
    constexpr std::size_t width = 16;
    bool skipping = false;
    for (std::size_t at = 0; at < data.size(); at += width) {
        const auto line = data.subspan(at, std::min(width, data.size() - at));
        const bool last = at + width >= data.size();
        if (at >= width && !last &&
            std::equal(line.begin(), line.end(), data.begin() + static_cast<std::ptrdiff_t>(at - width))) {
            if (!skipping) {
                out << "*\n";
                skipping = true;
            }
            continue;
        }
        skipping = false;
        std::string text = fmt::format("{:010x} ", offset + at);
        std::string letters;
        for (std::size_t i = 0; i < width; ++i) {
            text += i == width / 2 ? "  " : " ";
            if (i >= line.size()) {
                text += "  ";
                continue;
            }
            const auto value = std::to_integer<unsigned>(line[i]);
            text += fmt::format("{:02x}", value);
            letters += value >= 0x20 && value < 0x7f ? static_cast<char>(value) : '.';
        }
        out << text << "  |" << letters << "|\n";
    }
}

void append_hex(std::string& text, std::span<const std::byte> data) {
    constexpr const char* digits = "0123456789abcdef";
    text.reserve(text.size() + data.size() * 2);
    for (const auto byte : data) {
        text += digits[std::to_integer<unsigned>(byte) >> 4];
        text += digits[std::to_integer<unsigned>(byte) & 0xf];
    }
}

} // namespace upcie::cli
