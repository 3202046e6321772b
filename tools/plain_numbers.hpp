// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace upcie {

/// Whether `text` is a number as people mean it: decimal, or 0x and hexadecimal, that fits 64 bits. No sign, and no 0
/// in front, which some take for octal.
[[nodiscard]] bool is_plain_number(std::string_view text) noexcept;

/// The same with a unit behind it, as in 64K or 1.5GiB.
[[nodiscard]] bool is_plain_size(std::string_view text) noexcept;

/// For CLI11, before CLI::AsSizeValue: what is wrong with `text`, or nothing.
[[nodiscard]] std::string check_plain_size(const std::string& text);

} // namespace upcie
