// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "machine_report.hpp"

// The rows by which machines with GPUs are compared, and where in a report each is found.
namespace upcie::cli {

/// Where a part of a row's cell comes from: a probe's question (of whatever flavour), and there an answer by its topic,
/// or an observation or control by its name, or a member of what the probe says of its device.
struct FactSource {
    enum class Kind : std::uint8_t { answer, sentence, seen, device };
    enum class Who : std::uint8_t { anybody, root, user }; ///< by effective uid
    std::string_view question;
    Kind kind;
    std::string_view name;
    std::string_view title = {};  ///< what stands before the value
    bool only_if_missing = false; ///< asked only where the source before it had nothing
    Who who = Who::anybody;       ///< counts only where such a one asked
};

struct FactRow {
    std::string_view fact;
    std::span<const FactSource> sources; ///< none: the head's kernel and driver
};

[[nodiscard]] std::span<const FactRow> fact_rows() noexcept;

/// What a report has for a row: "not recorded" where it has nothing; where the probe could not be asked or could not
/// look, why.
[[nodiscard]] std::string fact_of(const MachineReport& report, const FactRow& row);
/// Where the row's values come from, for people: "dmabuf: answer `range`, `a.4k_at_4k.described`".
[[nodiscard]] std::string sources_of(const FactRow& row);

/// A value with its unit: "64 KiB" for whole ones, else "3149824 bytes"; "ok" for an outcome.
[[nodiscard]] std::string value_text(const Json& value, std::string_view unit);

extern const char* const not_recorded;

} // namespace upcie::cli
