// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "output.hpp"

namespace upcie::cli {

/// Version of report.json; raised when a reader could stumble over a change. New fields may come without.
constexpr int machine_report_version = 1;

// JSON from elsewhere has whatever it has: these never throw.
/// Null where `object` is no object or has no such member.
[[nodiscard]] const Json& member_of(const Json& object, std::string_view name) noexcept;
/// Empty where it is no text.
[[nodiscard]] std::string text_of(const Json& object, std::string_view name);
/// The elements of a list that is a member; none where it is no list.
[[nodiscard]] const Json& list_of(const Json& object, std::string_view name) noexcept;
/// A value as people read it: no quotes around text, "-" for null, lists on one line.
[[nodiscard]] std::string plain_text(const Json& value);

/// "dmabuf_cuda" is question "dmabuf" of flavour "cuda"; a probe without flavours has an empty one.
struct ProbeName {
    std::string question;
    std::string flavour;
};
[[nodiscard]] ProbeName split_probe_name(std::string_view probe);
/// "vfio_share_gpu_cuda, with --try-capabilities": an entry's probe, and the way it ran where that is not the usual
/// one.
[[nodiscard]] std::string way_of(const Json& entry);

/// What came of a probe that was to run; the words stand in report.json.
namespace probe_outcome {
constexpr std::string_view answered = "answered";   ///< its report is there, inconclusive ones too
constexpr std::string_view not_asked = "not_asked"; ///< it said why its question could not be asked
constexpr std::string_view failed = "failed";       ///< it ended in another way than probes end
constexpr std::string_view timed_out = "timed_out"; ///< it was killed
constexpr std::string_view skipped = "skipped";     ///< it was not started, with the reason
constexpr std::string_view absent = "absent";       ///< there is no such program
} // namespace probe_outcome

/// A GPU that a probe asked.
struct GpuFacts {
    std::string name;
    std::string pci;
    std::string driver; ///< "driver 580.159.04, CUDA 13.0"
    friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

/// What `upcie report` found on one machine: the document that is report.json. (`Report` is an answer of this program.)
///
/// Ownership: a value. Threads: one.
class MachineReport {
  public:
    /// Parentheses: braces would make a list of the document.
    explicit MachineReport(Json document) : json_(std::move(document)) {}

    [[nodiscard]] const Json& json() const noexcept { return json_; }
    [[nodiscard]] std::string machine() const { return text_of(json_, "machine"); }
    /// Its values were not measured by this project's probes, but noted down from other measurements.
    [[nodiscard]] bool elsewhere() const { return text_of(json_, "measured") == "elsewhere"; }
    [[nodiscard]] const Json& host() const noexcept { return member_of(json_, "host"); }
    /// One entry a probe (and device): probe, device, outcome, reason, remedy, report.
    [[nodiscard]] const Json& probes() const noexcept { return list_of(json_, "probes"); }
    /// Each once, in the order of the probes.
    [[nodiscard]] std::vector<GpuFacts> gpus() const;

  private:
    Json json_;
};

/// The same of probes alone, while the report is still in the making.
[[nodiscard]] std::vector<GpuFacts> gpus_of(const Json& probes);
/// "NVIDIA H200, driver 580.159.04, CUDA 13.0", else what the host says: never empty.
[[nodiscard]] std::string machine_name(const Json& host, const Json& probes);

/// Reads a report.json, the folder that it is in, or the JSON of one probe, which becomes a report of that probe alone.
/// Errors: what open(2) says; EINVAL (no such document, or one that is not as its schema has it: the hint names the
/// member), ENOTSUP (made by another version, or by a probe of one).
[[nodiscard]] Result<MachineReport> load_machine_report(os::System& system, const std::string& path);

/// What stands first in every report.md.
extern const char* const page_mark;

/// Makes the folder where there is none, and sees whether report.json and report.md may be written there: what has
/// these names already has to be a report's. Errors: EEXIST; what mkdir(2) and access(2) say.
Result<void> prepare_report_folder(os::System& system, const std::string& folder);
/// Writes both, each whole or not at all.
/// Errors: prepare_report_folder's; what open(2), write(2), fsync(2) and rename(2) say.
Result<void> write_report(os::System& system, const std::string& folder, const MachineReport& report);

} // namespace upcie::cli
