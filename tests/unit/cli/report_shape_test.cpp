// SPDX-License-Identifier: BSD-3-Clause
// A report from elsewhere, with every member of it taken away or replaced by another type: it is told which one.
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/os/system.hpp>

#include "command.hpp"
#include "report_difference.hpp"
#include "report_page.hpp"

namespace upcie::cli {
namespace report_shape_tests {

using test::upcie;
using ::testing::HasSubstr;

/// Everything that the schema has, once at least.
Json whole_probe_report() {
    return Json::parse(R"({
        "schema": {"name": "upcie-probe", "version": 1}, "probe": "dmabuf_cuda", "tool_version": "0.1.0",
        "kernel": "Linux 7.3.4 x86_64", "iommu_mode": "none", "device": {"name": "A GPU", "gpu": {"pci": "x"}},
        "drivers": {"bound": "none"}, "question": "Is it?", "asked": true, "reason": "", "remedy": "",
        "processes": {"self": {"uid": 0, "effective_uid": 0}},
        "controls": [{"name": "whole", "value": true, "unit": "", "errno": 0, "process": "self", "held": true,
                      "topic": "range", "note": "or not"}],
        "observations": [{"name": "a.whole.runs", "value": 6, "unit": "runs", "errno": null, "process": "self",
                          "note": "six"}],
        "verdict": {"sentence": "So.", "conclusive": true,
                    "answers": [{"topic": "range", "answer": "honoured", "conclusive": true,
                                 "failed_controls": ["none"], "sentence": "So."}]}})");
}

Json whole_report() {
    Json document = Json::parse(R"({
        "schema": {"name": "upcie-report", "version": 1}, "tool_version": "0.1.0", "created": "2026-01-02",
        "machine": "A machine", "measured": "here", "source": "", "host": {"name": "h", "kernel": "Linux 7.3.4 x86_64",
        "iommu": "none", "cpu_vendor": "v", "cpu": "c", "distribution": "d", "uid": 0}, "only": ["dmabuf"],
        "probes": [{"probe": "dmabuf_cuda", "variant": "--x", "device": "0000:01:00.0", "arguments": ["--json"],
                    "outcome": "answered", "reason": "", "remedy": "", "exit_status": 0, "signal": "", "errors": "",
                    "output": ""}]})");
    document["probes"][0]["report"] = whole_probe_report();
    return document;
}

/// What a member may be instead: "" nothing, "null" and so on. Members that are not named may be anything.
struct Allowed {
    const char* types;
    bool missing;
};
const std::map<std::string, Allowed>& probe_members() {
    static const std::map<std::string, Allowed> known{
        {"schema", {"object", false}},
        {"schema.name", {"text", false}},
        {"schema.version", {"integer", false}},
        {"probe", {"text", false}},
        {"tool_version", {"text null", true}},
        {"kernel", {"text null", true}},
        {"iommu_mode", {"text null", true}},
        {"device", {"object null", true}},
        {"drivers", {"object null", true}},
        {"question", {"text null", true}},
        {"asked", {"truth", false}},
        {"reason", {"text null", true}},
        {"remedy", {"text null", true}},
        {"processes", {"object null", true}},
        {"processes.self", {"object", true}},
        {"controls", {"list", false}},
        {"controls[]", {"object", true}},
        {"controls[].name", {"text", false}},
        {"controls[].value", {"text truth integer fraction list object null", false}},
        {"controls[].unit", {"text", false}},
        {"controls[].errno", {"integer null", true}},
        {"controls[].process", {"text null", true}},
        {"controls[].held", {"truth", false}},
        {"controls[].topic", {"text", false}},
        {"controls[].note", {"text null", true}},
        {"observations", {"list", false}},
        {"observations[]", {"object", true}},
        {"observations[].name", {"text", false}},
        {"observations[].value", {"text truth integer fraction list object null", false}},
        {"observations[].unit", {"text", false}},
        {"observations[].errno", {"integer null", true}},
        {"observations[].process", {"text null", true}},
        {"observations[].note", {"text null", true}},
        {"verdict", {"object", false}},
        {"verdict.sentence", {"text null", true}},
        {"verdict.conclusive", {"truth", false}},
        {"verdict.answers", {"list", false}},
        {"verdict.answers[]", {"object", true}},
        {"verdict.answers[].topic", {"text", false}},
        {"verdict.answers[].answer", {"text", false}},
        {"verdict.answers[].conclusive", {"truth", false}},
        {"verdict.answers[].failed_controls", {"list null", true}},
        {"verdict.answers[].failed_controls[]", {"text", true}},
        {"verdict.answers[].sentence", {"text null", true}}};
    return known;
}
std::map<std::string, Allowed> report_members() {
    std::map<std::string, Allowed> known{{"schema", {"object", false}},
                                         {"schema.name", {"text", false}},
                                         {"schema.version", {"integer", false}},
                                         {"tool_version", {"text null", true}},
                                         {"created", {"text null", true}},
                                         {"machine", {"text", false}},
                                         {"measured", {"text", false}},
                                         {"source", {"text null", true}},
                                         {"host", {"object", false}},
                                         {"host.uid", {"integer null", true}},
                                         {"only", {"list null", true}},
                                         {"only[]", {"text", true}},
                                         {"probes", {"list", false}},
                                         {"probes[]", {"object", true}},
                                         {"probes[].probe", {"text", false}},
                                         {"probes[].outcome", {"text", false}},
                                         {"probes[].arguments", {"list null", true}},
                                         {"probes[].arguments[]", {"text", true}},
                                         {"probes[].exit_status", {"integer null", true}},
                                         {"probes[].report", {"object", false}}};
    for (const char* const name : {"name", "kernel", "iommu", "cpu_vendor", "cpu", "distribution"}) {
        known[std::string{"host."} + name] = {"text null", true};
    }
    for (const char* const name : {"variant", "device", "reason", "remedy", "signal", "errors", "output"}) {
        known[std::string{"probes[]."} + name] = {"text null", true};
    }
    for (const auto& [path, allowed] : probe_members()) {
        known["probes[].report." + path] = allowed;
    }
    return known;
}

