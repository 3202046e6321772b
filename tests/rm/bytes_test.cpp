// SPDX-License-Identifier: BSD-3-Clause
// Every call once, in order, with the right bytes before and after, whatever the way of stopping and of building.
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "fuse_nodes.hpp"
#include "target_calls.hpp"
#include "traced_run.hpp"

namespace upcie::rm::test {
namespace {

/// Who answers the ioctls.
enum class Driver { nobody, supervisor, fuse };

struct Way {
    const char* name;
    bool every_call;
    bool is_static;
    Driver driver;
};

class Bytes : public testing::TestWithParam<Way> {
  protected:
    void SetUp() override {
        if (const auto reason = why_not_traceable(); !reason.empty()) {
            GTEST_SKIP() << reason;
        }
        if (GetParam().is_static && std::string_view{UPCIE_TARGET_STATIC}.empty()) {
            GTEST_SKIP() << "no static C library here: the static target was not built";
        }
        if (GetParam().driver == Driver::fuse) {
            nodes_ = folder_.file("mounted");
            std::filesystem::create_directory(nodes_);
            fuse_.emplace(nodes_);
            if (!fuse_->problem().empty()) {
                GTEST_SKIP() << fuse_->problem();
            }
        } else {
            nodes_ = folder_.path();
        }
    }

    TracedRun run(const std::vector<std::string>& words) {
        Manner manner;
        manner.every_call = GetParam().every_call;
        manner.is_static = GetParam().is_static;
        manner.supervised = GetParam().driver == Driver::supervisor;
        return run_traced(folder_, words, manner, nodes_);
    }
    [[nodiscard]] bool answered() const { return GetParam().driver != Driver::nobody; }

