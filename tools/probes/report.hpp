// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <upcie/result.hpp>

namespace upcie::probes {

/// Version of the JSON that every probe prints. A change that a reader could stumble over raises it (docs/probes.md).
constexpr int schema_version = 1;

/// What a value is: text, number, truth, list of them, or null where there was nothing to see.
using Value = nlohmann::ordered_json;

/// Where and on what a probe ran. Strings are empty where the machine does not say.
struct Environment {
    std::string tool_version;
    std::string kernel;     ///< uname: "Linux 7.3.4 x86_64"
    std::string iommu_mode; ///< "translating (DMA-FQ)", "identity", "no-IOMMU (vfio)", "none"
    Value device = Value::object();
    Value drivers = Value::object(); ///< name to version, "built in or loaded, no version"
};

/// Something that was seen.
struct Observation {
    std::string name; ///< dotted, stable: part of the schema
    Value value;
    std::string unit;         ///< "outcome" for "ok" or an errno's name, "bytes", "address", "" for a bare value
    std::optional<int> error; ///< errno of the system call behind it, 0 for success, none where there was no call
    std::string process;      ///< "primary", "secondary", ...; empty where there is one process
    std::string note;         ///< for people
    std::optional<bool> held; ///< controls only: whether it came out as it must
    std::string topic;        ///< controls only: the answer that it guards; empty: all of them
};

/// An answer to a part of the question.
struct Answer {
    std::string topic;    ///< "second_opener", ...
    std::string answer;   ///< one word for machines: "refused", "handover", ...
    std::string sentence; ///< for people, whole
    bool conclusive = true;
    std::vector<std::string> failed_controls; ///< why it is not
};

/// What a probe asks, under which controls, what it saw and what follows. Collects, judges by the controls, prints.
///
/// Threads: one.
class Report {
  public:
    /// `probe` as in the program's name after upcie_probe_; `process` is put on every observation made from now on.
    Report(std::string probe, std::string question, std::string process = {});

    void set_environment(Environment environment) { environment_ = std::move(environment); }
    /// A process that took part: identity and limits, in the order of being named; one of a known name replaces it.
    void add_process(std::string name, Value facts);

    void observe(std::string name, Value value, std::string unit = {}, std::string note = {});
    /// The outcome of a system call: `error` is its errno, 0 for success.
    void outcome(std::string name, int error, std::string note = {});
    /// Something that could not be looked at, with the reason.
    void not_seen(std::string name, std::string reason);
    /// A check without which the answers about `topic` (empty: all answers) mean nothing.
    void control(std::string topic, std::string name, bool held, Value value, std::string note,
                 std::optional<int> error = {});

    /// The answer for a topic. Becomes "inconclusive" when a control of that topic, or a general one, failed, whatever
    /// the order in which they were told.
    void answer(std::string topic, std::string word, std::string sentence);

    /// The question could not be asked. `remedy` says what would make it possible. Where more than one thing is
    /// missing, each is told by a call, and all are shown in that order.
    void not_asked(const std::string& reason, const std::string& remedy);
    [[nodiscard]] bool asked() const noexcept { return reason_.empty(); }

    /// Controls and observations for another process's report, and taking them in there.
    [[nodiscard]] Value share_findings() const;
    /// False when `findings` is not what share_findings() makes; nothing is taken then.
    [[nodiscard]] bool take_findings(const Value& findings);

    /// The last observation or control of that name (and process, if told); null when there is none.
    [[nodiscard]] const Observation* find(std::string_view name, std::string_view process = {}) const;
    /// True when the last observation of that name is a call that succeeded.
    [[nodiscard]] bool succeeded(std::string_view name, std::string_view process = {}) const;
    [[nodiscard]] const std::vector<Observation>& controls() const noexcept { return controls_; }

    /// Answers as judged by the controls.
    [[nodiscard]] std::vector<Answer> judged() const;
    [[nodiscard]] Value json() const;
    [[nodiscard]] std::string text() const;
    /// 0 whatever the answer; 1 when the question could not be asked.
    [[nodiscard]] int exit_status() const noexcept { return asked() ? 0 : 1; }

  private:
    std::string probe_;
    std::string question_;
    std::string process_;
    Environment environment_;
    std::vector<std::pair<std::string, Value>> processes_;
    std::vector<Observation> controls_;
    std::vector<Observation> observations_;
    std::vector<Answer> answers_;
    std::string reason_;
    std::string remedy_;
};

/// "ok" or the errno's name.
[[nodiscard]] std::string outcome_word(int error);
/// An errno's name, or the vendor's own name for its own.
[[nodiscard]] std::string outcome_word(const Error& error);
/// "0x1000", as addresses are written in observations: JSON numbers lose 64-bit values in some readers.
[[nodiscard]] std::string hex(std::uint64_t value);

/// Makes it a report that says why the question could not be asked.
void could_not_ask(Report& report, const Error& error);

} // namespace upcie::probes
