// SPDX-License-Identifier: BSD-3-Clause
#include "report_page.hpp"

#include "report_facts.hpp"

// report.md, part by part in the order of the page.
namespace upcie::cli {

const char* const page_mark =
    "<!-- Made by `upcie report` from report.json. Do not edit: `upcie report --render` makes it "
    "anew. -->";

namespace {

/// A sentence from elsewhere in running text: one line, and no mark-up of its own.
std::string sentence_text(std::string text) {
    text = markdown_cell(text);
    if (!text.empty() && text.back() != '.' && text.back() != '!' && text.back() != '?') {
        text += '.';
    }
    return text;
}

/// "name a, pci b": what stands flat in an object.
std::string flat_members(const Json& object) {
    std::string text;
    if (!object.is_object()) {
        return text;
    }
    for (const auto& [name, value] : object.items()) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                            value.is_object() ? fmt::format("({})", flat_members(value)) : plain_text(value));
    }
    return text;
}

std::string title_of_probe(const Json& entry) {
    const std::string device = text_of(entry, "device");
    return device.empty() ? way_of(entry) : fmt::format("{} on {}", way_of(entry), device);
}

std::string outcome_words(std::string_view outcome) {
    return outcome == probe_outcome::not_asked   ? "not asked"
           : outcome == probe_outcome::timed_out ? "killed, out of time"
           : outcome == probe_outcome::absent    ? "not there"
                                                 : std::string{outcome};
}

bool has_answers(const Json& entry) {
    return text_of(entry, "outcome") == probe_outcome::answered;
}

std::vector<std::string> failed_controls_of(const Json& probe_report) {
    std::vector<std::string> failed;
    for (const Json& control : list_of(probe_report, "controls")) {
        if (member_of(control, "held") != true) {
            failed.push_back(text_of(control, "name"));
        }
    }
    return failed;
}

std::string head(const MachineReport& report) {
    std::string page = fmt::format("{}\n# {}\n\n", page_mark, markdown_cell(report.machine()));
    if (report.elsewhere()) {
        page += fmt::format("> **Measured elsewhere.** {} What was not noted there is *{}*: it says nothing about the "
                            "machine.\n\n",
                            sentence_text(text_of(report.json(), "source")), not_recorded);
    }
    page += "| | |\n|---|---|\n";
    const auto row = [&](const char* title, const std::string& value) {
        page += fmt::format("| {} | {} |\n", title, value.empty() ? not_recorded : markdown_cell(value));
    };
    const Json& host = report.host();
    if (!text_of(host, "name").empty()) {
        row("host", text_of(host, "name"));
    }
    row("kernel", text_of(host, "kernel"));
    row("IOMMU", text_of(host, "iommu"));
    const std::string vendor = text_of(host, "cpu_vendor");
    const std::string model = text_of(host, "cpu");
    row("processor", vendor.empty() || model.empty() ? model + vendor : fmt::format("{} ({})", model, vendor));
    row("distribution", text_of(host, "distribution"));
    if (const Json& uid = member_of(host, "uid"); !uid.is_null()) {
        row("run as", fmt::format("uid {}", plain_text(uid)));
    }
    const auto gpus = report.gpus();
    if (gpus.empty()) {
        page += "| GPU | none that a probe could ask |\n";
    }
    for (const GpuFacts& gpu : gpus) {
        row("GPU", gpu.pci.empty() ? gpu.name : fmt::format("{} at {}", gpu.name, gpu.pci));
        row("GPU's driver", gpu.driver);
    }
    if (!report.elsewhere()) {
        const std::string by = text_of(report.json(), "tool_version");
        const std::string date = text_of(report.json(), "created");
        row("made", fmt::format("{}{}", date.empty() ? "" : date + ", ", by.empty() ? "" : "by upcie " + by));
    }
    return page;
}

std::string warnings(const MachineReport& report) {
    std::string page;
    for (const Json& entry : report.probes()) {
        const auto failed = failed_controls_of(member_of(entry, "report"));
        if (!failed.empty()) {
            page += fmt::format("\n> **A control failed** in {}: {}. What it guards is inconclusive.\n",
                                markdown_cell(title_of_probe(entry)),
                                markdown_cell(fmt::format("{}", fmt::join(failed, ", "))));
        }
    }
    return page;
}

/// One row a probe: the answers in a word each, or why there are none.
std::string overview(const MachineReport& report) {
    std::string page = "\n## What was asked\n\n";
    const Json& only = list_of(report.json(), "only");
    if (!only.empty()) {
        page += fmt::format("Only these probes were chosen (`--only`): {}.\n\n", markdown_cell(plain_text(only)));
    }
    page += "| probe | outcome | answers, or why there are none |\n|---|---|---|\n";
    for (const Json& entry : report.probes()) {
        std::string words;
        if (has_answers(entry)) {
            for (const Json& answer : list_of(member_of(member_of(entry, "report"), "verdict"), "answers")) {
                words += fmt::format("{}{}: **{}**", words.empty() ? "" : ", ", markdown_cell(text_of(answer, "topic")),
                                     markdown_cell(text_of(answer, "answer")));
            }
        } else {
            words = markdown_cell(text_of(entry, "reason"));
        }
        page += fmt::format("| {} | {} | {} |\n", markdown_cell(title_of_probe(entry)),
                            outcome_words(text_of(entry, "outcome")), words);
    }
    return page;
}