    NodeFolder folder_;
    std::string nodes_;
    std::optional<FuseNodes> fuse_;
};

std::vector<std::byte> repeated(std::size_t count, unsigned char value) {
    return std::vector<std::byte>(count, std::byte{value});
}
std::vector<std::byte> answered_bytes(std::vector<std::byte> block) {
    target::answer_parameters(block.data(), block.size());
    return block;
}
std::vector<std::byte> numbered(std::uint32_t number) {
    std::vector<std::byte> block(32);
    for (std::size_t i = 0; i < block.size(); i += 4) {
        target::put(block.data(), i, number);
    }
    return block;
}

const Block* block_of(const IoctlRecord& record, std::string_view path) {
    for (const Block& one : record.blocks) {
        if (one.path == path) {
            return &one;
        }
    }
    return nullptr;
}

struct Expected {
    std::string node;
    std::uint32_t request;
    std::vector<std::pair<std::string, std::vector<std::byte>>> blocks; ///< nested ones, before
};

TEST_P(Bytes, EveryCallIsThereOnceWithWhatItPointsAt) {
    const TracedRun traced = run({"all-kinds"});
    ASSERT_EQ(traced.status, 0);
    EXPECT_TRUE(traced.trace.problems.empty());

    const auto control = [&](std::uint32_t number) {
        return Expected{"control", target::rm_control, {{"params", numbered(number)}}};
    };
    std::vector<Expected> expected;
    expected.push_back(control(100));
    expected.push_back({"control", target::rm_alloc, {{"params", repeated(target::device_parameter_bytes, 0x11)}}});
    expected.push_back({"control",
                        target::rm_control,
                        {{"params/driver_version", repeated(target::version_bytes, 'a')},
                         {"params/version", repeated(target::version_bytes, 'b')},
                         {"params/title", repeated(target::version_bytes, 'c')}}});
    expected.push_back({"control", target::rm_transfer, {{"xfer/params", numbered(200)}}});
    expected.push_back({"gpu", target::register_fd, {}});
    expected.push_back({"uvm", target::uvm_initialize, {}});
    expected.push_back({"uvm", target::uvm_register_gpu, {}});
    expected.push_back({"uvm", target::uvm_unknown, {}});
    expected.push_back(control(101));
    expected.push_back({"gpu", target::rm_control, {{"params", numbered(102)}}});

    ASSERT_EQ(traced.ioctls.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE("ioctl " + std::to_string(i));
        const IoctlRecord& got = *traced.ioctls[i];
        EXPECT_EQ(got.node.path, nodes_ + "/" + expected[i].node);
        EXPECT_EQ(got.request, expected[i].request);
        for (const auto& [path, bytes] : expected[i].blocks) {
            const Block* const block = block_of(got, path);
            ASSERT_NE(block, nullptr) << path;
            EXPECT_EQ(block->before.bytes, bytes) << path;
            EXPECT_EQ(block->after.bytes, answered() ? answered_bytes(bytes) : bytes) << path;
            EXPECT_EQ(block->size, bytes.size());
            EXPECT_FALSE(block->cut);
        }
        ASSERT_FALSE(got.blocks.empty());
        const Block& argument = got.blocks.front();
        EXPECT_EQ(argument.path, "argument");
        EXPECT_EQ(argument.address, got.argument);
        if (expected[i].request == target::uvm_unknown) {
            EXPECT_FALSE(argument.size_known);
            EXPECT_EQ(argument.before.bytes, repeated(4096, 0x44));
            EXPECT_EQ(got.outcome.error, ENOTTY);
            continue;
        }
        EXPECT_TRUE(argument.size_known);
        EXPECT_EQ(argument.size, target::argument_size(expected[i].request));
        auto after = argument.before.bytes;
        if (answered()) {
            EXPECT_EQ(got.outcome, (Outcome{Outcome::Kind::returned, 0, 0}));
            target::answer_argument(expected[i].request, after.data(), after.size());
        } else {
            EXPECT_EQ(got.outcome, (Outcome{Outcome::Kind::returned, -1, ENOTTY}));
        }
        EXPECT_EQ(argument.after.bytes, after);
    }
}

/// A line for each record that is no ioctl, of the kinds that the target makes on purpose.
std::vector<std::string> story(const TracedRun& traced, const std::string& nodes) {
    const auto plain = [&](std::string path) {
        return path.starts_with(nodes + "/") ? path.substr(nodes.size() + 1) : path;
    };
    std::vector<std::string> lines;
    for (const Record& record : traced.trace.records) {
        if (const auto* open = std::get_if<OpenRecord>(&record.body)) {
            if (open->is_node || open->path.find("devices") != std::string::npos || open->outcome.error != 0) {
                lines.push_back("open " + plain(open->path) + (open->outcome.error != 0 ? " failed" : ""));
            }
        } else if (const auto* close = std::get_if<CloseRecord>(&record.body)) {
            if (close->is_node) {
                lines.push_back("close " + plain(close->node.path));
            }
        } else if (const auto* duplicate = std::get_if<DuplicateRecord>(&record.body)) {
            lines.push_back("duplicate " + plain(duplicate->node.path));
        } else if (const auto* map = std::get_if<MapRecord>(&record.body)) {
            lines.push_back("map " + plain(map->node.path) + " " + std::to_string(map->length));
        } else if (const auto* unmap = std::get_if<UnmapRecord>(&record.body)) {
            lines.push_back("unmap " + std::to_string(unmap->length));
        } else if (const auto* poll = std::get_if<PollRecord>(&record.body)) {
            lines.push_back("poll " + plain(poll->nodes.front().node.path));
        } else if (const auto* stat = std::get_if<StatRecord>(&record.body); stat && stat->path.starts_with(nodes)) {
            lines.push_back("stat " + plain(stat->path));
        } else if (const auto* read = std::get_if<ReadRecord>(&record.body); read && read->path == "/proc/devices") {
            lines.push_back("read " + std::to_string(read->content.after.bytes.size()));
        }
    }
    return lines;
}

TEST_P(Bytes, WhatIsOpenedMappedDuplicatedAndReadIsThereInOrder) {
    const TracedRun traced = run({"all-kinds"});
    ASSERT_EQ(traced.status, 0);
    auto lines = story(traced, nodes_);
    // What the C library looks at before main() differs from one to the next.
    std::erase_if(lines, [](const std::string& line) {
        return line.ends_with(" failed") && line.find("no-such-file") == std::string::npos;
    });
    EXPECT_EQ(lines, (std::vector<std::string>{"open control", "open gpu", "open uvm", "duplicate control",
                                               "close control", "duplicate gpu", "map gpu 8192", "unmap 4096",
                                               "unmap 4096", "poll control", "stat control", "open /proc/devices",
                                               "read 64", "open /proc/driver/nvidia/no-such-file failed", "close gpu",
                                               "close uvm", "close gpu", "close control"}));
}

TEST_P(Bytes, NumbersAreOneOrderAndTimesGoForward) {
    const TracedRun traced = run({"all-kinds"});
    std::uint64_t before = 0;
    for (const Record& record : traced.trace.records) {
        EXPECT_EQ(record.stamp.sequence, before + 1);
        EXPECT_LE(record.stamp.entered, record.stamp.sequence);
        EXPECT_LE(record.stamp.time_in, record.stamp.time_out);
        before = record.stamp.sequence;
    }
    EXPECT_TRUE(std::holds_alternative<SummaryRecord>(traced.trace.records.back().body));
}

INSTANTIATE_TEST_SUITE_P(Ways, Bytes,
                         testing::Values(Way{"filter", false, false, Driver::nobody},
                                         Way{"filter_static", false, true, Driver::nobody},
                                         Way{"filter_answered", false, false, Driver::fuse},
                                         Way{"filter_static_answered", false, true, Driver::fuse},
                                         Way{"every_call", true, false, Driver::nobody},
                                         Way{"every_call_answered", true, false, Driver::supervisor},
                                         Way{"every_call_static_answered", true, true, Driver::supervisor}),
                         [](const auto& way) { return way.param.name; });

} // namespace
} // namespace upcie::rm::test
