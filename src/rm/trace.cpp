// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/trace.hpp>

#include <array>

namespace upcie::rm {

std::string_view type_name(const Record& record) noexcept {
    // In the order of the variant.
    constexpr std::array<std::string_view, std::variant_size_v<decltype(Record::body)>> names{
        "ioctl", "open",  "stat", "read", "close",   "duplicate", "pass", "map",     "unmap",
        "poll",  "birth", "exec", "exit", "library", "memory",    "note", "summary", {}};
    if (const auto* unknown = std::get_if<UnknownRecord>(&record.body)) {
        return unknown->type;
    }
    return names[record.body.index()];
}

} // namespace upcie::rm