/// Something of each type, which is told from what it replaces by that alone.
const std::map<std::string, Json>& of_each_type() {
    static const std::map<std::string, Json> values{
        {"text", "words"},          {"truth", true},  {"integer", 1}, {"fraction", 1.5}, {"list", Json::array()},
        {"object", Json::object()}, {"null", nullptr}};
    return values;
}
std::string type_of(const Json& value) {
    return value.is_string()         ? "text"
           : value.is_boolean()      ? "truth"
           : value.is_number_float() ? "fraction"
           : value.is_number()       ? "integer"
           : value.is_array()        ? "list"
           : value.is_object()       ? "object"
                                     : "null";
}

/// A place in a document: where it is for nlohmann, for people, and for the tables above.
struct Place {
    Json::json_pointer pointer;
    std::string path;
    std::string member;
};
void collect_places(const Json& value, const Place& here, std::vector<Place>& places) {
    for (const auto& [key, part] : value.items()) {
        const bool list = value.is_array();
        const std::string dot = here.path.empty() ? "" : ".";
        Place place{here.pointer, here.path + (list ? "[" + key + "]" : dot + key),
                    here.member + (list ? "[]" : dot + key)};
        place.pointer.push_back(key);
        places.push_back(place);
        if (part.is_structured()) {
            collect_places(part, place, places);
        }
    }
}

class ReportShape : public ::testing::Test {
  protected:
    std::string file(const Json& document) const {
        const std::string path = (folder_.path() / "report.json").string();
        std::ofstream{path} << document.dump();
        return path;
    }
    Result<MachineReport> load(const Json& document) const {
        return load_machine_report(os::real_system(), file(document));
    }
    /// Refused with the member's path, or else taken, and then nothing that reads it stumbles.
    void expect(const Json& document, const Place& place, bool allowed) const {
        const auto loaded = load(document);
        EXPECT_EQ(loaded.has_value(), allowed) << (loaded ? "" : loaded.error().message());
        if (!loaded) {
            EXPECT_TRUE(loaded.error().is(EINVAL)) << loaded.error().message();
            if (place.member.rfind("schema", 0) != 0) { // without it, it is another kind of document
                EXPECT_THAT(loaded.error().hint, HasSubstr(place.path));
            }
            return;
        }
        const MachineReport good{whole_report()};
        EXPECT_FALSE(render_page(*loaded).empty());
        EXPECT_FALSE(render_comparison({*loaded, good}).empty());
        static_cast<void>(comparison_json({good, *loaded}));
        static_cast<void>(differences(*loaded, good, true));
        static_cast<void>(differences(good, *loaded, false));
    }
    /// Every member of `good`, taken away and of each other type.
    void mutilate(const Json& good, const std::map<std::string, Allowed>& known) const {
        ASSERT_TRUE(load(good)) << load(good).error().message();
        std::vector<Place> places;
        collect_places(good, Place{Json::json_pointer{}, {}, {}}, places);
        std::size_t met = 0;
        for (const Place& place : places) {
            const auto allowed = known.find(place.member);
            met += allowed != known.end() ? 1U : 0U;
            for (const auto& [type, value] : of_each_type()) {
                if (type == type_of(good[place.pointer])) {
                    continue;
                }
                SCOPED_TRACE(place.path + " as " + type);
                Json document = good;
                document[place.pointer] = value;
                expect(document, place,
                       allowed == known.end() || std::string{allowed->second.types}.find(type) != std::string::npos);
            }
            SCOPED_TRACE(place.path + " taken away");
            Json document = good;
            Json& parent = document[place.pointer.parent_pointer()];
            if (parent.is_array()) {
                parent.erase(static_cast<std::size_t>(std::stoul(place.pointer.back())));
            } else {
                parent.erase(place.pointer.back());
            }
            expect(document, place, allowed == known.end() || allowed->second.missing);
        }
        EXPECT_EQ(met, known.size()) << "each member of the schema is in the document once";
    }

