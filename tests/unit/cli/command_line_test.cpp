// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "command.hpp"
#include "man_page_path.hpp"

namespace upcie::cli {
namespace {

using test::upcie;
using ::upcie::test::TempDirectory;

std::string contents(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(CommandLine, WrongUsageIsTwo) {
    EXPECT_EQ(upcie({}).code, 2);
    EXPECT_EQ(upcie({"nonsense"}).code, 2);
    EXPECT_EQ(upcie({"identify"}).code, 2);
    EXPECT_EQ(upcie({"read", "sim:", "--blocks", "many"}).code, 2);
    EXPECT_EQ(upcie({"read", "sim:", "--path", "magic"}).code, 2);
    EXPECT_EQ(upcie({"write", "sim:size=1M"}).code, 2);
    EXPECT_EQ(upcie({"write", "sim:size=1M", "--pattern", "plaid"}).code, 2);
    EXPECT_EQ(upcie({"read", "sim:size=1M", "--lba", "2048"}).code, 2);
    EXPECT_EQ(upcie({"read", "sim:size=1M", "--lba", "2040", "--blocks", "9"}).code, 2);
    EXPECT_EQ(upcie({"completion", "tcsh"}).code, 2);
    EXPECT_EQ(upcie({"identify", "sim:size=wrong"}).code, 2);
    EXPECT_EQ(upcie({"identify", "nonsense"}).code, 2);
    EXPECT_EQ(upcie({"unbind", "nonsense"}).code, 2);
    EXPECT_EQ(upcie({"bench", "sim:size=1M", "--size", "1000"}).code, 2);
}

// Each of these would otherwise be taken for another number, on a command that overwrites.
TEST(CommandLine, AValueThatIsNoneIsWrongUsageAndWritesNothing) {
    TempDirectory folder;
    const std::string disk = "sim:size=1M,file=" + (folder.path() / "disk").string();
    for (const char* option : {"--blocks", "--lba", "--nsid", "--seed", "--depth", "--size", "--timeout"}) {
        for (const char* value : {"", "-1", "nan", "1x", "0x", "99999999999999999999999", "0x1ffffffffffffffff"}) {
            const auto answer = upcie({"write", disk, "--pattern", "ones", option, value});
            EXPECT_EQ(answer.code, 2) << option << " '" << value << "': " << answer.err;
        }
    }
    for (const char* value : {"010", "08", " 8", "+8"}) {
        EXPECT_EQ(upcie({"write", disk, "--pattern", "ones", "--lba", value}).code, 2) << value;
    }
    EXPECT_EQ(upcie({"write", disk, "--pattern", "0xa5", "--input", ""}).code, 2);
    EXPECT_EQ(upcie({"write", disk, "--input", "/etc/hostname", "--blocks", "1"}).code, 2) << "which of the two?";
    EXPECT_EQ(upcie({"write", disk, "--input", "/etc/hostname", "--pattern", "ones"}).code, 2);
    for (const char* size : {"0", "1", "511", "513", "1000"}) {
        EXPECT_EQ(upcie({"write", disk, "--pattern", "ones", "--size", size}).code, 2) << size;
    }
    EXPECT_EQ(upcie({"verify", disk, "--pass", "0"}).code, 2);
    EXPECT_EQ(upcie({"verify", disk, "--passes", "3", "--pass", "18446744073709551615"}).code, 2);
    EXPECT_EQ(upcie({"bench", disk, "--seconds", "nan"}).code, 2);
    const std::string written = contents(folder.path() / "disk");
    EXPECT_EQ(written.find_first_not_of('\0'), std::string::npos) << "something was written";
    EXPECT_EQ(upcie({"write", disk, "--pattern", "ones", "--lba", "0x10", "--blocks", "1", "--size", "4K"}).code, 0);
}

TEST(CommandLine, WrongUsageIsADocumentForThoseWhoAskForOne) {
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"read", "sim:", "--bogus", "--json"},
                                               {"read", "--json"},
                                               {"write", "sim:", "--depth", "", "--json"},
                                               {"--json"}}) {
        const auto answer = upcie(words);
        EXPECT_EQ(answer.code, 2);
        Json document = answer.json();
        ASSERT_TRUE(document.is_object()) << answer.out;
        EXPECT_EQ(document["exit_code"], 2);
        EXPECT_FALSE(document["error"]["hint"].get<std::string>().empty());
    }
}

