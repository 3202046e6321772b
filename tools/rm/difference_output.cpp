// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"

namespace upcie::rm::tool {

namespace {

std::string step_line(const Step& step) {
    const std::string times = step.repeats > 1 ? fmt::format(" ({} times)", step.repeats) : "";
    return fmt::format("#{} {}, {} bytes: {}{}", step.sequence, step.name, step.size, step.outcome, times);
}

std::string divergence_text(const Divergence& found, const char* title) {
    std::string text = fmt::format("{}: thread {}, after {} steps that agree: {}\n", title, found.thread + 1,
                                   found.position, found.why);
    for (const Step& step : found.before) {
        text += "    both " + step_line(step) + "\n";
    }
    text += "    A    " + (found.a ? step_line(*found.a) : std::string{"has no more calls in this thread"}) + "\n";
    text += "    B    " + (found.b ? step_line(*found.b) : std::string{"has no more calls in this thread"}) + "\n";
    if (!found.offsets.empty()) {
        constexpr std::size_t most = 16;
        text += fmt::format("    bytes of the reply that differ (A, B):");
        for (std::size_t i = 0; i < std::min(found.offsets.size(), most); ++i) {
            const std::size_t at = found.offsets[i];
            const auto byte = [&](const Step& step) {
                return at < step.reply.size() ? fmt::format("{:02x}", std::to_integer<unsigned>(step.reply[at])) : "--";
            };
            text += fmt::format(" {}({},{})", at, byte(*found.a), byte(*found.b));
        }
        text += found.offsets.size() > most ? " ...\n" : "\n";
    }
    return text;
}

Json step_json(const std::optional<Step>& step) {
    if (!step) {
        return nullptr;
    }
    return {{"sequence", step->sequence},
            {"name", step->name},
            {"size", step->size},
            {"outcome", step->outcome},
            {"repeats", step->repeats}};
}

Json divergence_json(const std::optional<Divergence>& found) {
    if (!found) {
        return nullptr;
    }
    return {{"why", found->why},        {"thread", found->thread},  {"position", found->position},
            {"a", step_json(found->a)}, {"b", step_json(found->b)}, {"offsets", found->offsets}};
}

std::string ask_lines(const Difference& difference) {
    std::string only_a;
    std::string only_b;
    std::string changed;
    for (const AskDifference& ask : difference.asks) {
        const std::string name =
            ask_name(ask.ask, difference.version_b.known() ? difference.version_b : difference.version_a);
        if (ask.only_a()) {
            only_a += fmt::format("  {:>6}x {}: {}\n", ask.calls_a, name, fmt::join(ask.outcomes_a, ", "));
            continue;
        }
        if (ask.only_b()) {
            only_b += fmt::format("  {:>6}x {}: {}\n", ask.calls_b, name, fmt::join(ask.outcomes_b, ", "));
            continue;
        }
        std::string line;
        if (ask.calls_a != ask.calls_b) {
            line += fmt::format("; calls {} and {}", ask.calls_a, ask.calls_b);
        }
        if (ask.sizes_a != ask.sizes_b) {
            line += fmt::format("; bytes {} and {}", fmt::join(ask.sizes_a, "/"), fmt::join(ask.sizes_b, "/"));
        }
        if (ask.outcomes_a != ask.outcomes_b) {
            line +=
                fmt::format("; outcome {} and {}", fmt::join(ask.outcomes_a, ", "), fmt::join(ask.outcomes_b, ", "));
        }
        if (ask.changed_replies != 0) {
            line += fmt::format("; {} replies differ, the first at byte {}", ask.changed_replies,
                                ask.changed_offsets.empty() ? 0 : ask.changed_offsets.front());
        }
        changed += fmt::format("  {}: {}\n", name, line.substr(2));
    }
    std::string text;
    text += only_a.empty() ? "" : "\nasked by A alone\n" + only_a;
    text += only_b.empty() ? "" : "\nasked by B alone\n" + only_b;
    text += changed.empty() ? "" : "\nasked by both, with a difference\n" + changed;
    return text;
}

} // namespace

std::string difference_text(const Difference& difference, bool first_divergence) {
    std::string text = fmt::format("A: driver {}, {} steps; B: driver {}, {} steps\n", difference.version_a.text(),
                                   difference.steps_a, difference.version_b.text(), difference.steps_b);
    if (difference.same()) {
        return text + "no difference\n";
    }
    text += difference.first_reply ? divergence_text(*difference.first_reply, "first other reply") : "";
    text += difference.first ? divergence_text(*difference.first, "first divergence")
                             : std::string{"all steps agree in call, size and outcome\n"};
    return first_divergence ? text : text + ask_lines(difference);
}

Json difference_json(const Difference& difference, bool first_divergence) {
    Json json;
    json["schema"] = "upcie_rm diff";
    json["version"] = 1;
    json["driver_a"] = difference.version_a.text();
    json["driver_b"] = difference.version_b.text();
    json["steps_a"] = difference.steps_a;
    json["steps_b"] = difference.steps_b;
    json["same"] = difference.same();
    json["first_divergence"] = divergence_json(difference.first);
    json["first_reply"] = divergence_json(difference.first_reply);
    if (first_divergence) {
        return json;
    }
    json["asks"] = Json::array();
    for (const AskDifference& ask : difference.asks) {
        json["asks"].push_back({{"name", ask_name(ask.ask, difference.version_b)},
                                {"number", hexadecimal(ask.ask.number)},
                                {"calls_a", ask.calls_a},
                                {"calls_b", ask.calls_b},
                                {"sizes_a", ask.sizes_a},
                                {"sizes_b", ask.sizes_b},
                                {"outcomes_a", ask.outcomes_a},
                                {"outcomes_b", ask.outcomes_b},
                                {"changed_replies", ask.changed_replies},
                                {"changed_offsets", ask.changed_offsets}});
    }
    return json;
}

int diff(const DiffOptions& options, Streams streams) {
    const Texts texts = options.json ? Texts::as_they_are : Texts::printable;
    const auto a = open_trace(options.a, texts, streams);
    if (!a) {
        return complain(a.error(), streams);
    }
    const auto b = open_trace(options.b, texts, streams);
    if (!b) {
        return complain(b.error(), streams);
    }
    const Difference difference = compare(a->loaded.trace, b->loaded.trace, !options.no_replies);
    if (options.json) {
        streams.out
            << difference_json(difference, options.first_divergence).dump(1, ' ', false, Json::error_handler_t::replace)
            << '\n';
    } else {
        streams.out << difference_text(difference, options.first_divergence);
    }
    return std::max(a->status, b->status);
}

} // namespace upcie::rm::tool
