// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <upcie/rm/trace.hpp>

/// Texts of a trace for a terminal: whoever wrote the file chose them, and a terminal obeys what is in them.
/// Threads: any, one at a time for one value.
namespace upcie::rm {

/// `text` with what a terminal would act on spelled out: control characters as \n, \t, \x1b; U+0080 to U+009F and what
/// turns the direction of writing as \u{202e}; a byte that is no UTF-8 as \xff. All else stays, a backslash too.
[[nodiscard]] std::string printable(std::string_view text);

/// The same for every text of a trace: headers, records, problems.
void make_printable(Trace& trace);

} // namespace upcie::rm
