// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include <upcie/result.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

struct LoadedTrace {
    Trace trace;
    std::uint64_t lines = 0;
    bool cut_off = false; ///< no newline ends the last line
    /// Something else than the end of a killed tracer's file was wrong: what is shown is not all that happened.
    [[nodiscard]] bool damaged() const;
};

/// Reads a trace, also one compressed by xz (told by its first bytes, whatever its name); "-" is standard input. Error:
/// what open and read say; EINVAL for what is no trace; EBADMSG for a broken xz file; EFBIG for one that unpacks to
/// more than most_trace_bytes. Threads: any.
[[nodiscard]] Result<LoadedTrace> load_trace(const std::string& path);
/// The same of text in memory.
[[nodiscard]] Result<LoadedTrace> load_trace_text(std::string_view text, const std::string& subject);
inline constexpr std::uint64_t most_trace_bytes = std::uint64_t{8} << 30;

/// Says each problem of a trace, with its line, as "upcie_rm: FILE: line N: ...".
void report_problems(const LoadedTrace& loaded, const std::string& path, std::ostream& errors);

/// Reads a file or standard input ("-"). Error: what open and read say.
[[nodiscard]] Result<std::string> read_all(const std::string& path);
/// Unpacks xz. Error: EBADMSG, EFBIG, ENOMEM.
[[nodiscard]] Result<std::string> unpack_xz(std::string_view packed, const std::string& subject);
/// Packs as xz. Error: ENOMEM.
[[nodiscard]] Result<std::string> pack_xz(std::string_view text, const std::string& subject);
/// Writes a file; "-" is `out`; a name that ends in .xz is packed. Error: what open and write
/// say; of `out`, its own state tells.
[[nodiscard]] Result<void> write_all(const std::string& path, const std::string& text, std::ostream& out);

} // namespace upcie::rm
