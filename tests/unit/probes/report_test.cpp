// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gtest/gtest.h>

#include "report.hpp"

namespace upcie::probes {
namespace {

Report a_report() {
    Report report{"vfio_cdev", "What is asked?"};
    Environment environment;
    environment.tool_version = "1.2.3";
    environment.kernel = "Linux 7.3.4 x86_64";
    environment.iommu_mode = "on";
    environment.device = {{"bdf", "0000:01:00.0"}};
    environment.drivers = {{"vfio", "0.3"}};
    report.set_environment(environment);
    return report;
}

TEST(Report, JsonHasEveryFieldOfTheSchema) {
    Report report = a_report();
    report.observe("a.size", 4096, "bytes");
    report.outcome("a.bind", EINVAL, "as it must");
    report.control("", "control.works", true, "ok", "it does", 0);
    report.answer("topic", "word", "A sentence.");
    const Value json = report.json();
    EXPECT_EQ(json["schema"]["name"], "upcie-probe");
    EXPECT_EQ(json["schema"]["version"], schema_version);
    EXPECT_EQ(json["probe"], "vfio_cdev");
    EXPECT_EQ(json["tool_version"], "1.2.3");
    EXPECT_EQ(json["kernel"], "Linux 7.3.4 x86_64");
    EXPECT_EQ(json["iommu_mode"], "on");
    EXPECT_EQ(json["device"]["bdf"], "0000:01:00.0");
    EXPECT_EQ(json["drivers"]["vfio"], "0.3");
    EXPECT_EQ(json["question"], "What is asked?");
    EXPECT_EQ(json["asked"], true);
    ASSERT_EQ(json["observations"].size(), 2U);
    EXPECT_EQ(json["observations"][0]["name"], "a.size");
    EXPECT_EQ(json["observations"][0]["value"], 4096);
    EXPECT_EQ(json["observations"][0]["unit"], "bytes");
    EXPECT_TRUE(json["observations"][0]["errno"].is_null());
    EXPECT_EQ(json["observations"][1]["value"], "EINVAL");
    EXPECT_EQ(json["observations"][1]["errno"], EINVAL);
    ASSERT_EQ(json["controls"].size(), 1U);
    EXPECT_EQ(json["controls"][0]["held"], true);
    EXPECT_EQ(json["verdict"]["sentence"], "A sentence.");
    EXPECT_EQ(json["verdict"]["conclusive"], true);
    EXPECT_EQ(json["verdict"]["answers"][0]["answer"], "word");
}

TEST(Report, FailedControlMakesItsTopicInconclusiveAndNoOther) {
    Report report = a_report();
    report.answer("one", "yes", "One is so.");
    report.answer("two", "no", "Two is not.");
    report.control("two", "control.of_two", false, nullptr, "");
    const std::vector<Answer> judged = report.judged();
    ASSERT_EQ(judged.size(), 2U);
    EXPECT_TRUE(judged[0].conclusive);
    EXPECT_EQ(judged[0].answer, "yes");
    EXPECT_FALSE(judged[1].conclusive);
    EXPECT_EQ(judged[1].answer, "inconclusive");
    EXPECT_EQ(judged[1].failed_controls, std::vector<std::string>{"control.of_two"});
    EXPECT_NE(judged[1].sentence.find("control.of_two"), std::string::npos);
    EXPECT_EQ(report.json()["verdict"]["conclusive"], false);
    EXPECT_EQ(report.exit_status(), 0) << "inconclusive is an answer";
}

TEST(Report, FailedGeneralControlMakesEveryAnswerInconclusive) {
    Report report = a_report();
    report.control("", "control.general", false, nullptr, "");
    report.control("", "control.other", true, nullptr, "");
    report.answer("one", "yes", "One is so.");
    report.answer("two", "no", "Two is not.");
    for (const Answer& one : report.judged()) {
        EXPECT_FALSE(one.conclusive);
        EXPECT_EQ(one.failed_controls, std::vector<std::string>{"control.general"});
    }
}

TEST(Report, NotAskedGivesReasonAndRemedyAndStatusOne) {
    Report report = a_report();
    report.not_asked("no such thing", "Make one.");
    EXPECT_EQ(report.exit_status(), 1);
    const Value json = report.json();
    EXPECT_EQ(json["asked"], false);
    EXPECT_EQ(json["reason"], "no such thing");
    EXPECT_EQ(json["remedy"], "Make one.");
    EXPECT_TRUE(json["verdict"].is_null());
    EXPECT_NE(report.text().find("Make one."), std::string::npos);
}

TEST(Report, AllThatIsMissingIsTold) {
    Report report = a_report();
    could_not_ask(report, fail(ENOENT, "open", "/dev/iommu", "Load it.").value());
    Error of_the_gpu;
    of_the_gpu.domain = ErrorDomain::vendor;
    of_the_gpu.code = 100;
    of_the_gpu.code_name = "CUDA_ERROR_NO_DEVICE";
    of_the_gpu.operation = "cuInit";
    of_the_gpu.subject = "libcuda.so.1";
    of_the_gpu.hint = "Put one in.";
    could_not_ask(report, of_the_gpu);
    EXPECT_EQ(report.json()["reason"], "open on /dev/iommu: ENOENT; and cuInit on libcuda.so.1: CUDA_ERROR_NO_DEVICE");
    EXPECT_EQ(report.json()["remedy"], "Load it. Put one in.");
}

TEST(Report, TextShowsProcessOutcomeAndFailedControl) {
    Report report{"x", "Q?", "second"};
    report.outcome("open", EACCES, "as another user");
    report.control("", "control.c", false, 7, "");
    report.answer("t", "w", "S.");
    const std::string text = report.text();
    EXPECT_NE(text.find("second: open"), std::string::npos);
    EXPECT_NE(text.find("EACCES"), std::string::npos);
    EXPECT_NE(text.find("as another user"), std::string::npos);
    EXPECT_NE(text.find("FAILED"), std::string::npos);
    EXPECT_NE(text.find("t: inconclusive"), std::string::npos);
}

TEST(Report, FindingsTravelWhole) {
    Report second{"x", {}, "second"};
    second.outcome("open", EACCES);
    second.not_seen("map", "no descriptor");
    second.control("topic", "control.c", false, 1, "why");
    Report first = a_report();
    ASSERT_TRUE(first.take_findings(second.share_findings()));
    first.answer("topic", "yes", "So.");
    ASSERT_NE(first.find("open", "second"), nullptr);
    EXPECT_EQ(first.find("open", "second")->error, EACCES);
    EXPECT_EQ(first.find("open", "first"), nullptr);
    EXPECT_FALSE(first.succeeded("open"));
    EXPECT_TRUE(first.find("map")->value.is_null());
    EXPECT_FALSE(first.judged()[0].conclusive) << "the other side's failed control counts";
    EXPECT_EQ(first.share_findings(), second.share_findings());
}

TEST(Report, FindingsThatAreNoneAreRefusedWhole) {
    Report report = a_report();
    EXPECT_FALSE(report.take_findings(Value{}));
    EXPECT_FALSE(report.take_findings({{"controls", Value::array()}}));
    const Value half = Value::parse(R"({"controls":[],"observations":[
        {"name":"a","value":1,"unit":"","errno":null},{"name":"b"}]})");
    EXPECT_FALSE(report.take_findings(half));
    EXPECT_EQ(report.find("a"), nullptr);
    const Value no_held =
        Value::parse(R"({"controls":[{"name":"c","value":1,"unit":"","errno":null}],"observations":[]})");
    EXPECT_FALSE(report.take_findings(no_held)) << "a control that does not say whether it held";
}

TEST(Report, AProcessNamedAgainReplacesItself) {
    Report report = a_report();
    report.add_process("first", {{"uid", 0}});
    report.add_process("first", {{"uid", 7}});
    EXPECT_EQ(report.json()["processes"].size(), 1U);
    EXPECT_EQ(report.json()["processes"]["first"]["uid"], 7);
}

} // namespace
} // namespace upcie::probes
