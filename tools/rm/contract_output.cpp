// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/controls.hpp>

#include "commands.hpp"

namespace upcie::rm::tool {

namespace {

const char* kind_word(Ask::Kind kind) {
    switch (kind) {
    case Ask::Kind::escape:
        return "escape";
    case Ask::Kind::control:
        return "control";
    case Ask::Kind::allocation:
        return "class";
    case Ask::Kind::uvm:
        return "uvm";
    case Ask::Kind::other:
        break;
    }
    return "ioctl";
}

std::vector<std::pair<Ask, AskFacts>> asks_of(const Contract& contract, Point point) {
    std::vector<std::pair<Ask, AskFacts>> found;
    for (const auto& [ask, facts] : contract.asks) {
        if (point == Point::replies ? !facts.consumed.empty() : point_of(ask) == point) {
            found.emplace_back(ask, facts);
        }
    }
    std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.second.calls > b.second.calls; });
    return found;
}

/// What ioctls alone do not show of a point; empty where they show it.
std::string not_visible(const Contract& contract, Point point) {
    switch (point) {
    case Point::channels:
        return contract.channels != 0 && contract.memory_records == 0
                   ? "not visible: what is written to rings, USERD and doorbells (record with --memory)"
                   : "";
    case Point::events:
        return contract.events != 0
                   ? fmt::format("not visible: which interrupts fired; {} polls of nodes were seen", contract.polls)
                   : "";
    case Point::execution:
        return contract.channels == 0 ? ""
               : contract.memory_records == 0
                   ? "not visible: the commands themselves (record with --memory; `upcie_rm decode` then shows them)"
                   : fmt::format("{} pieces of memory were recorded; `upcie_rm decode` shows the commands in them",
                                 contract.memory_records);
    default:
        return "";
    }
}

std::string ask_line(const Contract& contract, const Ask& ask, const AskFacts& facts) {
    std::string line = fmt::format("  {:>6}x {} {}", facts.calls, kind_word(ask.kind), ask_name(ask, contract.version));
    line += fmt::format(", {} bytes", fmt::join(facts.sizes, "/"));
    if (facts.succeeded != facts.calls) {
        line += fmt::format(", {}", fmt::join(facts.outcomes, ", "));
    }
    if (facts.unknown && !facts.legacy) {
        line += " [in no public header]";
    }
    return line + "\n";
}

std::string replies_text(const Contract& contract) {
    std::string text;
    for (const auto& [ask, facts] : asks_of(contract, Point::replies)) {
        text += fmt::format("  {} - {}: {}\n", ask_name(ask, contract.version),
                            contract.consumed_measured_here ? "zeros lead to" : "on 550 zeros lead to", facts.consumed);
    }
    if (!contract.consumed_measured_here) {
        text += fmt::format("  measured with libcuda {} alone; for driver {} it is unknown which values matter\n",
                            consumed_controls_measured_on, contract.version.text());
    }
    const auto rest = std::ranges::count_if(contract.asks, [](const auto& ask) {
        return ask.first.kind == Ask::Kind::control && ask.second.consumed.empty();
    });
    return text + fmt::format("  {} other controls: unknown whether their values matter\n", rest);
}

} // namespace

std::string contract_text(const Contract& contract) {
    std::string text = fmt::format("driver {}: {} distinct asks\n", contract.version.text(), contract.asks.size());
    for (std::size_t i = 1; i <= points; ++i) {
        const auto point = static_cast<Point>(i);
        const auto asks = asks_of(contract, point);
        text += fmt::format("\n{}. {}: {}\n", i, point_name(point), asks.empty() ? "not asked for" : "needed");
        if (point == Point::replies) {
            text += replies_text(contract);
            continue;
        }
        for (const auto& [ask, facts] : asks) {
            text += ask_line(contract, ask, facts);
        }
        if (point == Point::control_device) {
            text += fmt::format("  {} opens of nodes; these files were looked at:\n", contract.node_opens);
            for (const std::string& file : contract.files) {
                text += "         " + file + "\n";
            }
        }
        if (point == Point::memory) {
            text += fmt::format("  {} mappings of nodes\n", contract.mappings);
        }
        const std::string hidden = not_visible(contract, point);
        text += hidden.empty() ? "" : "  " + hidden + "\n";
    }
    const auto refused = std::ranges::count_if(
        contract.asks, [&](const auto& entry) { return !contract.smallest.contains(entry.first); });
    const auto carriers =
        std::ranges::count_if(contract.smallest, [&](const Ask& ask) { return !contract.asks.contains(ask); });
    text += fmt::format("\nsmallest set to answer: {} asks", contract.smallest.size());
    text += carriers != 0 ? fmt::format(", {} of them escapes that carry others", carriers) : "";
    text += fmt::format("; {} more were refused by the driver itself each time\n", refused);
    for (const Ask& ask : contract.smallest) {
        text += fmt::format("  {} 0x{:x} # {}\n", kind_word(ask.kind), ask.number, ask_name(ask, contract.version));
    }
    return text;
}