    ::upcie::test::TempDirectory folder_;
};

TEST_F(ReportShape, EveryMemberOfAMachinesReportTakenAwayOrOfAnotherType) {
    mutilate(whole_report(), report_members());
}

TEST_F(ReportShape, EveryMemberOfAProbesOwnJsonTakenAwayOrOfAnotherType) {
    mutilate(whole_probe_report(), probe_members());
}

TEST_F(ReportShape, WhatIsNoReportIsToldByItsPathBeforeAnythingIsWritten) {
    struct Case {
        std::function<void(Json&)> change;
        const char* path;
        const char* error;
    };
    const std::vector<Case> cases{
        {[](Json& document) {
             document = Json{{"schema", document["schema"]}};
         },
         "machine is missing", "EINVAL"},
        {[](Json& document) { document["probes"] = "x"; }, "probes is text and has to be a list", "EINVAL"},
        {[](Json& document) {
             document["probes"].push_back(Json{{"probe", 5}, {"report", {1, 2}}});
         },
         "probes[1].probe is a whole number", "EINVAL"},
        {[](Json& document) {
             document["probes"].push_back(Json{{"probe", "x"}, {"outcome", "failed"}, {"report", {1, 2}}});
         },
         "probes[1].report is a list", "EINVAL"},
        {[](Json& document) {
             document["probes"][0]["report"]["observations"] = Json{{"a", 1}};
         },
         "probes[0].report.observations is an object", "EINVAL"},
        {[](Json& document) { document["probes"][0]["report"]["verdict"] = "yes"; }, "probes[0].report.verdict is text",
         "EINVAL"},
        {[](Json& document) { document["probes"][0]["report"]["schema"]["name"] = "upcie-report"; },
         "probes[0].report.schema.name is another", "EINVAL"},
        {[](Json& document) { document["measured"] = "somewhere"; }, "measured is neither", "EINVAL"},
        {[](Json& document) { document["probes"][0]["report"]["schema"]["version"] = 99; },
         "What dmabuf_cuda said (probes[0].report) has version 99", "EOPNOTSUPP"},
        {[](Json& document) { document["schema"]["version"] = 2; }, "It has version 2", "EOPNOTSUPP"}};
    const std::string good = (folder_.path() / "good.json").string();
    std::ofstream{good} << whole_report().dump();
    for (const Case& one : cases) {
        SCOPED_TRACE(one.path);
        Json document = whole_report();
        one.change(document);
        const std::string path = file(document);
        for (const auto& words : std::vector<std::vector<std::string>>{
                 {"report", "--diff", good, path}, {"report", "--render", good, path}, {"report", "--compare", path}}) {
            const auto answer = upcie(words);
            EXPECT_EQ(answer.code, 1) << words[1];
            EXPECT_EQ(answer.out, "") << words[1];
            EXPECT_THAT(answer.err, HasSubstr(one.error));
            EXPECT_THAT(answer.err, HasSubstr(one.path));
        }
    }
}

// A probe that could not be asked has no verdict, and one that was not started no report.
TEST_F(ReportShape, WhatHasNoAnswerNeedsNone) {
    Json document = whole_report();
    Json& probe = document["probes"][0]["report"];
    probe["asked"] = false;
    probe["verdict"] = nullptr;
    document["probes"][0]["outcome"] = "not_asked";
    EXPECT_TRUE(load(document));
    document["probes"][0]["report"] = nullptr;
    document["probes"][0]["outcome"] = "skipped";
    EXPECT_TRUE(load(document));
    document["probes"] = Json::array();
    EXPECT_TRUE(load(document));
}

// What goes down into a document call by call would run out of stack.
TEST_F(ReportShape, AnAbyssIsNoReport) {
    constexpr std::size_t depth = 200000;
    std::string text = whole_report().dump();
    const std::string place = "\"value\":6";
    ASSERT_NE(text.find(place), std::string::npos);
    text.replace(text.find(place), place.size(), "\"value\":" + std::string(depth, '[') + std::string(depth, ']'));
    const std::string path = (folder_.path() / "deep.json").string();
    std::ofstream{path} << text;
    const auto loaded = load_machine_report(os::real_system(), path);
    ASSERT_FALSE(loaded);
    EXPECT_TRUE(loaded.error().is(EINVAL));
    // Brackets in words are no depth.
    Json document = whole_report();
    document["machine"] = "\\\"" + std::string(1000, '[') + "\\";
    EXPECT_TRUE(load(document));
}

} // namespace report_shape_tests
} // namespace upcie::cli