/// The rows by which machines are compared, where there is a GPU to compare.
std::string glance(const MachineReport& report) {
    if (report.gpus().empty()) {
        return {};
    }
    std::string page = "\n## Device memory at a glance\n\n| | |\n|---|---|\n";
    for (const FactRow& row : fact_rows()) {
        page += fmt::format("| {} | {} |\n", row.fact, markdown_cell(fact_of(report, row)));
    }
    return page;
}

std::string verdict(const Json& probe_report) {
    std::string page = "\n**Verdict**\n\n";
    const Json& answers = list_of(member_of(probe_report, "verdict"), "answers");
    for (const Json& answer : answers) {
        page += fmt::format("- {}: **{}**. {}\n", markdown_cell(text_of(answer, "topic")),
                            markdown_cell(text_of(answer, "answer")), sentence_text(text_of(answer, "sentence")));
    }
    return answers.empty() ? page + "None.\n" : page;
}

std::string controls(const Json& probe_report) {
    const Json& list = list_of(probe_report, "controls");
    if (list.empty()) {
        return {};
    }
    std::string page =
        "\n**Controls**\n\n| control | value | came out as it must | guards | note |\n|---|---|---|---|---|\n";
    for (const Json& control : list) {
        const std::string topic = text_of(control, "topic");
        page +=
            fmt::format("| {} | {} | {} | {} | {} |\n", markdown_code(text_of(control, "name")),
                        markdown_cell(value_text(member_of(control, "value"), text_of(control, "unit"))),
                        member_of(control, "held") == true ? "yes" : "**NO**",
                        topic.empty() ? "all answers" : markdown_cell(topic), markdown_cell(text_of(control, "note")));
    }
    return page;
}

std::string observations(const Json& probe_report) {
    const Json& list = list_of(probe_report, "observations");
    if (list.empty()) {
        return {};
    }
    std::string table;
    std::string unseen;
    for (const Json& seen : list) {
        const std::string process = text_of(seen, "process");
        const std::string name = process.empty() ? text_of(seen, "name") : process + ": " + text_of(seen, "name");
        if (member_of(seen, "value").is_null()) {
            unseen += fmt::format("- {}: {}\n", markdown_code(name), sentence_text(text_of(seen, "note")));
            continue;
        }
        table += fmt::format("| {} | {} | {} | {} |\n", markdown_code(name),
                             markdown_cell(plain_text(member_of(seen, "value"))), markdown_cell(text_of(seen, "unit")),
                             markdown_cell(text_of(seen, "note")));
    }
    std::string page;
    if (!table.empty()) {
        page += "\n**Observations**\n\n| name | value | unit | note |\n|---|---|---|---|\n" + table;
    }
    if (!unseen.empty()) {
        page += "\n**Not seen**\n\n" + unseen;
    }
    return page;
}

std::string section(const Json& entry) {
    const Json& report = member_of(entry, "report");
    std::string page = fmt::format("\n## {}\n\n", markdown_cell(title_of_probe(entry)));
    if (!text_of(report, "question").empty()) {
        page += fmt::format("*{}*\n", markdown_cell(text_of(report, "question")));
    }
    if (!has_answers(entry)) {
        page += fmt::format("{}**{}**: {}\n", text_of(report, "question").empty() ? "" : "\n",
                            outcome_words(text_of(entry, "outcome")), sentence_text(text_of(entry, "reason")));
        if (!text_of(entry, "remedy").empty()) {
            page += fmt::format("\nWhat would help: {}\n", sentence_text(text_of(entry, "remedy")));
        }
    }
    if (!report.is_null()) {
        page += "\n";
        const auto fact = [&](const char* title, const std::string& value) {
            if (!value.empty()) {
                page += fmt::format("- {}: {}\n", title, markdown_cell(value));
            }
        };
        fact("device", flat_members(member_of(report, "device")));
        fact("IOMMU", text_of(report, "iommu_mode"));
        fact("drivers", flat_members(member_of(report, "drivers")));
        const Json& processes = member_of(report, "processes");
        if (processes.is_object()) {
            for (const auto& [role, facts] : processes.items()) {
                fact(fmt::format("process {}", role).c_str(), flat_members(facts));
            }
        }
        if (has_answers(entry)) {
            page += verdict(report);
        }
        page += controls(report) + observations(report);
    }
    for (const auto& [member, title] :
         {std::pair{"errors", "It said on standard error:"}, std::pair{"output", "It printed, which is no report:"}}) {
        const std::string said = text_of(entry, member);
        if (!said.empty()) {
            page += fmt::format("\n{}\n\n", title);
            for (std::size_t start = 0; start <= said.size();) {
                const auto end = std::min(said.find('\n', start), said.size());
                page += "    " + said.substr(start, end - start) + "\n";
                start = end + 1;
            }
        }
    }
    return page;
}

} // namespace

std::string markdown_cell(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
        case '\n':
        case '\r':
        case '\t':
            safe += ' ';
            break;
        case '<':
            safe += "&lt;";
            break;
        case '|':
        case '*':
        case '`':
        case '[':
        case '\\':
            safe += '\\';
            safe += c;
            break;
        default:
            safe += c;
        }
    }
    return safe;
}

std::string markdown_code(std::string_view text) {
    std::string safe{"`"};
    for (const char c : text) {
        safe += c == '`' || c == '\n' ? std::string{"'"} : c == '|' ? std::string{"\\|"} : std::string{c};
    }
    return safe + "`";
}

std::string render_page(const MachineReport& report) {
    std::string page = head(report) + warnings(report) + overview(report) + glance(report);
    for (const Json& entry : report.probes()) {
        page += section(entry);
    }
    return page;
}

} // namespace upcie::cli
