// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "command.hpp"
#include "stamps.hpp"

namespace upcie::cli {
namespace {

using test::upcie;
using ::upcie::test::TempDirectory;

constexpr const char* small_device = "sim:size=1M";

std::string with_faults(const std::string& script) {
    return std::string{small_device} + ",faults=" + script;
}

/// Verifies 64 blocks of a device in commands of 4 KiB with seed 7, unless `more` says otherwise.
test::Answer verify(const std::string& device, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"verify", device, "--json"};
    for (const auto& [option, value] :
         {std::pair{"--blocks", "64"}, std::pair{"--size", "4K"}, std::pair{"--seed", "7"}}) {
        if (std::find(more.begin(), more.end(), option) == more.end()) {
            arguments.insert(arguments.end(), {option, value});
        }
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return upcie(arguments);
}

/// The entry about one block; fails the test when there is none.
Json bad_block(const test::Answer& answer, std::uint64_t lba) {
    Json document = answer.json();
    for (const auto& entry : document["result"]["bad"]) {
        if (entry["lba"] == lba) {
            return entry;
        }
    }
    ADD_FAILURE() << "no finding for LBA " << lba << " in " << answer.out;
    return Json{{"verdict", ""}, {"text", ""}, {"again", ""}};
}

TEST(Verify, AGoodDeviceIsGood) {
    const auto answer = verify(small_device);
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    Json document = answer.json();
    ASSERT_FALSE(document.is_discarded());
    EXPECT_EQ(document["schema"], "upcie.verify/1");
    EXPECT_EQ(document["device"], small_device);
    EXPECT_FALSE(document["path"]["reason"].get<std::string>().empty());
    EXPECT_EQ(document["result"]["counts"]["good"], 64);
    EXPECT_EQ(document["result"]["seed"], 7);
    EXPECT_EQ(document["result"]["verdict"],
              "GOOD: 64 blocks read, all as written; seed 0x7, namespace 1, LBA 0 to 63");
}

TEST(Verify, RandomOrderSeveralPassesBigBlocksAndInterruptsAreGoodToo) {
    EXPECT_EQ(verify(small_device, {"--random", "--passes", "3"}).code, 0);
    EXPECT_EQ(verify("sim:size=4M,lba=4096", {"--random", "--depth", "4"}).code, 0);
    EXPECT_EQ(verify(small_device, {"--interrupt"}).code, 0);
    EXPECT_EQ(verify("sim:size=1M,scatter=1,zero=on", {"--size", "64K"}).code, 0);
    EXPECT_EQ(verify("sim:size=1M,thread=off").code, 0);
}

TEST(Verify, AMisplacedReadIsNamedAndTheSecondReadTellsTheTransferFromTheMedium) {
    const auto answer = verify(with_faults("misplaced:1@op=read&lba=16..23&once"));
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    Json finding = bad_block(answer, 17);
    EXPECT_EQ(finding["verdict"], "misplaced");
    EXPECT_EQ(finding["text"], "LBA 17 holds the block written for LBA 18");
    EXPECT_EQ(finding["found"]["lba"], 18);
    EXPECT_EQ(finding["again"], "a second read is good: the transfer was at fault, not the medium");
}

TEST(Verify, AMisplacedWriteIsOnTheMedium) {
    const auto answer =
        verify(with_faults("misplaced:1@op=write&lba=63&once"), {"--size", "512", "--depth", "1", "--blocks", "65"});
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    EXPECT_EQ(bad_block(answer, 63)["verdict"], "zero");
    EXPECT_EQ(bad_block(answer, 63)["again"], "a second read shows the same");
}

TEST(Verify, ALostWriteOfALaterPassIsStale) {
    const auto answer = verify(with_faults("dropped@op=write&lba=8&nth=2"), {"--size", "512", "--passes", "2"});
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    EXPECT_EQ(bad_block(answer, 8)["text"], "LBA 8 is stale: it holds pass 1 of this run where pass 2 was expected");
}

TEST(Verify, ALostWriteOfTheFirstPassIsZero) {
    const auto answer = verify(with_faults("dropped@op=write&lba=8"), {"--size", "512"});
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    EXPECT_EQ(bad_block(answer, 8)["verdict"], "zero");
}

TEST(Verify, AReadThatMovedNothingIsToldFromZeroes) {
    const auto answer = verify(with_faults("dropped@op=read&lba=8..15&once"));
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    EXPECT_EQ(bad_block(answer, 9)["verdict"], "untouched");
    EXPECT_EQ(answer.json()["result"]["counts"]["untouched"], 8);
}

TEST(Verify, ACorruptByteIsFoundAtItsPlace) {
    const auto answer = verify(with_faults("corrupt:612@op=read&lba=8..15&once"));
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    Json finding = bad_block(answer, 9);
    EXPECT_EQ(finding["verdict"], "corrupt");
    EXPECT_EQ(finding["first_bad_byte"], 100);
    EXPECT_EQ(finding["bad_bytes"], 1);
}

TEST(Verify, AnErrorOfTheDriveIsAFailureAndNotBadData) {
    const auto answer = verify(with_faults("error:2:0x81@op=read&lba=8..15"));
    EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
    Json result = answer.json()["result"];
    EXPECT_EQ(result["failed_blocks"], 8);
    EXPECT_EQ(result["counts"]["good"], 56);
    EXPECT_EQ(result["failures"][0]["lba"], 8);
    EXPECT_EQ(result["failures"][0]["error"]["domain"], "nvme");
    const auto text = result["failures"][0]["error"]["message"].get<std::string>();
    EXPECT_NE(text.find("read blocks 8 to 15"), std::string::npos) << text;
}

TEST(Verify, ALostCompletionIsATimeout) {
    const auto answer = verify(with_faults("lost@op=read&nth=3"), {"--timeout", "0.3"});
    EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["result"]["failures"][0]["error"]["name"], "ETIMEDOUT");
}

TEST(Verify, ADeadControllerEndsTheRunWithItsCause) {
    const auto answer = verify(with_faults("cfs@op=read&nth=3"), {"--timeout", "20"});
    EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
    EXPECT_TRUE(answer.says("CFS")) << answer.out;
}

TEST(Verify, AControllerThatIsGoneEndsTheRunWithItsCause) {
    const auto answer = verify(with_faults("gone@op=write&nth=3"), {"--timeout", "20"});
    EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["error"]["name"], "ENODEV") << answer.out;
}

