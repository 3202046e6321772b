// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/call.hpp>
#include <upcie/rm/escapes.hpp>

#include "commands.hpp"

namespace upcie::rm::tool {

namespace {

/// One table of the summary, the most frequent first, equal counts by number.
template <class Number, class Name>
std::string table(const char* title, const std::map<Number, Tally>& tallies, const Name& name) {
    if (tallies.empty()) {
        return {};
    }
    std::vector<std::pair<Number, Tally>> rows{tallies.begin(), tallies.end()};
    std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second.calls > b.second.calls; });
    std::uint64_t calls = 0;
    std::string text;
    for (const auto& [number, tally] : rows) {
        calls += tally.calls;
        text += fmt::format("{:>8} {:>7} {:>11}  {}\n", tally.calls,
                            tally.failures == 0 ? "" : fmt::format("{}", tally.failures), time_text(tally.nanoseconds),
                            name(number));
    }
    return fmt::format("\n{}: {} calls, {} distinct\n   calls  failed        time\n", title, calls, rows.size()) + text;
}

template <class Number, class Name>
Json list(const std::map<Number, Tally>& tallies, const Name& name) {
    Json json = Json::array();
    for (const auto& [number, tally] : tallies) {
        json.push_back({{"number", hexadecimal(number)},
                        {"name", name(number)},
                        {"calls", tally.calls},
                        {"failures", tally.failures},
                        {"nanoseconds", tally.nanoseconds}});
    }
    return json;
}

std::string numbered_escape(std::uint32_t number) {
    return fmt::format("0x{:02x} {}", number, escape_name(number));
}
std::string numbered_uvm(std::uint32_t number) {
    return fmt::format("{} {}", number >= 0x1000 ? hexadecimal(number) : fmt::format("{}", number), uvm_name(number));
}

} // namespace

std::string summary_text(const Trace& trace, const Summary& summary) {
    const DriverVersion version = driver_version(trace);
    std::string text = header_text(trace);
    text += fmt::format("{} ioctls, {} in them, of {} from the first call to the last; {} processes, {} threads\n",
                        summary.ioctls, time_text(summary.nanoseconds), time_text(summary.elapsed_nanoseconds),
                        summary.processes, summary.threads);
    if (summary.unfinished != 0) {
        text += fmt::format("{} of them never returned\n", summary.unfinished);
    }
    text += "\nioctls by node\n";
    for (const auto& [node, count] : summary.nodes) {
        text += fmt::format("{:>8}  {}\n", count, node);
    }
    text += table("escapes", summary.escapes, numbered_escape);
    text += table("of these by XFER (0xd3), counted above as what it wraps", summary.xfer_wrapped, numbered_escape);
    text += table("classes allocated", summary.classes, class_name);
    text += table("controls", summary.controls, [&](std::uint32_t number) { return control_name(number, version); });
    text += table("UVM commands", summary.uvm, numbered_uvm);
    text += table("other ioctls", summary.others, hexadecimal);
    if (!summary.failed.empty()) {
        text += "\nfailures\n";
        for (const auto& [what, count] : summary.failed) {
            text += fmt::format("{:>8}  {}\n", count, what);
        }
    }
    text += "\nrecords by type\n";
    for (const auto& [type, count] : summary.records) {
        text += fmt::format("{:>8}  {}\n", count, type);
    }
    return text;
}

Json summary_json(const Trace& trace, const Summary& summary) {
    const DriverVersion version = driver_version(trace);
    Json json = header_json(trace);
    json["ioctls"] = summary.ioctls;
    json["unfinished"] = summary.unfinished;
    json["nanoseconds"] = summary.nanoseconds;
    json["elapsed_nanoseconds"] = summary.elapsed_nanoseconds;
    json["processes"] = summary.processes;
    json["threads"] = summary.threads;
    json["nodes"] = summary.nodes;
    json["escapes"] = list(summary.escapes, escape_name);
    json["xfer_wrapped"] = list(summary.xfer_wrapped, escape_name);
    json["classes"] = list(summary.classes, class_name);
    json["controls"] = list(summary.controls, [&](std::uint32_t number) { return control_name(number, version); });
    json["uvm"] = list(summary.uvm, uvm_name);
    json["others"] = list(summary.others, hexadecimal);
    json["failures"] = summary.failed;
    json["records"] = summary.records;
    return json;
}

} // namespace upcie::rm::tool
