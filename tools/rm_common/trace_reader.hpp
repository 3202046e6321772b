// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <istream>
#include <string>
#include <string_view>

#include <upcie/result.hpp>
#include <upcie/rm/trace.hpp>

/// Reading of traces (docs/rm-trace.md). Nothing in a file is trusted: a line that cannot be understood becomes a
/// problem with its number, and the others are read. Threads: any.
namespace upcie::rm {

/// Reads a whole trace. `problems` of the answer names every line that was left out, a file that ends inside a line,
/// gaps in the numbering of a run, a header's driver that is no version, and, once a run, records and headers that are
/// there a second time, which are left out.
[[nodiscard]] Trace parse_trace(std::istream& lines);
[[nodiscard]] Trace parse_trace(std::string_view text);

/// The same of a file; "-" is standard input. Error: what open says; EINVAL for one that holds no header of a trace,
/// or only such of a newer format.
[[nodiscard]] Result<Trace> read_trace(const std::string& path);

} // namespace upcie::rm
