// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <upcie/rm/trace.hpp>

/// Records as lines of a trace (docs/rm-trace.md). Threads: any, one at a time for one string.
namespace upcie::rm {

/// Appends one line, newline included.
void append_line(std::string& text, const TraceHeader& header);
void append_line(std::string& text, const Record& record);

/// Appends `text` as a JSON string, quotes included. What is not UTF-8 becomes U+FFFD.
void append_json_text(std::string& json, std::string_view text);

/// "control", "gpu" ...: a kind as the format spells it.
[[nodiscard]] std::string_view kind_name(Node kind) noexcept;

} // namespace upcie::rm
