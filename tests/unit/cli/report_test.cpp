// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "command.hpp"
#include "machine_report.hpp"
#include "report_identifiers.hpp"
#include "support/mock_system.hpp"

namespace upcie::cli {
namespace report_tests {

using test::upcie;
using ::testing::HasSubstr;
using ::testing::Not;

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// What a probe prints; `asked` false makes it one that could not be asked.
std::string probe_json(const std::string& probe, bool asked = true, const std::string& note = "") {
    Json document;
    document["schema"] = Json{{"name", "upcie-probe"}, {"version", 1}};
    document["probe"] = probe;
    document["tool_version"] = "0.1.0";
    document["kernel"] = "Linux 7.3.4 x86_64";
    document["iommu_mode"] = "on, default domain DMA";
    document["device"] = Json{{"name", "A GPU"}, {"pci", "0000:02:00.0"}, {"kernel_driver", "1.2.3"}};
    document["drivers"] = Json::object();
    document["question"] = "Is it so?";
    document["asked"] = asked;
    document["processes"] = Json::object();
    document["controls"] = Json::array();
    document["observations"] =
        Json::array({Json{{"name", "thing"}, {"value", 4096}, {"unit", "bytes"}, {"errno", nullptr}, {"note", note}}});
    if (asked) {
        document["verdict"] = Json{{"sentence", "It is so"},
                                   {"conclusive", true},
                                   {"answers", Json::array({Json{{"topic", "so"},
                                                                 {"answer", "yes"},
                                                                 {"conclusive", true},
                                                                 {"failed_controls", Json::array()},
                                                                 {"sentence", "It is so"}}})}};
    } else {
        document["reason"] = "there is no such thing";
        document["remedy"] = "Get one.";
        document["verdict"] = nullptr;
    }
    return document.dump();
}

/// The same with a member that is another.
std::string changed(const char* member, Json value) {
    Json document = Json::parse(probe_json("dmabuf_cuda"));
    document[member] = std::move(value);
    return document.dump();
}

/// A machine whose probes are what a test writes.
class MachineReports : public ::testing::Test {
  protected:
    MachineReports() {
        std::filesystem::create_directories(folder_.path() / "probes");
        fake_.write("proc/sys/kernel/osrelease", "7.3.4\n");
        fake_.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU @ 3 GHz\n");
        fake_.write("proc/self/status", "Name:\tupcie\nUid:\t0\t0\t0\t0\nCapEff:\t0\n");
        fake_.write("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
        fake_.write("sys/kernel/iommu_groups/3/type", "DMA-FQ\n");
    }

    /// A program that prints `output` and ends as `ending` has it.
    void add_probe(const std::string& name, const std::string& output, const std::string& ending = "exit 0") {
        const auto printed = folder_.path() / (name + ".printed");
        std::ofstream{printed} << output;
        const auto program = folder_.path() / "probes" / ("upcie_probe_" + name);
        std::ofstream{program} << "#!/bin/sh\necho \"$@\" >>'" << (folder_.path() / (name + ".arguments")).string()
                               << "'\ncat '" << printed.string() << "'\n"
                               << ending << "\n";
        std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    }
    std::string arguments_of(const std::string& name) const {
        return content_of(folder_.path() / (name + ".arguments"));
    }
    test::Answer report(std::vector<std::string> more) const {
        std::vector<std::string> words{"report", "--out", out()};
        words.insert(words.end(), more.begin(), more.end());
        return upcie(words, roots());
    }
    HostRoots roots() const {
        HostRoots roots = test::roots_of(fake_);
        roots.os_release = fake_.path("etc/os-release");
        roots.probe_folders = {(folder_.path() / "probes").string()};
        return roots;
    }
    std::string out() const { return (folder_.path() / "out").string(); }
    Json written() const { return Json::parse(content_of(out() + "/report.json"), nullptr, false); }
    std::string page() const { return content_of(out() + "/report.md"); }
    Json entry(const std::string& probe) const {
        Json document = written();
        for (const Json& one : document["probes"]) {
            if (one["probe"] == probe) {
                return one;
            }
        }
        ADD_FAILURE() << "no entry of " << probe;
        return Json{{"outcome", ""},     {"reason", ""}, {"remedy", ""}, {"device", ""},
                    {"exit_status", ""}, {"signal", ""}, {"errors", ""}, {"report", ""}};
    }
    std::vector<std::string> names_in_out() const {
        std::vector<std::string> names;
        for (const auto& one : std::filesystem::directory_iterator{out()}) {
            names.push_back(one.path().filename().string());
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    ::upcie::test::FakeSysfs fake_;
    ::upcie::test::TempDirectory folder_;
};

TEST_F(MachineReports, EachProbesReportStandsInItUnchanged) {
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"));
    const auto answer = report({});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "--json\n");
    Json document = written();
    EXPECT_EQ(document["schema"]["name"], "upcie-report");
    EXPECT_EQ(document["machine"], "A GPU, driver 1.2.3");
    EXPECT_EQ(document["host"]["cpu"], "Some CPU @ 3 GHz");
    EXPECT_EQ(document["host"]["cpu_vendor"], "GenuineIntel");
    EXPECT_EQ(document["host"]["distribution"], "Debian GNU/Linux 12");
    EXPECT_EQ(document["host"]["iommu"], "on, default domain DMA-FQ");
    EXPECT_EQ(document["host"]["uid"], 0);
    EXPECT_EQ(document["created"].get<std::string>().size(), 10U) << "a date";
    Json one = entry("dmabuf_cuda");
    EXPECT_EQ(one["outcome"], "answered");
    EXPECT_EQ(one["exit_status"], 0);
    EXPECT_EQ(one["report"].dump(), Json::parse(probe_json("dmabuf_cuda")).dump());
    EXPECT_THAT(answer.out, HasSubstr("dmabuf_cuda: answered: so yes"));
    EXPECT_EQ(names_in_out(), (std::vector<std::string>{"report.json", "report.md"}));
    EXPECT_THAT(page(), HasSubstr("so: **yes**. It is so."));
}

TEST_F(MachineReports, WhatIsNotThereAndWhatNeedsADeviceHasItsReason) {
    add_probe("vfio_cdev", probe_json("vfio_cdev"));
    add_probe("of_tomorrow", "");
    ASSERT_EQ(report({}).code, 0);
    EXPECT_EQ(entry("vfio_cdev")["outcome"], "skipped");
    EXPECT_THAT(entry("vfio_cdev")["reason"].get<std::string>(), HasSubstr("resets it"));
    EXPECT_THAT(entry("vfio_cdev")["remedy"].get<std::string>(), HasSubstr("--device"));
    EXPECT_EQ(arguments_of("vfio_cdev"), "") << "it was started";
    EXPECT_EQ(entry("dmabuf_hip")["outcome"], "absent");
    EXPECT_EQ(entry("of_tomorrow")["outcome"], "skipped");
    EXPECT_THAT(entry("of_tomorrow")["reason"].get<std::string>(), HasSubstr("does not know"));
    EXPECT_THAT(page(), HasSubstr("| vfio_cdev | skipped | it takes a device over"));
}

TEST_F(MachineReports, ANamedDeviceIsAskedByEachProbeThatTakesOne) {
    for (const char* const name : {"vfio_cdev", "vfio_share", "vfio_delegate", "noiommu_pa", "dmabuf_cuda",
                                   "vram_ioas_cuda", "vfio_bar_import_cuda", "vfio_share_gpu_cuda"}) {
        add_probe(name, probe_json(name));
    }
    ASSERT_EQ(report({"--device", "01:00.0"}).code, 0);
    EXPECT_EQ(entry("vfio_cdev")["device"], "0000:01:00.0");
    EXPECT_EQ(arguments_of("vfio_cdev"), "0000:01:00.0 --json\n");
    EXPECT_EQ(arguments_of("vfio_share"), "primary 0000:01:00.0 --spawn --json\n");
    EXPECT_EQ(arguments_of("vfio_delegate"), "standalone 0000:01:00.0 --json\n");
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "--as 0000:01:00.0 --json\n");
    EXPECT_TRUE(entry("dmabuf_cuda")["device"].is_null()) << "it is not asked about";
    EXPECT_EQ(arguments_of("vfio_bar_import_cuda"), "0000:01:00.0 --json\n");
    EXPECT_EQ(arguments_of("vram_ioas_cuda"), "0000:01:00.0 --json\n");
    EXPECT_EQ(arguments_of("vfio_share_gpu_cuda"), "standalone 0000:01:00.0 --json\n"
                                                   "standalone 0000:01:00.0 --try-capabilities --json\n");
    ASSERT_EQ(report({}).code, 0);
    EXPECT_THAT(arguments_of("vfio_share_gpu_cuda"),
                ::testing::EndsWith("standalone --memory --json\nstandalone --memory --try-capabilities --json\n"));
    EXPECT_THAT(arguments_of("vram_ioas_cuda"), ::testing::EndsWith("\n--json\n"));
    ASSERT_EQ(report({"--device", "01:00.0", "--device", "/dev/vfio/devices/vfio1", "--only", "vfio_cdev"}).code, 0);
    EXPECT_EQ(written()["probes"].size(), 2U);
    EXPECT_EQ(written()["probes"][1]["device"], "/dev/vfio/devices/vfio1");
}

TEST_F(MachineReports, AQuestionThatCouldNotBeAskedKeepsItsReasonAndRemedy) {
    add_probe("dmabuf_hip", probe_json("dmabuf_hip", false), "exit 1");
    ASSERT_EQ(report({"--only", "dmabuf_hip"}).code, 0);
    Json one = entry("dmabuf_hip");
    EXPECT_EQ(one["outcome"], "not_asked");
    EXPECT_EQ(one["exit_status"], 1);
    EXPECT_EQ(one["reason"], "there is no such thing");
    EXPECT_EQ(one["report"]["asked"], false);
    EXPECT_THAT(page(), HasSubstr("**not asked**: there is no such thing."));
    EXPECT_THAT(page(), HasSubstr("What would help: Get one."));
}

TEST_F(MachineReports, ACrashSaysWhichSignalAndWhatItSaid) {
    add_probe("dmabuf_cuda", "", "echo 'all is lost' >&2\nkill -SEGV $$");
    ASSERT_EQ(report({"--only", "dmabuf_cuda"}).code, 0);
    Json one = entry("dmabuf_cuda");
    EXPECT_EQ(one["outcome"], "failed");
    EXPECT_EQ(one["signal"], "SIGSEGV");
    EXPECT_TRUE(one["exit_status"].is_null());
    EXPECT_EQ(one["errors"], "all is lost");
    EXPECT_THAT(page(), HasSubstr("SIGSEGV ended it"));
    EXPECT_THAT(page(), HasSubstr("    all is lost"));
}

// The child that the probe started has to go too: it would keep the device.
TEST_F(MachineReports, AProbeThatHangsIsKilledWithAllThatItStarted) {
    const auto number = folder_.path() / "number";
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"), "sleep 300 & echo $! >'" + number.string() + "'\nwait");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(report({"--only", "dmabuf_cuda", "--timeout", "1"}).code, 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{30});
    Json one = entry("dmabuf_cuda");
    EXPECT_EQ(one["outcome"], "timed_out");
    EXPECT_EQ(one["signal"], "SIGKILL");
    EXPECT_TRUE(one["report"].is_null()) << "what it had printed by then is no answer";
    EXPECT_THAT(one["remedy"].get<std::string>(), HasSubstr("--timeout"));
    const std::string child = content_of(number);
    ASSERT_FALSE(child.empty());
    // Dead, or a zombie that nobody has waited for yet.
    bool runs = true;
    for (int tries = 0; tries < 200 && runs; ++tries) {
        const std::string status = content_of("/proc/" + std::to_string(std::stoi(child)) + "/stat");
        const auto state = status.rfind(") ");
        runs = state != std::string::npos && status[state + 2] != 'Z' && status[state + 2] != 'X';
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    EXPECT_FALSE(runs);
}

// Output that stays open in a process of its own does not keep the report waiting.
TEST_F(MachineReports, WhatAProbeLeavesBehindIsKilledWhenItEnds) {
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"), "sleep 300 &\nexit 0");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(report({"--only", "dmabuf_cuda"}).code, 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{30});
    EXPECT_EQ(entry("dmabuf_cuda")["outcome"], "answered");
}

TEST_F(MachineReports, WhatIsNoReportIsAFailureThatShowsIt) {
    struct Case {
        std::string output;
        std::string ending;
        std::string reason;
    };
    for (const Case& one :
         {Case{"it went well\n", "exit 0", "no probe's report"}, Case{"", "exit 0", "printed nothing"},
          Case{"{\"schema\": 7}", "exit 0", "no probe's report"}, Case{"[]", "exit 1", "no probe's report"},
          Case{"usage: ...", "exit 2", "wrong usage"},
          Case{probe_json("vfio_cdev"), "exit 0", "another probe, vfio_cdev"},
          Case{probe_json("dmabuf_cuda"), "exit 1", "not what its report says"},
          Case{probe_json("dmabuf_cuda", false), "exit 0", "not what its report says"},
          Case{probe_json("dmabuf_cuda") + probe_json("dmabuf_cuda"), "exit 0", "no probe's report"},
          Case{changed("observations", Json::object()), "exit 0", "observations is an object and has to be a list"},
          Case{changed("verdict", "yes"), "exit 0", "verdict is text"},
          Case{changed("schema", Json{{"name", "upcie-probe"}, {"version", 99}}), "exit 0", "EOPNOTSUPP"},
          Case{probe_json("dmabuf_cuda"), "exit 7", "status 7"}}) {
        add_probe("dmabuf_cuda", one.output, one.ending);
        ASSERT_EQ(report({"--only", "dmabuf_cuda"}).code, 0);
        EXPECT_EQ(entry("dmabuf_cuda")["outcome"], "failed") << one.output;
        EXPECT_THAT(entry("dmabuf_cuda")["reason"].get<std::string>(), HasSubstr(one.reason));
        EXPECT_THAT(entry("dmabuf_cuda")["remedy"].get<std::string>(), HasSubstr("by hand"));
        EXPECT_EQ(entry("dmabuf_cuda").contains("output"), !one.output.empty());
        EXPECT_THAT(page(), HasSubstr(one.reason));
    }
}

TEST_F(MachineReports, ALotOfOutputIsReadToItsEnd) {
    // More than a pipe holds: who does not read while waiting waits for ever.
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda", true, std::string(300000, 'x')));
    ASSERT_EQ(report({"--only", "dmabuf_cuda", "--timeout", "60"}).code, 0);
    EXPECT_EQ(entry("dmabuf_cuda")["outcome"], "answered");
    add_probe("dmabuf_cuda", "", "head -c 20000000 /dev/zero");
    ASSERT_EQ(report({"--only", "dmabuf_cuda", "--timeout", "60"}).code, 0);
    EXPECT_EQ(entry("dmabuf_cuda")["reason"], "it printed more than 16 MiB (status 0)");
}

TEST_F(MachineReports, IdentifiersAreLeftOutUnlessAskedFor) {
    char name[256] = {};
    ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
    const std::string host{name};
    const std::string uuid = "GPU-12345678-9abc-def0-1234-56789abcdef0";
    const std::string mac = "52:54:00:12:34:56";
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda", true, uuid + ", " + mac + " on " + host + "."));
    ASSERT_EQ(report({"--only", "dmabuf_cuda"}).code, 0);
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "--json\n");
    const std::string all = content_of(out() + "/report.json") + page();
    EXPECT_THAT(all, Not(HasSubstr("12345678-9abc")));
    EXPECT_THAT(all, Not(HasSubstr(mac)));
    EXPECT_THAT(all, HasSubstr("GPU-(left out), (left out) on "));
    EXPECT_FALSE(written()["host"].contains("name"));
    ASSERT_EQ(report({"--only", "dmabuf_cuda", "--with-identifiers"}).code, 0);
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "--json\n--uuid --json\n");
    EXPECT_THAT(content_of(out() + "/report.json"), HasSubstr(uuid));
    EXPECT_EQ(written()["host"]["name"], host);
    EXPECT_GT(written()["created"].get<std::string>().size(), 10U);
}

TEST(Identifiers, WordsThatOnlyLookAlikeStay) {
    EXPECT_EQ(without_identifiers("0000:01:00.0 0x0000000000140204 12:34:56", "gpu1"),
              "0000:01:00.0 0x0000000000140204 12:34:56");
    EXPECT_EQ(without_identifiers("gpu1 gpu10 my_gpu1 /home/gpu1/x gpu1", "gpu1"),
              "(left out) gpu10 my_gpu1 /home/(left out)/x (left out)");
    EXPECT_EQ(without_identifiers("localhost", "localhost"), "localhost");
    EXPECT_EQ(without_identifiers("52:54:00:12:34:56:78", ""), "52:54:00:12:34:56:78") << "longer than any MAC";
    Json document{{"name", "primary"},
                  {"serial", "S1"},
                  {"device", {{"gpu_uuid", 7}, {"name", "primary"}, {"text", "primary"}}},
                  {"seen", Json::array({{{"name", "nvme.serial"}, {"value", "S2"}, {"unit", ""}}})}};
    leave_out_identifiers(document, "primary");
    EXPECT_EQ(document["name"], "primary");
    EXPECT_EQ(document["serial"], "(left out)");
    EXPECT_EQ(document["device"]["gpu_uuid"], "(left out)");
    EXPECT_EQ(document["device"]["name"], "primary") << "a host's name has no say in words of a schema";
    EXPECT_EQ(document["device"]["text"], "(left out)");
    EXPECT_EQ(document["seen"][0]["value"], "(left out)");
    EXPECT_EQ(document["seen"][0]["name"], "nvme.serial");
}

TEST_F(MachineReports, OnlyAReportsOwnFilesAreReplaced) {
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"));
    ASSERT_EQ(report({"--name", "one"}).code, 0);
    ASSERT_EQ(report({"--name", "two"}).code, 0);
    EXPECT_EQ(written()["machine"], "two");
    std::ofstream{out() + "/report.md"} << "# My own notes\n";
    std::filesystem::remove(folder_.path() / "dmabuf_cuda.arguments");
    auto answer = report({"--name", "three"});
    EXPECT_EQ(answer.code, 4);
    EXPECT_THAT(answer.err, HasSubstr("EEXIST"));
    EXPECT_EQ(page(), "# My own notes\n");
    EXPECT_EQ(written()["machine"], "two");
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "") << "a probe ran for a report that cannot be written";
    std::filesystem::remove(out() + "/report.md");
    std::ofstream{out() + "/report.json"} << "{}";
    EXPECT_EQ(report({}).code, 4);
    EXPECT_EQ(content_of(out() + "/report.json"), "{}");
    EXPECT_EQ(names_in_out(), (std::vector<std::string>{"report.json"}));
    std::ofstream{folder_.path() / "file"} << "x";
    EXPECT_EQ(upcie({"report", "--out", (folder_.path() / "file").string()}, roots()).code, 4);
    EXPECT_EQ(upcie({"report", "--out", (folder_.path() / "file" / "below").string()}, roots()).code, 4);
}

// The operation, "on", the folder: a sentence for each.
TEST_F(MachineReports, AFolderThatTakesNoFileIsNamedInWords) {
    ::upcie::test::MockSystem system;
    ON_CALL(system, access(::testing::_, W_OK | X_OK)).WillByDefault(::upcie::test::fails_with(EACCES));
    const auto denied = prepare_report_folder(system, folder_.path().string());
    ASSERT_FALSE(denied);
    EXPECT_THAT(denied.error().message(),
                ::testing::StartsWith("write access on " + folder_.path().string() + ": EACCES"));
    std::ofstream{folder_.path() / "file"} << "x";
    const std::string below = (folder_.path() / "file" / "below").string();
    const auto no_folder = prepare_report_folder(system, below);
    ASSERT_FALSE(no_folder);
    EXPECT_THAT(no_folder.error().message(), ::testing::StartsWith("mkdir on " + below + ": ENOTDIR"));
}

TEST_F(MachineReports, WrongUsageIsTwoAndRunsNothing) {
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"));
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"--device", "nonsense"},
                                               {"--only", "nonsense"},
                                               {"--only", "dmabuf_stub"},
                                               {"--timeout", "0"},
                                               {"--timeout", "nan"},
                                               {"--name", ""},
                                               {"--all"},
                                               {"--diff", "a", "b"}, // together with --out
                                               {"--render", "a"},
                                               {"nonsense"}}) {
        EXPECT_EQ(report(words).code, 2) << words[0];
    }
    EXPECT_EQ(upcie({"report", "--diff", "a"}).code, 2);
    EXPECT_EQ(upcie({"report", "--render"}).code, 2);
    EXPECT_EQ(upcie({"report", "--render", "a", "--compare", "b"}).code, 2);
    EXPECT_EQ(arguments_of("dmabuf_cuda"), "");
    EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(MachineReports, WithoutAnyProbeTheExitStatusIsThatOfAPrecondition) {
    const auto answer = report({});
    EXPECT_EQ(answer.code, 4);
    EXPECT_THAT(answer.err, HasSubstr("upcie_probe_*"));
    EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(MachineReports, StubsAreRunOnlyWhenAskedFor) {
    add_probe("dmabuf_stub", probe_json("dmabuf_stub"));
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"));
    ASSERT_EQ(report({"--only", "dmabuf"}).code, 0);
    EXPECT_EQ(written()["probes"].size(), 2U) << "cuda and hip";
    EXPECT_EQ(arguments_of("dmabuf_stub"), "");
    ASSERT_EQ(report({"--only", "upcie_probe_dmabuf_stub", "--with-stub"}).code, 0);
    EXPECT_EQ(entry("dmabuf_stub")["outcome"], "answered");
    EXPECT_EQ(written()["only"][0], "upcie_probe_dmabuf_stub");
    EXPECT_THAT(page(), HasSubstr("`--only`"));
}

TEST_F(MachineReports, TheAnswerIsADocumentWithJson) {
    add_probe("dmabuf_cuda", probe_json("dmabuf_cuda"));
    const auto answer = report({"--json", "--only", "dmabuf_cuda"});
    ASSERT_EQ(answer.code, 0);
    Json document = answer.json();
    ASSERT_TRUE(document.is_object()) << answer.out;
    EXPECT_EQ(document["schema"], "upcie.report/1");
    EXPECT_EQ(document["result"]["folder"], out());
    EXPECT_EQ(document["result"]["machine"], "A GPU, driver 1.2.3");
    EXPECT_EQ(document["result"]["probes"][0]["answers"][0]["answer"], "yes");
}

// SIGINT: the running probe is ended, the rest is not begun, and what there is is written.
TEST_F(MachineReports, ASignalEndsItWithWhatItHas) {
    add_probe("dmabuf_cuda", "", "kill -INT $PPID\nsleep 300");
    add_probe("dmabuf_hip", probe_json("dmabuf_hip"));
    const auto answer = report({"--only", "dmabuf"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_THAT(answer.err, HasSubstr("EINTR"));
    EXPECT_EQ(entry("dmabuf_cuda")["outcome"], "skipped");
    EXPECT_EQ(entry("dmabuf_hip")["outcome"], "skipped");
    EXPECT_EQ(arguments_of("dmabuf_hip"), "");
}

} // namespace report_tests
} // namespace upcie::cli
