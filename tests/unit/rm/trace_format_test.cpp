// SPDX-License-Identifier: BSD-3-Clause
// A trace as a file: what is written is read again the same, and nothing in a file is trusted.
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "printable.hpp"
#include "trace_reader.hpp"
#include "trace_writer.hpp"

namespace upcie::rm {
namespace {

using testing::HasSubstr;
using testing::Not;

const NodeName control{Node::control, "/dev/nvidiactl"};
const NodeName uvm{Node::uvm, "/dev/nvidia-uvm"};

std::vector<std::byte> bytes(std::initializer_list<unsigned> values) {
    std::vector<std::byte> all;
    for (const unsigned one : values) {
        all.push_back(static_cast<std::byte>(one));
    }
    return all;
}

TraceHeader header_of(std::uint64_t run) {
    TraceHeader header;
    header.run = run;
    header.tool = "upcie_rm_trace 1";
    header.mode = "filter";
    header.kernel = "Linux 6.1 x86_64";
    header.machine = "x86_64";
    header.driver = "580.159.04";
    header.gpus = {"0000:01:00.0 NVIDIA H200"};
    header.command = {"./a program", "with \"quotes\"\n"};
    header.started = "2026-01-01T00:00:00Z";
    header.started_monotonic = 12;
    header.memory = true;
    return header;
}

/// One of each type, no field of which has its default value.
std::vector<decltype(Record::body)> one_of_each() {
    const Outcome failed{Outcome::Kind::returned, -1, 22};
    const Outcome returned{Outcome::Kind::returned, 7, 0};
    const Outcome mapped{Outcome::Kind::returned, 0x7f0000001000, 0};
    const Outcome interrupted{Outcome::Kind::interrupted, -1, 4};
    const Block changed{"argument", 0x1000, 0, 4, true, false, {bytes({1, 2, 3, 4}), 0}, {bytes({1, 2, 3, 5}), 0}};
    const Block same{"params", 0x2000, 16, 2, true, false, {bytes({0, 0xff}), 0}, {bytes({0, 0xff}), 0}};
    const Block unreadable{"xfer/params", 0x10, 8, 32, true, false, {{}, 14}, {{}, 14}};
    const Block partly{"argument", ~std::uint64_t{0}, 0, 4096, false, true, {bytes({9}), 14}, {bytes({9}), 0}};
    ReadRecord read{"pread64", 5, "/proc/devices", 100, 3, {}, returned};
    read.content = {"content", 0x3000, 0, 7, true, true, {}, {bytes({65, 10}), 0}};
    return {
        IoctlRecord{control, 3, 0xc020462a, 0x1000, {changed, same, unreadable}, 2, returned},
        IoctlRecord{uvm, 4, 37, 0x1000, {partly}, 0, failed},
        OpenRecord{"openat", "/dev/nvidiactl", "/dev/nvidiactl", 0x80002, 0600, true, control, 195, 255, returned},
        OpenRecord{"open", "no\xffutf8", "", 2, 0, false, {}, 0, 0, failed},
        StatRecord{"newfstatat", "/dev/nvidiactl", 3, 0x1000, 020666, 195, 255, "target", returned},
        read,
        CloseRecord{3, true, control, {}},
        CloseRecord{4, false, {}, failed},
        DuplicateRecord{control, 3, true, returned},
        PassRecord{true, 8, 9, uvm, returned},
        MapRecord{control, 3, 0x1000, 0x2000, 0x3000, 3, 0x11, mapped},
        MapRecord{control, 3, 0x1000, 0x2000, 0x3000, 3, 0x11, failed},
        UnmapRecord{true, 0x1000, 0x2000, 0x3000, 0x4000, 3, mapped},
        PollRecord{"ppoll", 5, {{3, control, 1, 0x10}, {4, uvm, 5, 1}}, 0, 1, 6, interrupted},
        BirthRecord{"fork", 41, {{3, control}, {4, uvm}}},
        ExecRecord{"/bin/true", {"true", ""}, 42, {{3, control}}},
        ExitRecord{true, 9, true},
        LibraryRecord{"/usr/lib/libcuda.so.580.159.04", "580.159.04"},
        MemoryRecord{control, 0x1000, 0x2000, 17, {bytes({1}), 14}},
        NoteRecord{"own-filter", "the program\tinstalls one"},
        SummaryRecord{{{"ioctl", 2}, {"open", 3}}, 4, 5, 6, 7},
    };
}

std::string written(const std::vector<decltype(Record::body)>& bodies, std::uint64_t run = 77) {
    std::string text;
    append_line(text, header_of(run));
    std::uint64_t sequence = 0;
    for (const auto& body : bodies) {
        ++sequence;
        append_line(text, Record{{run, sequence, sequence, 100, 101, 10 * sequence, 10 * sequence + 1}, body});
    }
    return text;
}

TEST(TraceFormat, WhatIsWrittenIsReadTheSame) {
    auto bodies = one_of_each();
    const Trace trace = parse_trace(std::string_view{written(bodies)});
    EXPECT_TRUE(trace.problems.empty()) << trace.problems.front().text;
    ASSERT_EQ(trace.headers.size(), 1U);
    EXPECT_EQ(trace.headers[0], header_of(77));
    ASSERT_EQ(trace.records.size(), bodies.size());
    std::get<OpenRecord>(bodies[3]).path = "no\xef\xbf\xbdutf8"; // JSON has no other way
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        EXPECT_EQ(trace.records[i].body, bodies[i]) << type_name(trace.records[i]) << " " << i;
        EXPECT_EQ(trace.records[i].stamp.sequence, i + 1);
        EXPECT_EQ(trace.records[i].stamp.pid, 100);
        EXPECT_EQ(trace.records[i].stamp.tid, 101);
    }
}

TEST(TraceFormat, ACallThatNeverReturnedHasNothingAfter) {
    Block block{"argument", 0x1000, 0, 1, true, false, {bytes({1}), 0}, {}};
    const IoctlRecord record{control, 3, 0xc020462a, 0x1000, {block}, 0, {Outcome::Kind::unfinished, 0, 0}};
    const std::string text = written({record});
    EXPECT_THAT(text, HasSubstr("\"after\":null"));
    const Trace trace = parse_trace(std::string_view{text});
    ASSERT_EQ(trace.records.size(), 1U);
    EXPECT_EQ(std::get<IoctlRecord>(trace.records[0].body), record);
}

TEST(TraceFormat, EveryLineIsWholeByItself) {
    const std::string text = written(one_of_each());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::ptrdiff_t(one_of_each().size() + 1));
    EXPECT_EQ(text.find('\t'), std::string::npos);
}

