// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace upcie::rm {

/// Bytes of the UTF-8 sequence at the beginning of `text`, 0 when there is none (RFC 3629: no overlong form, no
/// surrogate, nothing above U+10FFFF).
[[nodiscard]] constexpr std::size_t utf8_sequence(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (text.empty()) {
        return 0;
    }
    const unsigned first = at(0);
    const std::size_t bytes = first < 0x80                    ? 1
                              : first >= 0xc2 && first < 0xe0 ? 2
                              : first >= 0xe0 && first < 0xf0 ? 3
                              : first >= 0xf0 && first < 0xf5 ? 4
                                                              : 0;
    if (bytes == 0 || text.size() < bytes) {
        return 0;
    }
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((at(i) & 0xc0U) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (first == 0xe0 && at(1) < 0xa0) || (first == 0xf0 && at(1) < 0x90);
    const bool surrogate = first == 0xed && at(1) >= 0xa0;
    const bool too_high = first == 0xf4 && at(1) >= 0x90;
    return overlong || surrogate || too_high ? 0 : bytes;
}

} // namespace upcie::rm
