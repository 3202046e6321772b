// SPDX-License-Identifier: BSD-3-Clause
#include "plain_numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace upcie {

namespace {

bool is_digit(char letter) noexcept {
    return letter >= '0' && letter <= '9';
}

} // namespace

bool is_plain_number(std::string_view text) noexcept {
    const bool hexadecimal = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const std::string_view digits = text.substr(hexadecimal ? 2 : 0);
    if (digits.empty() || (!hexadecimal && digits.size() > 1 && digits[0] == '0')) {
        return false;
    }
    std::uint64_t value = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
    return problem == std::errc{} && end == digits.data() + digits.size();
}

bool is_plain_size(std::string_view text) noexcept {
    if (is_plain_number(text)) {
        return true;
    }
    const auto behind = std::find_if_not(text.begin(), text.end(), is_digit);
    const auto whole = text.substr(0, static_cast<std::size_t>(behind - text.begin()));
    if (!is_plain_number(whole)) {
        return false;
    }
    std::string_view rest = text.substr(whole.size());
    if (!rest.empty() && rest.front() == '.') {
        rest.remove_prefix(1);
        const auto unit = std::find_if_not(rest.begin(), rest.end(), is_digit);
        if (unit == rest.begin()) {
            return false;
        }
        rest.remove_prefix(static_cast<std::size_t>(unit - rest.begin()));
    }
    constexpr std::string_view letters = "kKmMgGtTpPeEiIbB ";
    return std::all_of(rest.begin(), rest.end(),
                       [&](char letter) { return letters.find(letter) != std::string_view::npos; });
}

std::string check_plain_size(const std::string& text) {
    return is_plain_size(text) ? std::string{}
                               : "'" + text +
                                     "' is no size from 0 to 2^64-1 (decimal, or 0x and hexadecimal, and a unit "
                                     "such as K or MiB)";
}

} // namespace upcie