TEST(TraceFormat, ALineThatIsCutOffIsSaidAndTheOthersStay) {
    std::string text = written(one_of_each());
    text.resize(text.size() - 20);
    const Trace trace = parse_trace(std::string_view{text});
    EXPECT_EQ(trace.records.size(), one_of_each().size() - 1);
    ASSERT_EQ(trace.problems.size(), 2U);
    EXPECT_THAT(trace.problems[1].text, HasSubstr("killed"));
}

TEST(TraceFormat, AMissingOrDoubledNumberIsSaid) {
    const std::string text = written({NoteRecord{"a", "1"}, NoteRecord{"b", "2"}, NoteRecord{"c", "3"}});
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = text.find('\n', at) + 1;
        lines.push_back(text.substr(at, end - at));
        at = end;
    }
    const Trace gap = parse_trace(std::string_view{lines[0] + lines[1] + lines[3]});
    ASSERT_EQ(gap.problems.size(), 1U);
    EXPECT_THAT(gap.problems[0].text, HasSubstr("missing"));
    const Trace twice = parse_trace(std::string_view{lines[0] + lines[1] + lines[1]});
    ASSERT_EQ(twice.problems.size(), 1U);
    EXPECT_THAT(twice.problems[0].text, HasSubstr("there already"));
    const Trace turned = parse_trace(std::string_view{lines[0] + lines[2] + lines[1] + lines[3]});
    EXPECT_EQ(turned.records.size(), 3U);
    ASSERT_FALSE(turned.problems.empty());
    EXPECT_THAT(turned.problems[1].text, HasSubstr("out of order"));
    const Trace orphan = parse_trace(std::string_view{lines[1]});
    ASSERT_EQ(orphan.problems.size(), 1U);
    EXPECT_THAT(orphan.problems[0].text, HasSubstr("no header"));
}

