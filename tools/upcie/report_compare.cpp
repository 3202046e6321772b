// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "report_facts.hpp"
#include "report_page.hpp"

// One table for several machines.
namespace upcie::cli {

namespace {

/// What stands above each column: the machine, and as whom its probes ran where that is all that tells two apart.
std::vector<std::string> columns_of(const std::vector<MachineReport>& reports) {
    std::vector<std::string> columns;
    for (const MachineReport& report : reports) {
        const Json& uid = member_of(report.host(), "uid");
        const bool by_another = std::any_of(reports.begin(), reports.end(), [&](const MachineReport& other) {
            return other.machine() == report.machine() && member_of(other.host(), "uid") != uid;
        });
        columns.push_back(by_another && !uid.is_null() ? fmt::format("{}, as uid {}", report.machine(), plain_text(uid))
                                                       : report.machine());
    }
    return columns;
}

} // namespace

std::string render_comparison(const std::vector<MachineReport>& reports) {
    std::string page = "<!-- Made by `upcie report --compare`. Do not edit. -->\n# Machines compared\n\n|  |";
    std::string rule = "|---|";
    bool elsewhere = false;
    const auto columns = columns_of(reports);
    for (std::size_t i = 0; i < reports.size(); ++i) {
        const MachineReport& report = reports[i];
        page += fmt::format(" {}{} |", markdown_cell(columns[i]), report.elsewhere() ? " (measured elsewhere)" : "");
        rule += "---|";
        elsewhere = elsewhere || report.elsewhere();
    }
    page += "\n" + rule + "\n";
    for (const FactRow& row : fact_rows()) {
        page += fmt::format("| {} |", row.fact);
        for (const MachineReport& report : reports) {
            page += fmt::format(" {} |", markdown_cell(fact_of(report, row)));
        }
        page += "\n";
    }
    page += "\n*not recorded*: the report does not have it, which says nothing about the machine. *not seen*: the "
            "probe ran and "
            "could not look. *not asked*: the probe could not be asked, or was not run.\n";
    if (elsewhere) {
        page += "\n*measured elsewhere*: noted down from other measurements, not by this project's probes.\n";
    }
    page += "\n## Where each row comes from\n\nThe probe's question (of whichever flavour), and the names in its "
            "report.\n\n"
            "| row | probe and names |\n|---|---|\n";
    for (const FactRow& row : fact_rows()) {
        page += fmt::format("| {} | {} |\n", row.fact, sources_of(row));
    }
    return page;
}

Json comparison_json(const std::vector<MachineReport>& reports) {
    Json result;
    result["machines"] = Json::array();
    for (const MachineReport& report : reports) {
        result["machines"].push_back(Json{{"machine", report.machine()},
                                          {"elsewhere", report.elsewhere()},
                                          {"uid", member_of(report.host(), "uid")}});
    }
    result["rows"] = Json::array();
    for (const FactRow& row : fact_rows()) {
        Json cells = Json::array();
        for (const MachineReport& report : reports) {
            cells.push_back(fact_of(report, row));
        }
        result["rows"].push_back(Json{{"fact", row.fact}, {"from", sources_of(row)}, {"cells", std::move(cells)}});
    }
    return result;
}

} // namespace upcie::cli
