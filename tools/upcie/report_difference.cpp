// SPDX-License-Identifier: BSD-3-Clause
#include "report_difference.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace upcie::cli {

namespace {

/// A row of a report as it is compared.
struct Row {
    std::string kind;
    std::string name;
    Json value;
    std::string unit;
};
using Rows = std::vector<Row>;

/// Rows of one name more than once are told apart by their turn.
void add_row(Rows& rows, std::map<std::string, unsigned>& turns, Row row) {
    const unsigned turn = ++turns[row.kind + "\n" + row.name];
    if (turn > 1) {
        row.name += fmt::format(" (no. {})", turn);
    }
    rows.push_back(std::move(row));
}

/// Each member of an object as a row, those of its parts with dots.
void add_members(Rows& rows, std::map<std::string, unsigned>& turns, const std::string& kind, const std::string& prefix,
                 const Json& object) {
    if (!object.is_object()) {
        return;
    }
    for (const auto& [member, value] : object.items()) {
        const std::string name = prefix.empty() ? member : prefix + "." + member;
        if (value.is_object()) {
            add_members(rows, turns, kind, name, value);
        } else {
            add_row(rows, turns, {kind, name, value, {}});
        }
    }
}

Rows rows_of_head(const MachineReport& report) {
    Rows rows;
    std::map<std::string, unsigned> turns;
    add_row(rows, turns, {"head", "machine", report.machine(), {}});
    add_members(rows, turns, "head", {}, report.host());
    for (const GpuFacts& gpu : report.gpus()) {
        add_row(rows, turns, {"head", "gpu", gpu.name, {}});
        add_row(rows, turns, {"head", "gpu_driver", gpu.driver, {}});
    }
    return rows;
}

Rows outcome_rows(const Json& entry) {
    Rows rows{{"outcome", "outcome", text_of(entry, "outcome"), {}}};
    const std::string reason = text_of(entry, "reason");
    if (!reason.empty()) {
        rows.push_back({"outcome", "reason", reason, {}});
    }
    return rows;
}

Rows rows_of_probe(const Json& entry, bool with_flavour) {
    const Json& report = member_of(entry, "report");
    Rows rows;
    std::map<std::string, unsigned> turns;
    if (with_flavour) {
        add_row(rows, turns, {"fact", "flavour", split_probe_name(text_of(entry, "probe")).flavour, {}});
    }
    for (Row& row : outcome_rows(entry)) {
        add_row(rows, turns, std::move(row));
    }
    add_row(rows, turns, {"fact", "iommu_mode", text_of(report, "iommu_mode"), {}});
    add_members(rows, turns, "fact", "device", member_of(report, "device"));
    add_members(rows, turns, "fact", "drivers", member_of(report, "drivers"));
    add_members(rows, turns, "process", {}, member_of(report, "processes"));
    for (const Json& answer : list_of(member_of(report, "verdict"), "answers")) {
        add_row(rows, turns, {"answer", text_of(answer, "topic"), text_of(answer, "answer"), {}});
    }
    for (const Json& control : list_of(report, "controls")) {
        const bool held = member_of(control, "held") == true;
        const std::string value = plain_text(member_of(control, "value"));
        add_row(rows, turns,
                {"control", text_of(control, "name"), fmt::format("{}{}", value, held ? "" : " (FAILED)"),
                 text_of(control, "unit")});
    }
    for (const Json& seen : list_of(report, "observations")) {
        const std::string process = text_of(seen, "process");
        add_row(rows, turns,
                {"observation", process.empty() ? text_of(seen, "name") : process + ": " + text_of(seen, "name"),
                 member_of(seen, "value"), text_of(seen, "unit")});
    }
    return rows;
}

void compare_rows(std::vector<Difference>& found, const std::string& probe, const Rows& a, const Rows& b, bool all) {
    const auto same = [](const Row& one) {
        return [&](const Row& other) { return other.kind == one.kind && other.name == one.name; };
    };
    const auto counts = [&](const Row& row) {
        // What a process had locked or pinned is of that moment; how it grew is an observation, and no moment's.
        const bool of_the_moment = row.kind == "process" && row.name.find(".Vm") != std::string::npos;
        return all || (!of_the_moment && !is_volatile(row.name, row.unit));
    };
    for (const Row& row : a) {
        if (!counts(row)) {
            continue;
        }
        const auto other = std::find_if(b.begin(), b.end(), same(row));
        if (other == b.end()) {
            found.push_back({probe, row.kind, row.name, row.value, {}, true, false, row.unit});
        } else if (counts(*other) && row.value != other->value) {
            found.push_back({probe, row.kind, row.name, row.value, other->value, false, false, row.unit});
        }
    }
    for (const Row& row : b) {
        if (counts(row) && std::none_of(a.begin(), a.end(), same(row))) {
            found.push_back({probe, row.kind, row.name, {}, row.value, false, true, row.unit});
        }
    }
}

/// The two reports' entries that are compared with one another, in the order of the first; null where there is none.
class Pairing {
  public:
    struct Pair {
        const Json* a;
        const Json* b;
    };

