// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.hpp"
#include "report_difference.hpp"
#include "report_facts.hpp"
#include "report_page.hpp"

namespace upcie::cli {
namespace report_page_tests {

using test::upcie;
using ::testing::HasSubstr;
using ::testing::Not;

Json seen(const char* name, Json value, const char* unit = "", const char* note = "") {
    return Json{{"name", name}, {"value", std::move(value)}, {"unit", unit}, {"errno", nullptr}, {"note", note}};
}

/// A report of one probe that answered.
Json small_report(const std::string& probe = "dmabuf_cuda", const std::string& answer = "honoured") {
    Json control = seen("whole", 4096, "bytes", "nothing can be said without it");
    control["held"] = true;
    control["topic"] = "";
    Json probe_report{{"schema", {{"name", "upcie-probe"}, {"version", 1}}},
                      {"probe", probe},
                      {"kernel", "Linux 7.3.4 x86_64"},
                      {"iommu_mode", "unknown (no device)"},
                      {"device", {{"name", "A GPU"}, {"pci", "0000:02:00.0"}, {"kernel_driver", "1.2.3"}}},
                      {"drivers", Json::object()},
                      {"question", "Is a | b?"},
                      {"asked", true},
                      {"processes", {{"self", {{"pid", 17}, {"uid", 0}, {"VmLck_bytes", 4096}}}}},
                      {"controls", Json::array({control})},
                      {"observations", Json::array({seen("scatter_list", nullptr, "", "not looked at: no importer"),
                                                    seen("a.4k_at_4k.asked", 4096, "bytes"),
                                                    seen("a.whole.first_address", "0x1000", "address"),
                                                    seen("edge.no_bytes", "EINVAL", "outcome", "a <b>")})},
                      {"verdict",
                       {{"sentence", "x"},
                        {"conclusive", true},
                        {"answers", Json::array({{{"topic", "range"},
                                                  {"answer", answer},
                                                  {"conclusive", true},
                                                  {"failed_controls", Json::array()},
                                                  {"sentence", "Just the range"}}})}}}};
    Json entry{{"probe", probe},    {"device", nullptr},     {"arguments", Json::array()}, {"outcome", "answered"},
               {"reason", ""},      {"remedy", ""},          {"exit_status", 0},           {"signal", nullptr},
               {"errors", nullptr}, {"report", probe_report}};
    Json missing{{"probe", "vfio_cdev"}, {"device", nullptr}, {"outcome", "skipped"}, {"reason", "no device was named"},
                 {"remedy", "Name one"}, {"report", nullptr}};
    return Json{{"schema", {{"name", "upcie-report"}, {"version", 1}}},
                {"tool_version", "0.1.0"},
                {"created", "2026-01-02"},
                {"measured", "here"},
                {"machine", "A machine"},
                {"host",
                 {{"kernel", "Linux 7.3.4 x86_64"},
                  {"iommu", "none"},
                  {"cpu_vendor", "GenuineIntel"},
                  {"cpu", "A CPU"},
                  {"distribution", ""}}},
                {"only", Json::array()},
                {"probes", Json::array({entry, missing})}};
}

Json& report_in(Json& document) {
    return document["probes"][0]["report"];
}

constexpr const char* beginning =
    "<!-- Made by `upcie report` from report.json. Do not edit: `upcie report --render` makes it anew. -->\n"
    "# A machine\n"
    "\n"
    "| | |\n"
    "|---|---|\n"
    "| kernel | Linux 7.3.4 x86_64 |\n"
    "| IOMMU | none |\n"
    "| processor | A CPU (GenuineIntel) |\n"
    "| distribution | not recorded |\n"
    "| GPU | A GPU at 0000:02:00.0 |\n"
    "| GPU's driver | driver 1.2.3 |\n"
    "| made | 2026-01-02, by upcie 0.1.0 |\n"
    "\n"
    "## What was asked\n"
    "\n"
    "| probe | outcome | answers, or why there are none |\n"
    "|---|---|---|\n"
    "| dmabuf_cuda | answered | range: **honoured** |\n"
    "| vfio_cdev | skipped | no device was named |\n"
    "\n"
    "## Device memory at a glance\n";

constexpr const char* ending = "\n"
                               "## dmabuf_cuda\n"
                               "\n"
                               "*Is a \\| b?*\n"
                               "\n"
                               "- device: name A GPU, pci 0000:02:00.0, kernel_driver 1.2.3\n"
                               "- IOMMU: unknown (no device)\n"
                               "- process self: pid 17, uid 0, VmLck_bytes 4096\n"
                               "\n"
                               "**Verdict**\n"
                               "\n"
                               "- range: **honoured**. Just the range.\n"
                               "\n"
                               "**Controls**\n"
                               "\n"
                               "| control | value | came out as it must | guards | note |\n"
                               "|---|---|---|---|---|\n"
                               "| `whole` | 4 KiB | yes | all answers | nothing can be said without it |\n"
                               "\n"
                               "**Observations**\n"
                               "\n"
                               "| name | value | unit | note |\n"
                               "|---|---|---|---|\n"
                               "| `a.4k_at_4k.asked` | 4096 | bytes |  |\n"
                               "| `a.whole.first_address` | 0x1000 | address |  |\n"
                               "| `edge.no_bytes` | EINVAL | outcome | a &lt;b> |\n"
                               "\n"
                               "**Not seen**\n"
                               "\n"
                               "- `scatter_list`: not looked at: no importer.\n"
                               "\n"
                               "## vfio_cdev\n"
                               "\n"
                               "**skipped**: no device was named.\n"
                               "\n"
                               "What would help: Name one.\n";

TEST(ReportPage, IsThisText) {
    const std::string page = render_page(MachineReport{small_report()});
    const std::string begin{beginning};
    const std::string end{ending};
    ASSERT_GT(page.size(), begin.size() + end.size());
    EXPECT_EQ(page.substr(0, begin.size()), begin);
    EXPECT_EQ(page.substr(page.size() - end.size()), end);
    EXPECT_THAT(page, HasSubstr("| sub-range export | honoured; asked at 4 KiB: 4 KiB |\n"));
    EXPECT_THAT(page, HasSubstr("| scatter list | not seen: no importer |\n"));
    EXPECT_THAT(page, HasSubstr("| export of 0 bytes | EINVAL |\n"));
    EXPECT_THAT(page, HasSubstr("| export of managed memory | not recorded |\n"));
}

TEST(ReportPage, AControlThatFailedStandsInFrontOfAll) {
    Json document = small_report();
    report_in(document)["controls"][0]["held"] = false;
    const std::string page = render_page(MachineReport{document});
    const auto warning = page.find("> **A control failed** in dmabuf_cuda: whole.");
    ASSERT_NE(warning, std::string::npos);
    EXPECT_LT(warning, page.find("## What was asked"));
    EXPECT_THAT(page, HasSubstr("| **NO** |"));
}

TEST(ReportPage, WhatWasMeasuredElsewhereSaysSo) {
    Json document = small_report();
    document["measured"] = "elsewhere";
    document["source"] = "Noted down";
    const std::string page = render_page(MachineReport{document});
    EXPECT_THAT(page, HasSubstr("> **Measured elsewhere.** Noted down."));
    EXPECT_THAT(page, Not(HasSubstr("| made |")));
    EXPECT_THAT(render_comparison({MachineReport{document}}), HasSubstr("A machine (measured elsewhere)"));
}

// A file from elsewhere may have anything anywhere.
TEST(ReportPage, ADocumentOfOtherTypesIsRenderedWithoutAComplaint) {
    for (const char* const member : {"schema", "machine", "host", "only", "probes", "created", "measured"}) {
        for (const Json& odd :
             {Json{}, Json(7), Json("text"), Json::array({1, "x", nullptr}), Json::object(), Json(true)}) {
            Json document = small_report();
            document[member] = odd;
            EXPECT_FALSE(render_page(MachineReport{document}).empty());
            static_cast<void>(differences(MachineReport{document}, MachineReport{small_report()}, false));
        }
    }
    Json whole = small_report();
    for (const auto& [member, value] : report_in(whole).items()) {
        for (const Json& odd : {Json{}, Json(7), Json::array({1, "x", Json::array()}), Json{{"a", {{"b", 1}}}}}) {
            Json document = small_report();
            report_in(document)[member] = odd;
            EXPECT_FALSE(render_page(MachineReport{document}).empty());
            EXPECT_FALSE(render_comparison({MachineReport{document}}).empty());
            static_cast<void>(differences(MachineReport{small_report()}, MachineReport{document}, true));
        }
    }
}

TEST(Facts, AreNamedOnceAndSayWhereTheyComeFrom) {
    std::vector<std::string> names;
    for (const FactRow& row : fact_rows()) {
        EXPECT_EQ(std::count(names.begin(), names.end(), row.fact), 0) << row.fact;
        names.emplace_back(row.fact);
        EXPECT_FALSE(sources_of(row).empty());
        for (const FactSource& source : row.sources) {
            EXPECT_EQ(source.question, row.sources.front().question) << row.fact;
        }
    }
}

const FactRow& row_of(std::string_view fact) {
    for (const FactRow& row : fact_rows()) {
        if (row.fact == fact) {
            return row;
        }
    }
    throw std::runtime_error("no such row");
}

TEST(Facts, NotRecordedNotSeenAndNotAskedAreThreeThings) {
    Json document = small_report();
    const MachineReport report{document};
    EXPECT_EQ(fact_of(report, row_of("reported granularity")), "not recorded");
    EXPECT_EQ(fact_of(report, row_of("scatter list")), "not seen: no importer");
    EXPECT_EQ(fact_of(report, row_of("IOMMU_IOAS_MAP_FILE of a GPU dma-buf")), "not recorded");
    document["probes"].push_back(
        Json{{"probe", "vram_ioas_cuda"}, {"outcome", "not_asked"}, {"reason", "there is no /dev/iommu"}});
    EXPECT_EQ(fact_of(MachineReport{document}, row_of("IOMMU_IOAS_MAP_FILE of a GPU dma-buf")),
              "not asked: there is no /dev/iommu");
    EXPECT_EQ(fact_of(report, row_of("kernel, driver")), "Linux 7.3.4 x86_64; driver 1.2.3");
}

TEST(Facts, OfTwoVendorsTheOneThatIsThereIsHeard) {
    Json document = small_report("dmabuf_hip", "ignored");
    Json cuda{{"probe", "dmabuf_cuda"}, {"outcome", "not_asked"}, {"reason", "no libcuda.so.1"}};
    Json stub = small_report("dmabuf_stub", "other")["probes"][0];
    document["probes"].insert(document["probes"].begin(), cuda);
    document["probes"].insert(document["probes"].begin(), stub);
    EXPECT_THAT(fact_of(MachineReport{document}, row_of("sub-range export")), HasSubstr("ignored"));
    EXPECT_EQ(fact_of(MachineReport{document}, row_of("export of managed memory")), "not recorded");
    document["probes"].push_back(Json{{"probe", "vram_ioas_cuda"}, {"outcome", "not_asked"}, {"reason", "no NVIDIA"}});
    document["probes"].push_back(Json{{"probe", "vram_ioas_hip"}, {"outcome", "not_asked"}, {"reason", "no IOMMU"}});
    EXPECT_EQ(fact_of(MachineReport{document}, row_of("IOMMU_IOAS_MAP_FILE of a GPU dma-buf")), "not asked: no IOMMU");
}

TEST(Facts, WhoAskedDecidesWhichRowItIs) {
    Json document = small_report();
    const auto share = [](const char* role, int uid, const char* outcome) {
        Json processes{{"primary", {{"effective_uid", 0}}}};
        processes[role] = Json{{"effective_uid", uid}};
        return Json{{"probe", "vfio_share_gpu_cuda"},
                    {"outcome", "answered"},
                    {"report",
                     {{"processes", processes},
                      {"observations", Json::array({seen("bar.registration", outcome, "outcome")})}}}};
    };
    document["probes"].push_back(share("standalone", 0, "ok"));
    document["probes"].push_back(share("secondary", 1000, "EPERM"));
    document["probes"].push_back(share("standalone", 1000, "EACCES"));
    const MachineReport report{document};
    EXPECT_EQ(fact_of(report, row_of("BAR of an NVMe controller registered as IOMEMORY, as root")), "ok");
    EXPECT_EQ(fact_of(report, row_of("the same, as uid 1000 without capabilities")), "EPERM / EACCES");
}

TEST(Facts, OneMachineAskedByTwoUsersHasTwoColumnsThatSayWhoAsked) {
    Json document = small_report();
    document["host"]["uid"] = 0;
    report_in(document)["processes"] = Json::object();
    report_in(document)["observations"].push_back(seen("a.whole.export", "ok", "outcome"));
    Json other = document;
    other["host"]["uid"] = 1000;
    const MachineReport root{document};
    const MachineReport user{other};
    const FactRow& row = row_of("export as an unprivileged user");
    EXPECT_EQ(fact_of(root, row), "not recorded");
    EXPECT_EQ(fact_of(user, row), "ok");
    const std::string page = render_comparison({root, user});
    EXPECT_THAT(page, HasSubstr("|  | A machine, as uid 0 | A machine, as uid 1000 |\n"));
    EXPECT_THAT(page, HasSubstr("| export as an unprivileged user | not recorded | ok |\n"));
    EXPECT_THAT(render_comparison({root, root}), HasSubstr("|  | A machine | A machine |\n"));
    EXPECT_THAT(render_comparison({root}), HasSubstr("|  | A machine |\n"));
    Json third = document;
    third["machine"] = "Another";
    EXPECT_THAT(render_comparison({MachineReport{third}, user}), HasSubstr("|  | Another | A machine |\n"));
    EXPECT_EQ(comparison_json({root, user})["machines"][1]["uid"], 1000);
}

TEST(Facts, WithoutADeviceTheRowSaysThatNoneWasGiven) {
    Json document = small_report();
    document["probes"].push_back(
        Json{{"probe", "vfio_share_gpu_cuda"},
             {"outcome", "answered"},
             {"report",
              {{"processes", {{"self", {{"effective_uid", 0}}}}},
               {"observations", Json::array({seen("bar", nullptr, "", "not looked at: no device was given")})},
               {"verdict", {{"answers", Json::array({{{"topic", "device_read"}, {"answer", "not_seen"}}})}}}}}});
    EXPECT_EQ(fact_of(MachineReport{document}, row_of("BAR of an NVMe controller registered as IOMEMORY, as root")),
              "not seen: no device was given");
}

TEST(Facts, BytesAreShortOnlyWhereNothingIsLost) {
    EXPECT_EQ(value_text(65536U, "bytes"), "64 KiB");
    EXPECT_EQ(value_text(3149824U, "bytes"), "3149824 bytes");
    EXPECT_EQ(value_text(4194304U, "bytes"), "4 MiB");
    EXPECT_EQ(value_text(4194305U, "bytes"), "4194305 bytes");
    EXPECT_EQ(value_text(0U, "bytes"), "0 bytes");
    EXPECT_EQ(value_text(512U, "bytes"), "512 bytes");
    EXPECT_EQ(value_text(6U, "runs"), "6 runs");
    EXPECT_EQ(value_text(true, ""), "yes");
    EXPECT_EQ(value_text("EINVAL", "outcome"), "EINVAL");
}

/// "probe kind name", in order.
std::vector<std::string> names_of(const std::vector<Difference>& found) {
    std::vector<std::string> names;
    for (const Difference& one : found) {
        names.push_back(one.probe + " " + one.kind + " " + one.name +
                        (one.only_in_a   ? " only A"
                         : one.only_in_b ? " only B"
                                         : ""));
    }
    return names;
}

TEST(ReportDifference, OfTheSameThereIsNone) {
    EXPECT_TRUE(differences(MachineReport{small_report()}, MachineReport{small_report()}, true).empty());
}

TEST(ReportDifference, AnswersControlsObservationsAndHeadAreCompared) {
    Json other = small_report("dmabuf_cuda", "ignored");
    other["host"]["kernel"] = "Linux 7.4.0 x86_64";
    other["created"] = "2027-01-01";
    report_in(other)["controls"][0]["held"] = false;
    report_in(other)["observations"][3]["value"] = "ok";
    report_in(other)["observations"][1]["note"] = "another note";
    report_in(other)["observations"].push_back(seen("more", 1));
    report_in(other)["observations"].push_back(seen("more", 2));
    report_in(other)["device"]["kernel_driver"] = "1.2.4";
    EXPECT_THAT(names_of(differences(MachineReport{small_report()}, MachineReport{other}, false)),
                ::testing::ElementsAre(" head kernel", " head gpu_driver", "dmabuf_cuda fact device.kernel_driver",
                                       "dmabuf_cuda answer range", "dmabuf_cuda control whole",
                                       "dmabuf_cuda observation edge.no_bytes", "dmabuf_cuda observation more only B",
                                       "dmabuf_cuda observation more (no. 2) only B"));
}

TEST(ReportDifference, WhatIsAnotherAtEachRunCountsOnlyWithAll) {
    Json other = small_report();
    report_in(other)["observations"][2]["value"] = "0x2000";
    report_in(other)["processes"]["self"]["pid"] = 18;
    report_in(other)["processes"]["self"]["VmLck_bytes"] = 0;
    EXPECT_TRUE(differences(MachineReport{small_report()}, MachineReport{other}, false).empty());
    EXPECT_THAT(names_of(differences(MachineReport{small_report()}, MachineReport{other}, true)),
                ::testing::ElementsAre("dmabuf_cuda process self.pid", "dmabuf_cuda process self.VmLck_bytes",
                                       "dmabuf_cuda observation a.whole.first_address"));
    report_in(other)["processes"]["self"]["uid"] = 1000;
    EXPECT_EQ(differences(MachineReport{small_report()}, MachineReport{other}, false).size(), 1U);
    EXPECT_TRUE(is_volatile("x", "address"));
    EXPECT_TRUE(is_volatile("bar0_address", ""));
    EXPECT_TRUE(is_volatile("first.fd", ""));
    EXPECT_TRUE(is_volatile("io.seconds (no. 2)", ""));
    EXPECT_FALSE(is_volatile("own.dma_buf_fd", "outcome"));
    EXPECT_FALSE(is_volatile("map_by_address", "outcome"));
    EXPECT_FALSE(is_volatile("fd_size", "bytes"));
}

TEST(ReportDifference, VendorsAreComparedByTheirQuestionAndWhatOneLacksIsOneRow) {
    Json a = small_report("dmabuf_cuda");
    Json b = small_report("dmabuf_hip", "ignored");
    b["probes"].push_back(Json{{"probe", "noiommu_pa"}, {"outcome", "skipped"}, {"reason", "no device"}});
    EXPECT_THAT(
        names_of(differences(MachineReport{a}, MachineReport{b}, false)),
        ::testing::ElementsAre("dmabuf fact flavour", "dmabuf answer range", "noiommu_pa outcome outcome only B"));
    // Asked here and not there: its rows would all be "only in A".
    b["probes"] = Json::array({Json{{"probe", "dmabuf_cuda"}, {"outcome", "not_asked"}, {"reason", "no GPU"}}});
    EXPECT_THAT(names_of(differences(MachineReport{a}, MachineReport{b}, false)),
                ::testing::ElementsAre(" head gpu only A", " head gpu_driver only A", "dmabuf_cuda outcome outcome",
                                       "dmabuf_cuda outcome reason only B", "vfio_cdev outcome outcome only A"));
}

/// Files that the command line is given.
class ReportFiles : public ::testing::Test {
  protected:
    std::string file(const std::string& name, const std::string& text) const {
        const auto path = folder_.path() / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream{path} << text;
        return path.string();
    }
    ::upcie::test::TempDirectory folder_;
};

TEST_F(ReportFiles, AFolderAFileAndAProbesOwnJsonAreReports) {
    const std::string a = file("a/report.json", small_report().dump());
    Json whole = small_report("dmabuf_cuda", "ignored");
    const std::string probe = file("probe.json", report_in(whole).dump());
    auto answer = upcie({"report", "--diff", a, (folder_.path() / "a").string()});
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.out, HasSubstr("no differences"));
    answer = upcie({"report", "--diff", a, probe, "--json"});
    ASSERT_EQ(answer.code, 0);
    EXPECT_EQ(answer.json()["result"]["equal"], false);
    bool found = false;
    const Json document = answer.json();
    for (const Json& one : document["result"]["differences"]) {
        found = found || (one["kind"] == "answer" && one["a"] == "honoured" && one["b"] == "ignored");
    }
    EXPECT_TRUE(found) << answer.out;
    answer = upcie({"report", "--diff", a, probe});
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.out, HasSubstr("answer range\n    A: honoured\n    B: ignored\n"));
    answer = upcie({"report", "--render", probe});
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.out, HasSubstr("# A GPU, driver 1.2.3\n"));
    EXPECT_EQ(upcie({"report", "--render", a}).out, render_page(MachineReport{small_report()}));
    EXPECT_EQ(upcie({"report", "--render", a, "--json"}).json()["result"]["pages"][0]["machine"], "A machine");
    answer = upcie({"report", "--compare", a, probe, "--json"});
    ASSERT_EQ(answer.code, 0);
    EXPECT_EQ(answer.json()["result"]["machines"].size(), 2U);
    EXPECT_EQ(answer.json()["result"]["rows"].size(), fact_rows().size());
    EXPECT_EQ(answer.json()["result"]["rows"][1]["cells"].size(), 2U);
}