TEST(Verify, AControllerThatNeverGetsReadyIsAFailureWithItsCause) {
    const auto answer = verify("sim:size=1M,to=1,faults=never-ready");
    EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["error"]["name"], "ETIMEDOUT") << answer.out;
}

/// A device whose blocks stay: in a file.
class VerifyLater : public ::testing::Test {
  protected:
    [[nodiscard]] std::string file() const { return (directory_.path() / "disk").string(); }
    [[nodiscard]] std::string device() const { return "sim:size=1M,file=" + file(); }
    test::Answer check(std::vector<std::string> more = {}) {
        std::vector<std::string> arguments{"verify", device(), "--read-only", "--blocks", "64", "--json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return upcie(arguments);
    }
    void put(std::uint64_t lba, std::vector<char> bytes) {
        std::fstream disk{file(), std::ios::in | std::ios::out | std::ios::binary};
        disk.seekp(static_cast<std::streamoff>(lba * 512));
        disk.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    std::vector<char> get(std::uint64_t lba) {
        std::vector<char> bytes(512);
        std::ifstream disk{file(), std::ios::binary};
        disk.seekg(static_cast<std::streamoff>(lba * 512));
        disk.read(bytes.data(), 512);
        return bytes;
    }

    TempDirectory directory_;
};

TEST_F(VerifyLater, AnEarlierRunIsCheckedWithTheSeedFoundOnTheDevice) {
    ASSERT_EQ(verify(device(), {"--passes", "2"}).code, 0);
    const auto answer = check();
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["result"]["seed"], 7);
    EXPECT_EQ(answer.json()["result"]["pass"], 2);
    EXPECT_EQ(answer.json()["result"]["seed_source"], "taken from LBA 0");
}

TEST_F(VerifyLater, WhatIsInTheFileIsTheStampOfTheDocument) {
    ASSERT_EQ(verify(device()).code, 0);
    const auto bytes = get(17);
    const auto stamp = read_stamp(std::as_bytes(std::span{bytes}));
    ASSERT_TRUE(stamp.has_value());
    EXPECT_EQ(*stamp, (Stamp{7, 1, 512, 17, 1}));
}

TEST_F(VerifyLater, AnotherSeedIsAnotherRun) {
    ASSERT_EQ(verify(device()).code, 0);
    const auto answer = check({"--seed", "8"});
    EXPECT_EQ(answer.code, 3);
    EXPECT_EQ(answer.json()["result"]["counts"]["other-run"], 64);
}

TEST_F(VerifyLater, AFlippedBitASwappedBlockAndForeignDataAreEachNamed) {
    ASSERT_EQ(verify(device()).code, 0);
    auto flipped = get(5);
    flipped[200] = static_cast<char>(flipped[200] ^ 1);
    put(5, flipped);
    put(6, get(40));
    put(7, std::vector<char>(512, 'x'));
    const auto answer = check();
    EXPECT_EQ(answer.code, 3);
    EXPECT_EQ(bad_block(answer, 5)["verdict"], "corrupt");
    EXPECT_EQ(bad_block(answer, 5)["first_bad_byte"], 200);
    EXPECT_EQ(bad_block(answer, 6)["text"], "LBA 6 holds the block written for LBA 40");
    EXPECT_EQ(bad_block(answer, 7)["verdict"], "foreign");
    EXPECT_EQ(answer.json()["result"]["counts"]["good"], 61);
}

TEST_F(VerifyLater, AnUnwrittenDeviceIsBadAndSaysThatThereIsNoStamp) {
    const auto answer = check();
    EXPECT_EQ(answer.code, 3) << answer.out << answer.err;
    EXPECT_EQ(answer.json()["result"]["counts"]["zero"], 64);
    EXPECT_TRUE(answer.says("carries no stamp")) << answer.out;
}

TEST_F(VerifyLater, FindingsAreLimitedAndCounted) {
    const auto answer = check({"--findings", "3"});
    EXPECT_EQ(answer.json()["result"]["bad"].size(), 3U);
    EXPECT_EQ(answer.json()["result"]["counts"]["zero"], 64);
}

TEST(VerifyText, NamesTheBlockAndTheVerdict) {
    const auto answer =
        upcie({"verify", with_faults("misplaced:1@op=read&lba=16..23&once"), "--blocks", "64", "--size", "4K"});
    EXPECT_EQ(answer.code, 3);
    EXPECT_TRUE(answer.says("BAD  LBA 17 holds the block written for LBA 18; a second read is good")) << answer.out;
    EXPECT_TRUE(answer.says("BAD DATA: 8 of 64 blocks read (8 misplaced)")) << answer.out;
}

TEST(Verify, MemoryThatIsNoBarIsWrongUsageAndADeviceThatIsNotThereIsNamed) {
    for (const char* text :
         {"bar", "bar:", "bar:0000:02:00.0", "bar:0000:02:00.0:6", "host:0000:02:00.0:2", "bar:0000:02:00.0:x"}) {
        const auto answer = test::upcie({"verify", "sim:size=1M", "--into", text});
        EXPECT_EQ(answer.code, 2) << text;
        EXPECT_TRUE(answer.says("bar:BDF:N")) << answer.err;
    }
    const auto none = test::upcie({"verify", "sim:size=1M", "--into", "bar:ffff:02:00.0:2"});
    EXPECT_EQ(none.code, 4);
    EXPECT_TRUE(none.says("ffff:02:00.0")) << none.err;
    const auto simulated = test::upcie({"verify", "sim:size=1M", "--into", "bar:sim::0"});
    EXPECT_TRUE(simulated.says("only vfio exports BARs")) << simulated.err;
}

} // namespace
} // namespace upcie::cli