TEST(TraceFormat, ARunThatIsThereTwiceCountsOnce) {
    const std::string text = written({NoteRecord{"a", "1"}, NoteRecord{"b", "2"}, NoteRecord{"c", "3"}});
    std::string other;
    append_line(other, header_of(78));
    append_line(other, Record{{78, 1, 1, 1, 1, 1, 1}, NoteRecord{"d", "4"}});
    const Trace once = parse_trace(std::string_view{text + other});
    EXPECT_TRUE(once.problems.empty());
    const Trace twice = parse_trace(std::string_view{text + other + text + other + text});
    EXPECT_EQ(twice.headers, once.headers);
    EXPECT_EQ(twice.records, once.records);
    ASSERT_EQ(twice.problems.size(), 2U);
    EXPECT_EQ(twice.problems[0],
              (TraceProblem{7, "left out: 6 records of run 77 that are there already, the first number 1; so is its "
                               "header"}));
    EXPECT_EQ(twice.problems[1],
              (TraceProblem{11, "left out: 1 records of run 78 that are there already, the first number 1; so is its "
                                "header"}));
    // Records that come out of order are no repetition of each other, and a later copy of each is one.
    const std::string header = text.substr(0, text.find('\n') + 1);
    const std::string body = text.substr(header.size());
    const std::string first = body.substr(0, body.find('\n') + 1);
    const Trace turned = parse_trace(std::string_view{header + body.substr(first.size()) + first + body});
    EXPECT_EQ(turned.records.size(), 3U);
    // A header alone.
    const Trace headed = parse_trace(std::string_view{text + header});
    EXPECT_EQ(headed.headers.size(), 1U);
    ASSERT_EQ(headed.problems.size(), 1U);
    EXPECT_EQ(headed.problems[0].line, 5U);
    EXPECT_THAT(headed.problems[0].text, HasSubstr("the header of run 77"));
}

TEST(TraceFormat, ADriverThatIsNoVersionIsSaidWithWhatIsUsedInstead) {
    const auto problems_with = [](const std::string& driver, const std::string& more) {
        TraceHeader header = header_of(1);
        header.driver = driver;
        std::string text;
        append_line(text, header);
        return parse_trace(std::string_view{text + more}).problems;
    };
    for (const char* silent : {"", "580.159.04", "580"}) {
        EXPECT_TRUE(problems_with(silent, "").empty()) << silent;
    }
    std::string other;
    TraceHeader good = header_of(2);
    good.driver = "550.54.14";
    append_line(other, good);
    for (const char* bad : {"abc<", "580.159.04.1", "580.", "0", " 580.159.04"}) {
        const auto alone = problems_with(bad, "");
        ASSERT_EQ(alone.size(), 1U) << bad;
        EXPECT_EQ(alone[0].line, 1U);
        EXPECT_THAT(alone[0].text, HasSubstr("\"" + std::string{bad} + "\""));
        EXPECT_THAT(alone[0].text, HasSubstr("unknown"));
        const auto told = problems_with(bad, other);
        ASSERT_EQ(told.size(), 1U) << bad;
        EXPECT_THAT(told[0].text, HasSubstr("550.54.14 is used"));
    }
}