TEST_F(ReportFiles, WhatIsNoneIsToldApart) {
    const std::string good = file("good.json", small_report().dump());
    Json newer = small_report();
    newer["schema"]["version"] = 2;
    struct Case {
        std::string path;
        int code;
        const char* text;
    };
    for (const Case& one :
         {Case{(folder_.path() / "nowhere").string(), 4, "ENOENT"}, Case{folder_.path().string(), 4, "ENOENT"},
          Case{file("text", "hello"), 1, "not JSON"}, Case{file("empty", ""), 1, "not JSON"},
          Case{file("other.json", "{\"schema\": \"upcie.list/1\"}"), 1, "another kind"},
          Case{file("list.json", "[1]"), 1, "another kind"}, Case{file("newer.json", newer.dump()), 1, "version 2"}}) {
        for (const auto& words : std::vector<std::vector<std::string>>{{"report", "--diff", good, one.path},
                                                                       {"report", "--render", one.path},
                                                                       {"report", "--compare", good, one.path}}) {
            const auto answer = upcie(words);
            EXPECT_EQ(answer.code, one.code) << words[1] << " " << one.path << answer.err;
            EXPECT_THAT(answer.err, HasSubstr(one.text));
            EXPECT_EQ(answer.out, "");
        }
    }
}

} // namespace report_page_tests
} // namespace upcie::cli