    Pairing(const Json& a, const Json& b) {
        for (const Json& entry : a) {
            pairs_.push_back({&entry, nullptr});
        }
        const auto same = [](const Json& one, const Json& other, const char* member) {
            return text_of(one, member) == text_of(other, member);
        };
        // The same probe with the same luck, the first with the first where one was asked of several devices.
        take(b, [&](const Json& one, const Json& other) {
            return way_of(one) == way_of(other) && same(one, other, "outcome");
        });
        // A question that each machine answered by a flavour of its own.
        take(b, [&](const Json& one, const Json& other) {
            return split_probe_name(text_of(one, "probe")).question ==
                       split_probe_name(text_of(other, "probe")).question &&
                   same(one, other, "variant") && same(one, other, "outcome") &&
                   text_of(one, "outcome") == probe_outcome::answered;
        });
        take(b, [&](const Json& one, const Json& other) { return way_of(one) == way_of(other); });
        for (const Json& entry : b) {
            if (taken_.count(&entry) == 0) {
                pairs_.push_back({nullptr, &entry});
            }
        }
    }
    [[nodiscard]] const std::vector<Pair>& pairs() const noexcept { return pairs_; }

  private:
    template <class Same>
    void take(const Json& b, Same same) {
        for (Pair& pair : pairs_) {
            if (pair.b != nullptr) {
                continue;
            }
            for (const Json& entry : b) {
                if (taken_.count(&entry) == 0 && same(*pair.a, entry)) {
                    pair.b = &entry;
                    taken_.insert(&entry);
                    break;
                }
            }
        }
    }

    std::vector<Pair> pairs_;
    std::set<const Json*> taken_;
};

} // namespace

bool is_volatile(std::string_view name, std::string_view unit) {
    if (unit == "outcome") {
        return false; // whatever is asked of an address or a descriptor, what came of it is not
    }
    constexpr std::array<std::string_view, 6> units{"address", "pid", "seconds", "ms", "us", "ns"};
    if (std::find(units.begin(), units.end(), unit) != units.end()) {
        return true;
    }
    constexpr std::array<std::string_view, 8> words{"address", "addresses", "pid",  "fd",
                                                    "inode",   "seconds",   "time", "elapsed"};
    const std::string_view bare = name.substr(0, name.find(" (no. "));
    const auto cut = bare.find_last_of("._");
    const std::string_view last = cut == std::string_view::npos ? bare : bare.substr(cut + 1);
    return std::find(words.begin(), words.end(), last) != words.end();
}

std::vector<Difference> differences(const MachineReport& a, const MachineReport& b, bool all) {
    std::vector<Difference> found;
    compare_rows(found, {}, rows_of_head(a), rows_of_head(b), all);
    const Pairing pairing{a.probes(), b.probes()};
    for (const Pairing::Pair& pair : pairing.pairs()) {
        const Json& shown = pair.a != nullptr ? *pair.a : *pair.b;
        const std::string probe = way_of(shown);
        if (pair.a == nullptr || pair.b == nullptr) {
            const Json outcome = text_of(shown, "outcome");
            found.push_back({probe,
                             "outcome",
                             "outcome",
                             pair.a != nullptr ? outcome : Json{},
                             pair.b != nullptr ? outcome : Json{},
                             pair.b == nullptr,
                             pair.a == nullptr,
                             {}});
            continue;
        }
        if (text_of(*pair.a, "outcome") != text_of(*pair.b, "outcome")) {
            // All that one of them saw would be rows that the other lacks, and say no more than this.
            compare_rows(found, probe, outcome_rows(*pair.a), outcome_rows(*pair.b), all);
            continue;
        }
        const bool other_flavour = way_of(*pair.b) != probe;
        compare_rows(found, other_flavour ? split_probe_name(text_of(shown, "probe")).question : probe,
                     rows_of_probe(*pair.a, other_flavour), rows_of_probe(*pair.b, other_flavour), all);
    }
    return found;
}

} // namespace upcie::cli