TEST(TraceFormat, PrintableTextSpellsOutWhatATerminalObeys) {
    EXPECT_EQ(printable("plain, \\x1b stays, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
              "plain, \\x1b stays, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    EXPECT_EQ(printable("\x1b[2J\n\t\r\x7f"), "\\x1b[2J\\n\\t\\x0d\\x7f");
    EXPECT_EQ(printable(std::string_view{"\0a", 2}), "\\x00a");
    EXPECT_EQ(printable("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\\u{80}\\u{9b}\\u{9f}\xc2\xa0");
    EXPECT_EQ(printable("\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9"), "\\u{202a}\\u{202e}\\u{2066}\\u{2069}");
    EXPECT_EQ(printable("\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"),
              "\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"); // their neighbours
    EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80\xe2\x80"), "\\xff\\xc3(\\xed\\xa0\\x80\\xe2\\x80");
}

TEST(TraceFormat, EveryTextOfATraceIsMadePrintable) {
    // Each text that the writer writes gets an escape: an archive that passes one over leaves it in what is written.
    std::string text = written(one_of_each());
    text +=
        "{\"type\":\"tele\\u001bpathy\",\"run\":77,\"sequence\":" + std::to_string(one_of_each().size() + 1) + "}\n";
    const std::set<std::string> kept{"type", "format", "kind", "ended", "request", "argument", "address"};
    std::string tainted;
    std::istringstream lines{text};
    std::size_t taints = 0;
    for (std::string line; std::getline(lines, line);) {
        auto object = nlohmann::ordered_json::parse(line);
        const auto taint = [&](const auto& self, nlohmann::ordered_json& value, const std::string& name) -> void {
            if (value.is_string() && !kept.contains(name) && !value.get<std::string>().starts_with("0x") &&
                name != "before" && name != "after" && name != "bytes") {
                value = value.get<std::string>() + "\x1b[2J";
                ++taints;
            }
            if (value.is_structured()) {
                for (const auto& [key, member] : value.items()) {
                    self(self, member, value.is_array() ? name : key);
                }
            }
        };
        taint(taint, object, "");
        tainted += object.dump() + "\n";
    }
    EXPECT_GT(taints, 40U);
    Trace trace = parse_trace(std::string_view{tainted});
    ASSERT_EQ(trace.problems.size(), 1U); // of the driver
    ASSERT_EQ(trace.records.size(), one_of_each().size() + 1);
    for (Record& record : trace.records) {
        if (auto* summary = std::get_if<SummaryRecord>(&record.body)) {
            summary->stops.push_back({"kind\x1b", 1}); // a name, not a value, of its object
        }
    }
    make_printable(trace);
    EXPECT_EQ(type_name(trace.records.back()), "tele\\x1bpathy");
    std::string shown;
    for (const TraceHeader& header : trace.headers) {
        append_line(shown, header);
    }
    trace.records.pop_back(); // an unknown one is written as it was read
    for (const Record& record : trace.records) {
        append_line(shown, record);
    }
    EXPECT_THAT(shown, Not(HasSubstr("\\u001b")));
    EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
    EXPECT_THAT(shown, HasSubstr("\\\\x1b[2J"));
    EXPECT_THAT(trace.problems[0].text, Not(HasSubstr("\x1b")));
}

TEST(TraceFormat, ATypeOfALaterVersionIsKept) {
    std::string text = written({});
    text += "{\"type\":\"telepathy\",\"run\":77,\"sequence\":1,\"strength\":3}\n";
    const Trace trace = parse_trace(std::string_view{text});
    EXPECT_TRUE(trace.problems.empty());
    ASSERT_EQ(trace.records.size(), 1U);
    EXPECT_EQ(type_name(trace.records[0]), "telepathy");
    std::string again;
    append_line(again, header_of(77));
    append_line(again, trace.records[0]);
    EXPECT_EQ(again, text);
}

TEST(TraceFormat, WhatMakesNoSenseIsLeftOutWithTheReason) {
    const auto problem = [](const std::string& line) {
        std::string text;
        append_line(text, header_of(1));
        const Trace trace = parse_trace(std::string_view{text + line + "\n"});
        EXPECT_TRUE(trace.records.empty()) << line;
        return trace.problems.empty() ? std::string{} : trace.problems.front().text;
    };
    const std::string start = "{\"type\":\"ioctl\",\"run\":1,\"sequence\":1,";
    EXPECT_THAT(problem("nonsense"), HasSubstr("no JSON"));
    EXPECT_THAT(problem("[1]"), HasSubstr("no JSON object"));
    EXPECT_THAT(problem("{}"), HasSubstr("\"type\""));
    EXPECT_THAT(problem(start + "\"fd\":3000000000}"), HasSubstr("\"fd\""));
    EXPECT_THAT(problem(start + "\"fd\":1.5}"), HasSubstr("\"fd\""));
    EXPECT_THAT(problem(start + "\"request\":5}"), HasSubstr("\"request\""));
    EXPECT_THAT(problem(start + "\"request\":\"0xg\"}"), HasSubstr("\"request\""));
    EXPECT_THAT(problem(start + "\"request\":\"0x11111111111111111\"}"), HasSubstr("\"request\""));
    EXPECT_THAT(problem(start + "\"node\":\"/dev/nvidiactl\",\"kind\":\"toaster\"}"), HasSubstr("\"kind\""));
    EXPECT_THAT(problem(start + "\"ended\":\"somehow\"}"), HasSubstr("\"ended\""));
    EXPECT_THAT(problem(start + "\"blocks\":3}"), HasSubstr("\"blocks\""));
    EXPECT_THAT(problem(start + "\"blocks\":[3]}"), HasSubstr("\"blocks\""));
    EXPECT_THAT(problem(start + "\"blocks\":[{\"before\":\"abc\"}]}"), HasSubstr("\"before\""));
    EXPECT_THAT(problem(start + "\"blocks\":[{\"before\":\"zz\"}]}"), HasSubstr("\"before\""));
    EXPECT_THAT(problem("{\"type\":\"header\",\"format\":\"other\",\"version\":1}"), HasSubstr("\"format\""));
    EXPECT_THAT(problem("{\"type\":\"header\",\"format\":\"upcie-rm-trace\",\"version\":99}"), HasSubstr("99"));
    EXPECT_THAT(problem("{\"type\":\"header\",\"format\":\"upcie-rm-trace\"}"), HasSubstr("version"));
}

TEST(TraceFormat, SeveralRunsAreMergedByTimeAndNeverAgainstTheirOwnOrder) {
    std::string text;
    append_line(text, header_of(1));
    append_line(text, header_of(2));
    const auto note = [&](std::uint64_t run, std::uint64_t sequence, std::uint64_t time) {
        append_line(text, Record{{run, sequence, sequence, 1, 1, time, time}, NoteRecord{"a", "b"}});
    };
    note(1, 1, 10);
    note(1, 2, 40);
    note(1, 3, 30); // returned earlier, written later: an interrupted call
    note(2, 1, 5);
    note(2, 2, 35);
    note(2, 3, 50);
    const Trace trace = parse_trace(std::string_view{text});
    EXPECT_TRUE(trace.problems.empty());
    std::string order;
    for (const Record& record : trace.records) {
        order += std::to_string(record.stamp.run) + "." + std::to_string(record.stamp.sequence) + " ";
    }
    EXPECT_EQ(order, "2.1 1.1 2.2 1.2 1.3 2.3 ");
}

TEST(TraceFormat, AFileThatIsNoTraceIsRefusedWithTheReason) {
    const auto missing = read_trace("/no/such/trace");
    ASSERT_FALSE(missing);
    EXPECT_TRUE(missing.error().is(ENOENT));
    const auto empty = read_trace("/dev/null");
    ASSERT_FALSE(empty);
    EXPECT_THAT(empty.error().message(), HasSubstr("empty"));
    const auto other = read_trace("/proc/self/status");
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message(), HasSubstr("no header"));
}

} // namespace
} // namespace upcie::rm