TEST(CommandLine, HelpAndVersionAreNoError) {
    const auto help = upcie({"--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_TRUE(help.says("Exit status"));
    for (const char* subcommand :
         {"list", "doctor", "bind", "unbind", "identify", "read", "write", "verify", "bench", "reset", "completion"}) {
        EXPECT_TRUE(help.says(subcommand)) << subcommand;
        EXPECT_EQ(upcie({subcommand, "--help"}).code, 0) << subcommand;
    }
    const auto version = upcie({"--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_TRUE(version.says("upcie 0.")) << version.out;
}

TEST(CommandLine, ADeviceThatIsNotThereIsAMissingPrecondition) {
    const auto answer = upcie({"identify", "0abc:12:13.4", "--json"});
    EXPECT_EQ(answer.code, 4) << answer.err;
    Json document = answer.json();
    EXPECT_EQ(document["exit_code"], 4);
    EXPECT_FALSE(document["error"]["hint"].get<std::string>().empty());
    EXPECT_EQ(upcie({"bind", "0abc:12:13.4"}).code, 4);
    EXPECT_EQ(upcie({"unbind", "/dev/vfio/devices/vfio4711"}).code, 4);
}

TEST(CommandLine, DestructionOfARealDeviceDemandsItsFlagBeforeAnythingIsTouched) {
    for (const auto& arguments : std::vector<std::vector<std::string>>{{"write", "0abc:12:13.4", "--pattern", "zero"},
                                                                       {"verify", "0abc:12:13.4"},
                                                                       {"bench", "0abc:12:13.4", "--write"}}) {
        const auto answer = upcie(arguments);
        EXPECT_EQ(answer.code, 2) << arguments[0];
        EXPECT_TRUE(answer.says("--destructive")) << answer.err;
        auto allowed = arguments;
        allowed.emplace_back("--destructive");
        EXPECT_EQ(upcie(allowed).code, 4) << arguments[0]; // past the flag: there is no such device
    }
    EXPECT_EQ(upcie({"verify", "0abc:12:13.4", "--read-only"}).code, 4);
    EXPECT_EQ(upcie({"bench", "0abc:12:13.4"}).code, 4);
}

TEST(CommandLine, IdentifyShowsControllerAndNamespaces) {
    const auto answer = upcie({"identify", "sim:size=8M,lba=4096,ns=2,serial=XYZ", "--json"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    Json document = answer.json();
    EXPECT_EQ(document["schema"], "upcie.identify/1");
    EXPECT_EQ(document["result"]["controller"]["serial"], "XYZ");
    ASSERT_EQ(document["result"]["namespaces"].size(), 2U);
    EXPECT_EQ(document["result"]["namespaces"][1]["nsid"], 2);
    EXPECT_EQ(document["result"]["namespaces"][1]["block_size"], 4096);
    EXPECT_EQ(document["result"]["namespaces"][1]["blocks"], 2048);
    const auto text = upcie({"identify", "sim:size=8M"});
    EXPECT_TRUE(text.says("namespace 1")) << text.out;
    EXPECT_TRUE(text.err.find(" through ") != std::string::npos) << text.err; // which path runs, and why
}

TEST(CommandLine, ANamespaceThatIsNotThereOrHasMetadataIsAMissingPrecondition) {
    EXPECT_EQ(upcie({"read", "sim:size=1M", "--nsid", "9"}).code, 4);
    const auto metadata = upcie({"read", "sim:size=1M,meta=8"});
    EXPECT_EQ(metadata.code, 4);
    EXPECT_TRUE(metadata.says("metadata")) << metadata.err;
}

TEST(CommandLine, WhatIsWrittenIsReadBack) {
    const TempDirectory directory;
    const std::string device = "sim:size=4M,file=" + (directory.path() / "disk").string();
    const std::string input = (directory.path() / "in").string();
    const std::string output = (directory.path() / "out").string();
    std::string data(300 * 1024 + 100, '\0');
    for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<char>(i * 31 + i / 4096);
    }
    std::ofstream{input, std::ios::binary} << data;
    const auto wrote = upcie({"write", device, "--input", input, "--lba", "3", "--json"});
    ASSERT_EQ(wrote.code, 0) << wrote.err;
    EXPECT_EQ(wrote.json()["result"]["blocks"], 601);
    const auto got = upcie({"read", device, "--lba", "3", "--blocks", "601", "--output", output, "--depth", "7"});
    ASSERT_EQ(got.code, 0) << got.err;
    auto back = contents(output);
    EXPECT_EQ(back.size(), 601U * 512);
    EXPECT_EQ(back.substr(0, data.size()), data);
    EXPECT_EQ(back.substr(data.size()), std::string(back.size() - data.size(), '\0'));
    // The disk itself, which another program can look at.
    EXPECT_EQ(contents((directory.path() / "disk").string()).substr(3 * 512, data.size()), data);
}

TEST(CommandLine, APatternIsWrittenAndDumped) {
    const TempDirectory directory;
    const std::string device = "sim:size=1M,file=" + (directory.path() / "disk").string();
    ASSERT_EQ(upcie({"write", device, "--pattern", "0xa5", "--lba", "1", "--blocks", "2"}).code, 0);
    const auto dump = upcie({"read", device, "--blocks", "4"});
    EXPECT_EQ(dump.code, 0);
    EXPECT_TRUE(dump.says("0000000200  a5 a5")) << dump.out;
    EXPECT_TRUE(dump.says("0000000600  00 00")) << dump.out;
    const auto json = upcie({"read", device, "--lba", "2", "--json"});
    EXPECT_EQ(json.json()["result"]["data"].get<std::string>().substr(0, 6), "a5a5a5");
    EXPECT_EQ(json.json()["result"]["data"].get<std::string>().size(), 1024U);
}

TEST(CommandLine, AnErrorOfTheDriveFailsAReadAndNamesTheBlocks) {
    const auto answer = upcie({"read", "sim:size=1M,faults=error:2:0x81@op=read", "--lba", "4", "--json"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_EQ(answer.json()["error"]["domain"], "nvme");
    EXPECT_TRUE(answer.says("read block 4")) << answer.out;
}

TEST(CommandLine, AFileThatCannotBeReadIsAMissingPrecondition) {
    EXPECT_EQ(upcie({"write", "sim:size=1M", "--input", "/nonexistent/file"}).code, 4);
    EXPECT_EQ(upcie({"read", "sim:size=1M", "--output", "/nonexistent/file"}).code, 4);
}

TEST(CommandLine, BenchCountsWhatTheDeviceDid) {
    const auto answer = upcie({"bench", "sim:size=4M", "--seconds", "0.2", "--depth", "4", "--queues", "2", "--json"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    Json result = answer.json()["result"];
    EXPECT_GT(result["ios"].get<std::uint64_t>(), 8U);
    EXPECT_GE(result["seconds"].get<double>(), 0.2);
    const double iops = result["iops"];
    EXPECT_NEAR(iops * result["seconds"].get<double>(), result["ios"].get<double>(), 1.0);
    EXPECT_NEAR(result["bytes_per_second"].get<double>(), iops * 4096, 1.0);
    EXPECT_LE(result["latency_ns"]["p50"].get<std::uint64_t>(), result["latency_ns"]["p99"].get<std::uint64_t>());
    EXPECT_LE(result["latency_ns"]["p99"].get<std::uint64_t>(), result["latency_ns"]["max"].get<std::uint64_t>());
    EXPECT_EQ(result["failed"], 0);
}

TEST(CommandLine, BenchWritesSequentiallyWithInterruptsToo) {
    const auto answer =
        upcie({"bench", "sim:size=1M", "--seconds", "0.1", "--write", "--sequential", "--interrupt", "--json"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_GT(answer.json()["result"]["ios"].get<std::uint64_t>(), 0U);
    EXPECT_EQ(answer.json()["result"]["completion"], "interrupt");
}

TEST(CommandLine, BenchFailsWithTheFirstErrorAndStillTellsWhatItMeasured) {
    const auto answer = upcie({"bench", "sim:size=1M,faults=error:2:0x81@op=read&nth=50", "--seconds", "5", "--json"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_EQ(answer.json()["result"]["failed"], 1);
    EXPECT_EQ(answer.json()["error"]["domain"], "nvme");
    EXPECT_LT(answer.json()["result"]["seconds"].get<double>(), 4.0); // it does not go on for the rest of the time
}

TEST(CommandLine, BenchWithoutEnoughVectorsSaysSo) {
    const auto answer = upcie({"bench", "sim:size=1M,vectors=2", "--queues", "2", "--interrupt", "--seconds", "0.1"});
    EXPECT_EQ(answer.code, 4);
    EXPECT_TRUE(answer.says("interrupt vectors")) << answer.err;
}

TEST(CommandLine, ResetSeesTheControllerComeUpAgain) {
    const auto answer = upcie({"reset", "sim:size=1M", "--json"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(answer.json()["result"]["kind"], "controller");
    EXPECT_EQ(upcie({"reset", "sim:size=1M", "--function"}).code, 0);
    const auto stuck = upcie({"reset", "sim:size=1M,to=1,faults=never-ready", "--json"});
    EXPECT_EQ(stuck.code, 1);
    EXPECT_EQ(stuck.json()["error"]["name"], "ETIMEDOUT");
}

/// Every name that a subcommand takes, from the parser itself.
std::vector<std::pair<std::string, std::string>> all_options() {
    std::ostringstream sink;
    Context context{sink, sink, os::real_system(), {}, false};
    CLI::App app;
    Action action;
    add_all(app, context, action);
    std::vector<std::pair<std::string, std::string>> options;
    for (const auto* subcommand : app.get_subcommands(nullptr)) {
        for (const auto* option : subcommand->get_options()) {
            for (const auto& name : option->get_lnames()) {
                options.emplace_back(subcommand->get_name(), name);
            }
        }
    }
    return options;
}

/// The part of the man page about one subcommand: from its .SS to the next.
std::string man_section(const std::string& page, const std::string& subcommand) {
    const auto start = page.find("\n.SS " + subcommand + "\n");
    if (start == std::string::npos) {
        return {};
    }
    const auto end = page.find("\n.S", start + 4);
    return page.substr(start, end == std::string::npos ? end : end - start);
}

TEST(ManPage, HasEachSubcommandAndOption) {
    const std::string page = contents(UPCIE_MAN_PAGE);
    ASSERT_FALSE(page.empty());
    for (const auto& [subcommand, option] : all_options()) {
        const std::string section = man_section(page, subcommand);
        ASSERT_FALSE(section.empty()) << "no section about " << subcommand;
        std::string escaped;
        for (const char c : option) {
            escaped += c == '-' ? std::string{"\\-"} : std::string{c};
        }
        if (option != "help") {
            EXPECT_NE(section.find("\\-\\-" + escaped), std::string::npos) << subcommand << " --" << option;
        }
    }
}

TEST(Completion, EachShellHasEachSubcommandAndOption) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const auto answer = upcie({"completion", shell});
        EXPECT_EQ(answer.code, 0);
        const std::string dashes = std::string{shell} == "fish" ? "-l " : "--";
        for (const auto& [subcommand, option] : all_options()) {
            EXPECT_TRUE(answer.says(subcommand)) << shell << " " << subcommand;
            EXPECT_TRUE(answer.says(dashes + option)) << shell << " " << subcommand << " --" << option;
        }
    }
}

} // namespace
} // namespace upcie::cli
