// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <upcie/result.hpp>

namespace upcie::probes {

namespace {

Value observation_json(const Observation& seen) {
    Value result = {{"name", seen.name}, {"value", seen.value}, {"unit", seen.unit}, {"errno", nullptr}};
    if (seen.error) {
        result["errno"] = *seen.error;
    }
    if (!seen.process.empty()) {
        result["process"] = seen.process;
    }
    if (seen.held) {
        result["held"] = *seen.held;
        result["topic"] = seen.topic;
    }
    if (!seen.note.empty()) {
        result["note"] = seen.note;
    }
    return result;
}

/// The way back. Throws nlohmann's exceptions for what is not there or of another type.
Observation observation_of(const Value& json) {
    Observation seen;
    seen.name = json.at("name").get<std::string>();
    seen.value = json.at("value");
    seen.unit = json.at("unit").get<std::string>();
    if (!json.at("errno").is_null()) {
        seen.error = json.at("errno").get<int>();
    }
    seen.process = json.value("process", "");
    seen.note = json.value("note", "");
    seen.topic = json.value("topic", "");
    if (json.contains("held")) {
        seen.held = json.at("held").get<bool>();
    }
    return seen;
}

/// A value as people read it: no quotes around text, lists on one line.
std::string plain(const Value& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    if (value.is_null()) {
        return "-";
    }
    return value.dump();
}

/// "  name   value unit   note", names padded to one width.
std::string line(const Observation& seen, std::size_t width) {
    const std::string name = seen.process.empty() ? seen.name : seen.process + ": " + seen.name;
    std::string text = fmt::format("  {:<{}}  {}", name, width, plain(seen.value));
    if (!seen.unit.empty() && seen.unit != "outcome" && seen.unit != "address") {
        text += " " + seen.unit;
    }
    if (seen.held) {
        text += *seen.held ? "  [held]" : "  [FAILED]";
    }
    if (!seen.note.empty()) {
        text += "  (" + seen.note + ")";
    }
    return text + "\n";
}

std::string block(const char* title, const std::vector<Observation>& seen) {
    if (seen.empty()) {
        return {};
    }
    std::size_t width = 0;
    for (const Observation& one : seen) {
        width = std::max(width, one.name.size() + (one.process.empty() ? 0 : one.process.size() + 2));
    }
    std::string text = fmt::format("\n{}\n", title);
    for (const Observation& one : seen) {
        text += line(one, width);
    }
    return text;
}

std::string members(const Value& object) {
    std::string text;
    for (const auto& [name, value] : object.items()) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, plain(value));
    }
    return text;
}

} // namespace

std::string outcome_word(int error) {
    return error == 0 ? "ok" : errno_name(error);
}

std::string hex(std::uint64_t value) {
    return fmt::format("{:#x}", value);
}

Report::Report(std::string probe, std::string question, std::string process)
    : probe_{std::move(probe)}, question_{std::move(question)}, process_{std::move(process)} {}

void Report::add_process(std::string name, Value facts) {
    const auto known =
        std::find_if(processes_.begin(), processes_.end(), [&](const auto& one) { return one.first == name; });
    if (known != processes_.end()) {
        known->second = std::move(facts);
        return;
    }
    processes_.emplace_back(std::move(name), std::move(facts));
}

void Report::observe(std::string name, Value value, std::string unit, std::string note) {
    Observation seen;
    seen.name = std::move(name);
    seen.value = std::move(value);
    seen.unit = std::move(unit);
    seen.process = process_;
    seen.note = std::move(note);
    observations_.push_back(std::move(seen));
}

void Report::outcome(std::string name, int error, std::string note) {
    observe(std::move(name), outcome_word(error), "outcome", std::move(note));
    observations_.back().error = error;
}

void Report::not_seen(std::string name, std::string reason) {
    observe(std::move(name), nullptr, {}, "not looked at: " + std::move(reason));
}

void Report::control(std::string topic, std::string name, bool held, Value value, std::string note,
                     std::optional<int> error) {
    Observation seen;
    seen.name = std::move(name);
    seen.value = std::move(value);
    seen.unit = error ? "outcome" : "";
    seen.error = error;
    seen.process = process_;
    seen.note = std::move(note);
    seen.held = held;
    seen.topic = std::move(topic);
    controls_.push_back(std::move(seen));
}

void Report::answer(std::string topic, std::string word, std::string sentence) {
    Answer given;
    given.topic = std::move(topic);
    given.answer = std::move(word);
    given.sentence = std::move(sentence);
    answers_.push_back(std::move(given));
}

void Report::not_asked(std::string reason, std::string remedy) {
    reason_ = std::move(reason);
    remedy_ = std::move(remedy);
}

