// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// What the bytes of a trace are, for those that go through all of them.
enum class TraceBytes : std::uint8_t {
    block,  ///< of a call
    file,   ///< read from a file
    memory, ///< behind a mapping: commands for the GPU among it
};

/// All byte strings of a record, in a fixed order.
void for_each_bytes(Record& record, const std::function<void(std::vector<std::byte>&, TraceBytes)>& visit);
/// All texts of a record or a header that may hold a path or a name.
void for_each_text(Record& record, const std::function<void(std::string&)>& visit);
void for_each_text(TraceHeader& header, const std::function<void(std::string&)>& visit);
/// All fields that are addresses in the process.
void for_each_address(Record& record, const std::function<void(std::uint64_t&)>& visit);

} // namespace upcie::rm
