// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine_report.hpp"

namespace upcie::cli {

/// report.md: all of a report, for people. The same report makes the same page.
[[nodiscard]] std::string render_page(const MachineReport& report);

/// One table with a column a machine and a row a fact, and where each row comes from.
[[nodiscard]] std::string render_comparison(const std::vector<MachineReport>& reports);
/// The same for programs: machines, and rows with their cells.
[[nodiscard]] Json comparison_json(const std::vector<MachineReport>& reports);

/// Text as it may stand in a cell of a Markdown table.
[[nodiscard]] std::string markdown_cell(std::string_view text);
/// The same in backquotes.
[[nodiscard]] std::string markdown_code(std::string_view text);

} // namespace upcie::cli
