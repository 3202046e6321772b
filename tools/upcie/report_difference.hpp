// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "machine_report.hpp"

namespace upcie::cli {

/// One thing in which two reports differ.
struct Difference {
    std::string probe; ///< empty: of the head
    std::string kind;  ///< "head", "outcome", "fact", "process", "answer", "control", "observation"
    std::string name;
    Json a;
    Json b;
    bool only_in_a = false; ///< the other side has no such row
    bool only_in_b = false;
    std::string unit;
};

/// Whether an observation is another one at every run, as addresses, process numbers, times and descriptors are.
[[nodiscard]] bool is_volatile(std::string_view name, std::string_view unit);

/// Where `a` and `b` differ, in the order of a page. With `all`, volatile values too. Notes and sentences are for
/// people and are not compared. A probe of one flavour is compared with the same question's of another flavour where
/// the other report has none of its own.
[[nodiscard]] std::vector<Difference> differences(const MachineReport& a, const MachineReport& b, bool all);

} // namespace upcie::cli
