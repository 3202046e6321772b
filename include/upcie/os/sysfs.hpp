// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

namespace upcie::os {

/// Small files of text as sysfs and procfs have them. Threads: any, all of these.

/// The whole file, trailing white space cut off. Error: what open(2) and read(2) say; EFBIG above `largest` bytes.
[[nodiscard]] Result<std::string> read_text(System& system, const std::string& path,
                                            std::size_t largest = std::size_t{1} << 20);
/// A hexadecimal number alone in a file, with or without 0x ("0x010802"). Error: as read_text; EPROTO when it is none.
[[nodiscard]] Result<std::uint64_t> read_hex(System& system, const std::string& path);
/// A decimal number alone in a file, negative ones too (numa_node: -1). Error: as read_hex.
[[nodiscard]] Result<std::int64_t> read_decimal(System& system, const std::string& path);
/// Writes `text` in one write(2), as sysfs attributes want it; the file must exist.
/// Error: what open(2) and write(2) say; EIO for a short write.
Result<void> write_text(System& system, const std::string& path, std::string_view text);
/// Where a symbolic link points, as written in it. Error: what readlink(2) says; ENAMETOOLONG above 4095 bytes.
[[nodiscard]] Result<std::string> link_target(System& system, const std::string& path);
/// Last component of where a link points: the driver's name for ".../driver". Error: as link_target.
[[nodiscard]] Result<std::string> link_name(System& system, const std::string& path);
/// Names in a directory, sorted. Error: what opendir(3) and readdir(3) say.
[[nodiscard]] Result<std::vector<std::string>> list_names(System& system, const std::string& path);
/// True when stat(2) finds it; links are followed.
[[nodiscard]] bool exists(System& system, const std::string& path);

/// Strict parsing of a whole text: optional 0x, hexadecimal digits, nothing else; false on anything else or overflow.
[[nodiscard]] bool parse_hex(std::string_view text, std::uint64_t& value) noexcept;

} // namespace upcie::os
