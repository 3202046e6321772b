// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

namespace upcie::cli {

/// Sixteen bytes a line, with their offset and as text; runs of equal lines are one "*", as in hexdump(1) -C.
void hexdump(std::ostream& out, std::span<const std::byte> data, std::uint64_t offset);

/// Two digits a byte, nothing between.
void append_hex(std::string& text, std::span<const std::byte> data);

} // namespace upcie::cli
