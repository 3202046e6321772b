// SPDX-License-Identifier: BSD-3-Clause
// What a careless or hostile program does, and memory that is recorded.
#include <cerrno>

#include <gtest/gtest.h>

#include "target_calls.hpp"
#include "traced_run.hpp"

namespace upcie::rm::test {
namespace {

class Trouble : public testing::Test {
  protected:
    void SetUp() override {
        if (const auto reason = why_not_traceable(); !reason.empty()) {
            GTEST_SKIP() << reason;
        }
    }
    NodeFolder folder_;
};

TEST_F(Trouble, WhatCannotBeReadIsSaidAndNeverZeros) {
    const TracedRun run = run_traced(folder_, {"hostile"});
    ASSERT_EQ(run.status, 0);
    // The two on descriptors that are closed are no calls on a node.
    ASSERT_EQ(run.ioctls.size(), 10U);
    const auto& ioctls = run.ioctls;
    EXPECT_TRUE(ioctls[0]->blocks.empty()); // a null pointer
    for (const std::size_t i : {1U, 2U}) {
        ASSERT_EQ(ioctls[i]->blocks.size(), 1U);
        EXPECT_TRUE(ioctls[i]->blocks[0].before.bytes.empty());
        EXPECT_EQ(ioctls[i]->blocks[0].before.error, EFAULT);
    }
    ASSERT_EQ(ioctls[3]->blocks.size(), 2U); // the argument is there, its parameters are not
    EXPECT_EQ(ioctls[3]->blocks[0].before.bytes.size(), 32U);
    EXPECT_TRUE(ioctls[3]->blocks[1].before.bytes.empty());
    EXPECT_EQ(ioctls[3]->blocks[1].before.error, EFAULT);
    EXPECT_EQ(ioctls[3]->blocks[1].address, 0x10U);

    ASSERT_EQ(ioctls[4]->blocks.size(), 2U); // 4 GiB of parameters
    const Block& huge = ioctls[4]->blocks[1];
    EXPECT_TRUE(huge.cut);
    EXPECT_LE(huge.before.bytes.size(), 1U << 20);
    ASSERT_GE(huge.before.bytes.size(), 32U);
    EXPECT_EQ(huge.before.bytes[0], std::byte{0x55});

    ASSERT_EQ(ioctls[5]->blocks.size(), 1U); // half an argument
    EXPECT_EQ(ioctls[5]->blocks[0].before.bytes, std::vector<std::byte>(16, std::byte{0x66}));
    EXPECT_EQ(ioctls[5]->blocks[0].before.error, EFAULT);
    EXPECT_EQ(ioctls[5]->blocks[0].size, 32U);

    ASSERT_EQ(ioctls[6]->blocks.size(), 2U); // its own parameters
    EXPECT_EQ(ioctls[6]->blocks[1].address, ioctls[6]->blocks[0].address);
    EXPECT_EQ(ioctls[7]->request, target::rm_transfer); // and XFER of itself: an end is found
    EXPECT_EQ(ioctls[8]->request, 0xffffffffU);
    EXPECT_EQ(ioctls[9]->argument, 7U);
    EXPECT_TRUE(ioctls[9]->blocks.empty()); // a number, no pointer
}

TEST_F(Trouble, NumbersThatAreUsedAgainAreTheFileThatTheyAreNow) {
    const TracedRun run = run_traced(folder_, {"reuse", "60"});
    ASSERT_EQ(run.status, 0);
    ASSERT_EQ(run.ioctls.size(), 120U);
    for (std::size_t i = 0; i < run.ioctls.size(); ++i) {
        const auto object = target::get<std::uint32_t>(run.ioctls[i]->blocks.at(0).before.bytes.data(), 4);
        const auto number = target::get<std::uint32_t>(run.ioctls[i]->blocks.at(1).before.bytes.data(), 0);
        EXPECT_EQ(object, i % 2 == 0 ? 1U : 3U); // never 2, which was a plain file
        EXPECT_EQ(number, i / 2);
        EXPECT_EQ(run.ioctls[i]->node.kind, i % 2 == 0 ? Node::control : Node::gpu);
    }
}

TEST_F(Trouble, MemoryThatChangesMeanwhileLosesNoCall) {
    const TracedRun run = run_traced(folder_, {"changing", "300"});
    ASSERT_EQ(run.status, 0);
    EXPECT_TRUE(run.trace.problems.empty());
    EXPECT_EQ(run.ioctls.size(), 300U);
}

TEST_F(Trouble, MemoryOfAMappingIsRecordedBeforeItGoes) {
    Manner manner;
    manner.more = {"--memory"};
    const TracedRun run = run_traced(folder_, {"all-kinds"}, manner);
    ASSERT_EQ(run.status, 0);
    std::vector<const MemoryRecord*> found;
    std::uint64_t mapped = 0;
    for (const Record& record : run.trace.records) {
        if (const auto* memory = std::get_if<MemoryRecord>(&record.body)) {
            found.push_back(memory);
        } else if (const auto* map = std::get_if<MapRecord>(&record.body)) {
            mapped = static_cast<std::uint64_t>(map->outcome.value);
        }
    }
    ASSERT_EQ(found.size(), 1U); // nothing changes after the first look
    EXPECT_EQ(found[0]->node.path, folder_.file("gpu"));
    EXPECT_EQ(found[0]->mapping, mapped);
    EXPECT_EQ(found[0]->address, mapped);
    EXPECT_EQ(found[0]->bytes.bytes, std::vector<std::byte>(8192, std::byte{'g'}));
}

} // namespace
} // namespace upcie::rm::test
