// SPDX-License-Identifier: BSD-3-Clause
// upcie_rm as a whole, on files.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands.hpp"
#include "rm_data_path.hpp"
#include "trace_builder.hpp"
#include "trace_writer.hpp"

namespace upcie::rm::test {
namespace {

namespace fs = std::filesystem;

struct Answer {
    int status = 0;
    std::string out;
    std::string errors;
};

Answer ask(std::vector<const char*> words) {
    words.insert(words.begin(), "upcie_rm");
    std::ostringstream out;
    std::ostringstream errors;
    const int status = tool::run(static_cast<int>(words.size()), words.data(), {out, errors});
    return {status, out.str(), errors.str()};
}

class RmTool : public ::testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("upcie_rm_test." + std::to_string(::getpid()));
        fs::create_directories(folder_);
        TraceBuilder builder;
        const auto made = builder.objects();
        builder.control(made.subdevice, 0x20800170, Words{340}.bytes(), {}, 0, true);
        builder.uvm(75, Words{8}.bytes());
        text_ = file_text(builder.trace);
        trace_ = write("trace.jsonl", text_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    static std::string file_text(const Trace& trace) {
        std::string text;
        append_line(text, trace.headers.front());
        for (const Record& record : trace.records) {
            append_line(text, record);
        }
        return text;
    }
    std::string write(const char* name, const std::string& text) {
        const std::string path = folder_ / name;
        std::ofstream{path, std::ios::binary} << text;
        return path;
    }

    fs::path folder_;
    std::string trace_;
    std::string text_;
};

TEST_F(RmTool, DecodesEveryForm) {
    const Answer timeline = ask({"decode", trace_.c_str()});
    EXPECT_EQ(timeline.status, 0) << timeline.errors;
    EXPECT_NE(timeline.out.find("copy engine 1"), std::string::npos);
    EXPECT_NE(timeline.out.find("(by XFER)"), std::string::npos);
    TraceBuilder exporting;
    const auto objects = exporting.objects();
    exporting.control(objects.device, 0x3d05, Words{24}.u32(12, objects.memory).bytes(), Words{24}.u32(16, 9).bytes());
    const std::string exported = write("export.jsonl", file_text(exporting.trace));
    EXPECT_NE(ask({"decode", exported.c_str()}).out.find("of video memory 1 -> descriptor fd 9"), std::string::npos);
    const Answer summary = ask({"decode", "--summary", trace_.c_str()});
    EXPECT_NE(summary.out.find("9 ioctls"), std::string::npos) << summary.out;
    const Answer json = ask({"decode", "--json", trace_.c_str()});
    const auto parsed = nlohmann::json::parse(json.out);
    EXPECT_EQ(parsed["records"].size(), 9U);
    EXPECT_EQ(parsed["objects"].size(), 7U);
    const auto counts = nlohmann::json::parse(ask({"decode", "--summary", "--json", trace_.c_str()}).out);
    EXPECT_EQ(counts["ioctls"], 9);
    EXPECT_EQ(counts["xfer_wrapped"].size(), 1U);
    EXPECT_NE(ask({"decode", "--tree", trace_.c_str()}).out.find("  device 1"), std::string::npos);
}

TEST_F(RmTool, ReadsXz) {
    const std::string packed = folder_ / "trace.jsonl.xz";
    ASSERT_TRUE(write_all(packed, text_, std::cout));
    EXPECT_LT(fs::file_size(packed), text_.size());
    EXPECT_EQ(ask({"decode", packed.c_str()}).out, ask({"decode", trace_.c_str()}).out);
    const auto bytes = read_all(packed).value();
    const std::string cut = write("cut.xz", bytes.substr(0, bytes.size() / 2));
    const Answer broken = ask({"decode", cut.c_str()});
    EXPECT_EQ(broken.status, 1);
    EXPECT_NE(broken.errors.find("unpack xz"), std::string::npos) << broken.errors;
}

TEST_F(RmTool, SaysWhatIsWrongWithATrace) {
    EXPECT_EQ(ask({"decode", "/nonexistent"}).status, 1);
    const std::string nonsense = write("nonsense", "hello\nworld\n");
    const Answer answer = ask({"decode", nonsense.c_str()});
    EXPECT_EQ(answer.status, 1);
    EXPECT_NE(answer.errors.find("line 1"), std::string::npos) << answer.errors;
    // A line in the middle that cannot be read makes the status 1; one cut off by a killed tracer does not.
    const std::size_t second = text_.find('\n', text_.find('\n') + 1) + 1;
    std::string damaged = text_;
    damaged.insert(second, "{\"type\":\"ioctl\",\"fd\":\"x\"\n");
    const std::string bad = write("bad.jsonl", damaged);
    const Answer partly = ask({"decode", "--summary", bad.c_str()});
    EXPECT_EQ(partly.status, 1);
    EXPECT_NE(partly.errors.find("line 3"), std::string::npos) << partly.errors;
    EXPECT_NE(partly.out.find("9 ioctls"), std::string::npos);
    const std::string cut = write("cut.jsonl", text_.substr(0, text_.size() - 20));
    const Answer killed = ask({"decode", "--summary", cut.c_str()});
    EXPECT_EQ(killed.status, 0) << killed.errors;
    EXPECT_NE(killed.errors.find("line 10"), std::string::npos) << killed.errors;
    EXPECT_NE(killed.out.find("8 ioctls"), std::string::npos);
}

TEST_F(RmTool, AFolderIsNoTraceAndNoTable) {
    const auto refused = [](const Answer& answer) {
        EXPECT_EQ(answer.status, 1);
        EXPECT_EQ(answer.out, "");
        EXPECT_NE(answer.errors.find("EISDIR"), std::string::npos) << answer.errors;
        EXPECT_NE(answer.errors.find("it is a folder"), std::string::npos) << answer.errors;
    };
    for (const char* command : {"decode", "contract", "scrub", "picture", "timeline"}) {
        refused(ask({command, "/"}));
    }
    refused(ask({"diff", "/", trace_.c_str()}));
    refused(ask({"diff", trace_.c_str(), "/"}));
    refused(ask({"contract", trace_.c_str(), "--against", "/"}));
    const int kept = ::dup(STDIN_FILENO);
    const int folder = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(::dup2(folder, STDIN_FILENO), 0);
    refused(ask({"decode", "-"}));
    EXPECT_TRUE(std::ferror(stdin) != 0 || std::cin.bad());
    std::clearerr(stdin);
    std::cin.clear();
    ::close(folder);
    if (kept >= 0) {
        ::dup2(kept, STDIN_FILENO);
        ::close(kept);
    }
    // Any other failing read.
    const Answer memory = ask({"decode", "/proc/self/mem"});
    EXPECT_EQ(memory.status, 1);
    EXPECT_NE(memory.errors.find("EIO"), std::string::npos) << memory.errors;
    EXPECT_NE(memory.errors.find("could not be read to its end"), std::string::npos) << memory.errors;
}

TEST_F(RmTool, ATraceCannotCommandTheTerminal) {
    TraceBuilder builder;
    const std::string bad = "\x1b[2J\n\x7f\xc2\x9b\xe2\x80\xae";
    builder.trace.headers[0].command = {"/bin/" + bad};
    builder.trace.headers[0].gpus = {"GPU" + bad};
    builder.trace.headers[0].driver = bad; // said as a problem
    builder.objects();
    builder.record(OpenRecord{"openat", "/proc/" + bad, "/proc/" + bad, 0, 0, false, {}, 0, 0, {}});
    builder.record(NoteRecord{"note" + bad, "text" + bad});
    std::string text = file_text(builder.trace);
    text +=
        "{\"type\":\"un\\u001b[2Jknown\",\"run\":7,\"sequence\":" + std::to_string(builder.trace.records.size() + 1) +
        "}\n";
    const std::string path = write("terminal.jsonl", text);
    const std::string spelled = "\\x1b[2J\\n\\x7f\\u{9b}\\u{202e}";
    const auto clean = [&](const std::vector<const char*>& words) {
        const Answer answer = ask(words);
        for (const std::string& shown : {answer.out, answer.errors}) {
            for (const char* one : {"\x1b", "\x7f", "\xc2\x9b", "\xe2\x80\xae"}) {
                EXPECT_EQ(shown.find(one), std::string::npos) << words.at(0) << shown;
            }
        }
        EXPECT_NE(answer.errors.find(spelled), std::string::npos) << answer.errors;
        return answer.out;
    };
    const std::string decoded = clean({"decode", path.c_str()});
    for (const char* where : {"/bin/", "GPU", "/proc/", "text"}) {
        EXPECT_NE(decoded.find(where + spelled), std::string::npos) << where << decoded;
    }
    EXPECT_NE(clean({"decode", "--summary", path.c_str()}).find("un\\x1b[2Jknown"), std::string::npos);
    clean({"decode", "--tree", path.c_str()});
    EXPECT_NE(clean({"contract", path.c_str()}).find(spelled), std::string::npos);
    clean({"diff", path.c_str(), trace_.c_str()});
    // What a program reads keeps the text as it is.
    const auto json = nlohmann::json::parse(ask({"decode", "--json", path.c_str()}).out);
    EXPECT_EQ(json["runs"][0]["command"][0], "/bin/" + bad);
    EXPECT_NE(ask({"scrub", path.c_str()}).out.find("\\u001b[2J"), std::string::npos);
}

TEST_F(RmTool, ADriverThatIsNoVersionIsADamage) {
    TraceBuilder builder;
    builder.objects();
    builder.trace.headers[0].driver = "abc<";
    const std::string path = write("driver.jsonl", file_text(builder.trace));
    const Answer answer = ask({"decode", "--summary", path.c_str()});
    EXPECT_EQ(answer.status, 1);
    // Also where that line is all there is, and whole.
    const std::string text = file_text(builder.trace);
    const std::string header = write("header.jsonl", text.substr(0, text.find('\n') + 1));
    EXPECT_EQ(ask({"decode", "--summary", header.c_str()}).status, 1);
    EXPECT_NE(answer.errors.find("line 1: \"driver\" is \"abc<\""), std::string::npos) << answer.errors;
}

TEST_F(RmTool, TheSameRunTwiceInAFileCountsOnce) {
    const std::string twice = write("twice.jsonl", text_ + text_);
    const Answer answer = ask({"decode", "--summary", twice.c_str()});
    EXPECT_EQ(answer.out, ask({"decode", "--summary", trace_.c_str()}).out);
    EXPECT_EQ(answer.status, 1);
    EXPECT_NE(answer.errors.find("left out: 9 records of run 7"), std::string::npos) << answer.errors;
    EXPECT_EQ(std::count(answer.errors.begin(), answer.errors.end(), '\n'), 1) << answer.errors;
}

TEST_F(RmTool, NothingIsWrittenOntoItsOwnTrace) {
    fs::create_symlink(trace_, folder_ / "link");
    fs::create_hard_link(trace_, folder_ / "hard");
    const std::string dotted = folder_ / "." / "trace.jsonl";
    for (const char* command : {"scrub", "picture", "timeline"}) {
        for (const std::string& output : {trace_, dotted, (folder_ / "link").string(), (folder_ / "hard").string()}) {
            const Answer answer = ask({command, trace_.c_str(), "-o", output.c_str()});
            EXPECT_EQ(answer.status, 1) << command << output;
            EXPECT_NE(answer.errors.find("it is the trace itself"), std::string::npos) << answer.errors;
            EXPECT_EQ(read_all(trace_).value(), text_);
        }
    }
    // Another file that is there is replaced as ever.
    const std::string other = write("other.jsonl", text_);
    EXPECT_EQ(ask({"scrub", trace_.c_str(), "-o", other.c_str()}).status, 0);
}

TEST_F(RmTool, ScrubSaysWhatItDidOnceThatIsWritten) {
    const std::string scrubbed = folder_ / "scrubbed.jsonl";
    EXPECT_NE(ask({"scrub", trace_.c_str(), "-o", scrubbed.c_str()}).errors.find("texts replaced"), std::string::npos);
    for (const char* nowhere : {"/nonexistent/x", "/dev/full"}) {
        const Answer failed = ask({"scrub", trace_.c_str(), "-o", nowhere});
        EXPECT_EQ(failed.status, 1);
        EXPECT_EQ(failed.errors.find("replaced"), std::string::npos) << failed.errors;
    }
    std::ofstream full{"/dev/full"};
    std::ostringstream errors;
    const std::array words{"upcie_rm", "scrub", trace_.c_str()};
    EXPECT_EQ(tool::run(static_cast<int>(words.size()), words.data(), {full, errors}), 1);
    EXPECT_EQ(errors.str(), "");
}

TEST_F(RmTool, ContractAgainstATable) {
    const std::string table = write("table", "# a policy\nescape *\nclass *\nuvm 75\n");
    const Answer answer = ask({"contract", trace_.c_str(), "--against", table.c_str()});
    EXPECT_EQ(answer.status, 0) << answer.errors;
    EXPECT_NE(answer.out.find("would refuse 1 of 9"), std::string::npos) << answer.out;
    EXPECT_NE(answer.out.find("NV2080_CTRL_CMD_GPU_GET_ENGINES_V2"), std::string::npos);
    const Answer whole = ask({"contract", trace_.c_str()});
    EXPECT_NE(whole.out.find("not visible: what is written to rings"), std::string::npos) << whole.out;
    EXPECT_EQ(nlohmann::json::parse(ask({"contract", "--json", trace_.c_str()}).out)["points"].size(), 8U);
    // The smallest set is itself an allow-list that refuses nothing of it.
    const std::string smallest = whole.out.substr(whole.out.find('\n', whole.out.find("smallest set")) + 1);
    const std::string own = write("own", smallest);
    EXPECT_NE(ask({"contract", trace_.c_str(), "--against", own.c_str()}).out.find("would refuse 0"),
              std::string::npos);
    EXPECT_EQ(ask({"contract", trace_.c_str(), "--against", trace_.c_str()}).status, 1);
}

TEST_F(RmTool, DiffScrubPicture) {
    const std::string scrubbed = folder_ / "scrubbed.jsonl";
    EXPECT_EQ(ask({"scrub", trace_.c_str(), "-o", scrubbed.c_str()}).status, 0);
    const Answer same = ask({"diff", trace_.c_str(), scrubbed.c_str()});
    EXPECT_NE(same.out.find("no difference"), std::string::npos) << same.out;
    const Answer again = ask({"scrub", scrubbed.c_str()});
    EXPECT_EQ(again.out, read_all(scrubbed).value());
    EXPECT_EQ(again.out.find("alice"), std::string::npos);
    EXPECT_TRUE(ask({"picture", trace_.c_str()}).out.starts_with("<svg"));
    EXPECT_TRUE(ask({"picture", trace_.c_str(), "--format", "dot"}).out.starts_with("digraph"));
    EXPECT_TRUE(ask({"timeline", trace_.c_str()}).out.starts_with("<!doctype html>"));
    EXPECT_EQ(ask({"timeline", trace_.c_str(), "-o", "/nonexistent/x"}).status, 1);
}

TEST_F(RmTool, Explains) {
    const Answer request = ask({"explain", "0xc030462b"});
    EXPECT_EQ(request.status, 0);
    EXPECT_NE(request.out.find("RM_ALLOC"), std::string::npos) << request.out;
    EXPECT_NE(request.out.find("48 bytes"), std::string::npos);
    EXPECT_NE(ask({"explain", "0x20800170", "--driver", "580.159.04"}).out.find("at 580.159.04: 340 bytes"),
              std::string::npos);
    EXPECT_NE(ask({"explain", "0x2080a1ff"}).out.find("legacy"), std::string::npos);
    EXPECT_NE(ask({"explain", "0x20801fff"}).out.find("unknown"), std::string::npos);
    EXPECT_NE(ask({"explain", "0xdeadbeefcafe"}).out.find("unknown"), std::string::npos);
    EXPECT_NE(ask({"explain", "NV_ERR_NOT_SUPPORTED"}).out.find("0x56"), std::string::npos);
    EXPECT_EQ(ask({"explain", "NV_NO_SUCH_THING"}).status, 1);
    EXPECT_EQ(ask({"explain", "1", "--driver", "x"}).status, 2);
    EXPECT_NE(ask({"explain", "33"}).out.find("UVM command 33 MAP_EXTERNAL_ALLOCATION"), std::string::npos);
}

TEST_F(RmTool, WrongUsageIsTwo) {
    EXPECT_EQ(ask({}).status, 2);
    EXPECT_EQ(ask({"frobnicate"}).status, 2);
    EXPECT_EQ(ask({"decode"}).status, 2);
    EXPECT_EQ(ask({"picture", "x", "--format", "png"}).status, 2);
    EXPECT_EQ(ask({"--version"}).status, 0);
    EXPECT_EQ(ask({"--help"}).status, 0);
}

/// The counts of a trace, one a line: what is held against an independent recording.
std::string summary_golden(const Summary& summary) {
    std::string text;
    const auto add = [&](const char* kind, const std::map<std::uint32_t, Tally>& tallies) {
        for (const auto& [number, tally] : tallies) {
            text += fmt::format("{} 0x{:x} {}\n", kind, number, tally.calls);
        }
    };
    add("escape", summary.escapes);
    add("xfer", summary.xfer_wrapped);
    add("class", summary.classes);
    add("control", summary.controls);
    add("uvm", summary.uvm);
    return text;
}

// Real traces, where the tree has them: they are read whole, every ioctl is counted once, and scrubbing them again
// changes nothing. Their counts are in a .summary file beside each; UPCIE_WRITE_GOLDEN=1 writes it.
TEST(RmGolden, RealTraces) {
    std::size_t traces = 0;
    if (fs::is_directory(UPCIE_RM_DATA)) {
        for (const auto& entry : fs::directory_iterator{UPCIE_RM_DATA}) {
            const std::string path = entry.path();
            if (!path.ends_with(".jsonl.xz")) {
                continue;
            }
            ++traces;
            const auto loaded = load_trace(path);
            ASSERT_TRUE(loaded) << loaded.error().message();
            EXPECT_FALSE(loaded->damaged()) << path;
            const Summary summary = summarise(loaded->trace);
            std::uint64_t ioctls = 0;
            for (const auto* table : {&summary.escapes, &summary.uvm}) {
                for (const auto& [number, tally] : *table) {
                    ioctls += tally.calls;
                }
            }
            for (const auto& [request, tally] : summary.others) {
                ioctls += tally.calls;
            }
            EXPECT_EQ(ioctls, summary.ioctls) << path;
            EXPECT_EQ(summary.records.at("ioctl"), summary.ioctls) << path;
            const std::string golden = path.substr(0, path.size() - std::string_view{".jsonl.xz"}.size()) + ".summary";
            if (std::getenv("UPCIE_WRITE_GOLDEN") != nullptr) {
                std::ofstream{golden} << summary_golden(summary);
            }
            if (fs::exists(golden)) {
                EXPECT_EQ(summary_golden(summary), read_all(golden).value()) << golden;
            }
            // Another recorder, inside of the program in another run of it (tests/rm/programs/count_ioctls.c), counted
            // the same escapes and UVM commands.
            const fs::path counts = fs::path{golden}.replace_extension(".counts");
            if (fs::exists(counts)) {
                std::string seen;
                std::istringstream lines{summary_golden(summary)};
                for (std::string line; std::getline(lines, line);) {
                    seen += line.starts_with("escape") || line.starts_with("uvm") ? line + "\n" : "";
                }
                EXPECT_EQ(seen, read_all(counts).value()) << counts;
            }
            const Answer once = ask({"scrub", path.c_str()});
            const fs::path scrubbed = fs::temp_directory_path() / ("upcie_rm_golden." + std::to_string(::getpid()));
            std::ofstream{scrubbed, std::ios::binary} << once.out;
            EXPECT_EQ(ask({"scrub", scrubbed.c_str()}).out, once.out) << path;
            fs::remove(scrubbed);
        }
    }
    if (traces == 0) {
        GTEST_SKIP() << "no real traces in " << UPCIE_RM_DATA;
    }
}

} // namespace
} // namespace upcie::rm::test