Value Report::share_findings() const {
    Value result = {{"controls", Value::array()}, {"observations", Value::array()}};
    for (const Observation& seen : controls_) {
        result["controls"].push_back(observation_json(seen));
    }
    for (const Observation& seen : observations_) {
        result["observations"].push_back(observation_json(seen));
    }
    return result;
}

bool Report::take_findings(const Value& findings) {
    std::vector<Observation> controls;
    std::vector<Observation> observations;
    try {
        for (const Value& one : findings.at("controls")) {
            controls.push_back(observation_of(one));
            if (!controls.back().held) {
                return false; // a control that does not say whether it held would count as held
            }
        }
        for (const Value& one : findings.at("observations")) {
            observations.push_back(observation_of(one));
        }
    } catch (const Value::exception&) {
        return false;
    }
    std::move(controls.begin(), controls.end(), std::back_inserter(controls_));
    std::move(observations.begin(), observations.end(), std::back_inserter(observations_));
    return true;
}

const Observation* Report::find(std::string_view name, std::string_view process) const {
    for (const std::vector<Observation>* list : {&observations_, &controls_}) {
        const auto found = std::find_if(list->rbegin(), list->rend(), [&](const Observation& seen) {
            return seen.name == name && (process.empty() || seen.process == process);
        });
        if (found != list->rend()) {
            return &*found;
        }
    }
    return nullptr;
}

bool Report::succeeded(std::string_view name, std::string_view process) const {
    const Observation* const seen = find(name, process);
    return seen != nullptr && seen->error == 0;
}

std::vector<Answer> Report::judged() const {
    std::vector<Answer> result = answers_;
    for (Answer& one : result) {
        for (const Observation& control : controls_) {
            if (!control.held.value_or(false) && (control.topic.empty() || control.topic == one.topic)) {
                one.failed_controls.push_back(control.name);
            }
        }
        if (one.failed_controls.empty()) {
            continue;
        }
        one.conclusive = false;
        one.answer = "inconclusive";
        std::string names;
        for (const std::string& name : one.failed_controls) {
            names += (names.empty() ? "" : ", ") + name;
        }
        one.sentence = fmt::format("Inconclusive, because a control failed ({}); without it: {}", names, one.sentence);
    }
    return result;
}

Value Report::json() const {
    Value result = {{"schema", {{"name", "upcie-probe"}, {"version", schema_version}}},
                    {"probe", probe_},
                    {"tool_version", environment_.tool_version},
                    {"kernel", environment_.kernel},
                    {"iommu_mode", environment_.iommu_mode},
                    {"device", environment_.device},
                    {"drivers", environment_.drivers},
                    {"question", question_},
                    {"asked", asked()}};
    result["processes"] = Value::object();
    for (const auto& [name, facts] : processes_) {
        result["processes"][name] = facts;
    }
    result.update(share_findings());
    if (!asked()) {
        result["reason"] = reason_;
        result["remedy"] = remedy_;
        result["verdict"] = nullptr;
        return result;
    }
    Value answers = Value::array();
    std::string sentence;
    bool conclusive = true;
    for (const Answer& one : judged()) {
        answers.push_back({{"topic", one.topic},
                           {"answer", one.answer},
                           {"conclusive", one.conclusive},
                           {"failed_controls", one.failed_controls},
                           {"sentence", one.sentence}});
        sentence += (sentence.empty() ? "" : " ") + one.sentence;
        conclusive = conclusive && one.conclusive;
    }
    result["verdict"] = {{"sentence", sentence}, {"conclusive", conclusive}, {"answers", answers}};
    return result;
}

std::string Report::text() const {
    std::string result =
        fmt::format("upcie_probe_{} {}\nkernel: {}\nIOMMU: {}\ndevice: {}\ndrivers: {}\nquestion: {}\n", probe_,
                    environment_.tool_version, environment_.kernel, environment_.iommu_mode,
                    members(environment_.device), members(environment_.drivers), question_);
    for (const auto& [name, facts] : processes_) {
        result += fmt::format("{}: {}\n", name, members(facts));
    }
    result += block("controls", controls_) + block("observations", observations_);
    if (!asked()) {
        return result + fmt::format("\nThe question could not be asked: {}\nWhat would make it possible: {}\n", reason_,
                                    remedy_);
    }
    result += "\nverdict\n";
    for (const Answer& one : judged()) {
        result += fmt::format("  {}: {}. {}\n", one.topic, one.answer, one.sentence);
    }
    return result;
}

void could_not_ask(Report& report, const Error& error) {
    const std::string code = error.domain == ErrorDomain::system ? errno_name(error.code) : error.code_name;
    report.not_asked(fmt::format("{} on {}: {}", error.operation, error.subject, code), error.hint);
}

} // namespace upcie::probes