Json contract_json(const Contract& contract) {
    Json json;
    json["schema"] = "upcie_rm contract";
    json["version"] = 1;
    json["driver"] = contract.version.text();
    json["consumed_measured_on"] = consumed_controls_measured_on;
    json["consumed_measured_here"] = contract.consumed_measured_here;
    json["points"] = Json::array();
    for (std::size_t i = 1; i <= points; ++i) {
        const auto point = static_cast<Point>(i);
        Json asks = Json::array();
        for (const auto& [ask, facts] : asks_of(contract, point)) {
            asks.push_back({{"kind", kind_word(ask.kind)},
                            {"number", hexadecimal(ask.number)},
                            {"name", ask_name(ask, contract.version)},
                            {"calls", facts.calls},
                            {"succeeded", facts.succeeded},
                            {"outcomes", facts.outcomes},
                            {"sizes", facts.sizes},
                            {"legacy", facts.legacy},
                            {"unknown", facts.unknown},
                            {"zeros_lead_to", facts.consumed.empty() ? Json("unknown") : Json(facts.consumed)},
                            {"must_answer", contract.smallest.contains(ask)}});
        }
        const std::string hidden = not_visible(contract, point);
        json["points"].push_back({{"number", i},
                                  {"name", point_name(point)},
                                  {"needed", !asks.empty()},
                                  {"asks", std::move(asks)},
                                  {"note", hidden}});
    }
    json["files"] = contract.files;
    json["smallest"] = contract.smallest.size();
    return json;
}

int contract(const ContractOptions& options, Streams streams) {
    std::vector<Opened> opened;
    int status = 0;
    for (const std::string& path : options.traces) {
        auto trace = open_trace(path, options.json ? Texts::as_they_are : Texts::printable, streams);
        if (!trace) {
            return complain(trace.error(), streams);
        }
        status = std::max(status, trace->status);
        opened.push_back(std::move(*trace));
    }
    std::vector<const Trace*> traces;
    for (const Opened& trace : opened) {
        traces.push_back(&trace.loaded.trace);
    }
    const Contract found = contract_of(traces);
    Json json = options.json ? contract_json(found) : Json{};
    std::string text = options.json ? "" : contract_text(found);
    if (!options.against.empty()) {
        const auto table = read_all(options.against);
        if (!table) {
            return complain(table.error(), streams);
        }
        const auto list = read_allow_list(*table, options.against);
        if (!list) {
            return complain(list.error(), streams);
        }
        const std::vector<Ask> refused = refused_by(found, *list);
        if (options.json) {
            json["refused"] = Json::array();
            for (const Ask& ask : refused) {
                json["refused"].push_back({{"kind", kind_word(ask.kind)},
                                           {"number", hexadecimal(ask.number)},
                                           {"name", ask_name(ask, found.version)},
                                           {"calls", found.asks.at(ask).calls},
                                           {"must_answer", found.smallest.contains(ask)}});
            }
        } else {
            text = fmt::format("{} would refuse {} of {} asks\n", options.against, refused.size(), found.asks.size());
            for (const Ask& ask : refused) {
                text += fmt::format("  {:>6}x {} {}{}\n", found.asks.at(ask).calls, kind_word(ask.kind),
                                    ask_name(ask, found.version),
                                    found.smallest.contains(ask) ? "" : ", which the driver refused too");
            }
        }
    }
    if (options.json) {
        streams.out << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    } else {
        streams.out << text;
    }
    return status;
}

} // namespace upcie::rm::tool
