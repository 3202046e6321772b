// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <upcie/rm/difference.hpp>

#include "trace_builder.hpp"

namespace upcie::rm::test {
namespace {

/// The same program in another run: other pid, addresses and handles.
TraceBuilder::Run other_run() {
    TraceBuilder::Run run;
    run.stack = 0x7ffd'1234'0000;
    run.mapping = 0x7fab'0000'0000;
    run.pid = 815;
    run.first_handle = 0x5d000001;
    return run;
}

/// What a program does, with one thing to change in it.
struct Change {
    std::uint32_t status = 0;
    std::size_t parameter_bytes = 340;
    std::uint8_t reply = 1;
    bool more = false;
    unsigned polls = 3;
};

Trace program(const TraceBuilder::Run& run, const Change& change = {}) {
    TraceBuilder builder{run};
    const auto made = builder.objects();
    builder.map(made.memory, 2 << 20, run.mapping);
    // A reply with a handle, an address and a process id in it.
    const auto reply = Words{change.parameter_bytes}
                           .u32(0, change.reply)
                           .u32(4, made.channel)
                           .u64(8, run.mapping + 0x1000)
                           .u32(16, static_cast<std::uint32_t>(run.pid))
                           .u64(24, run.stack + 0x500)
                           .bytes();
    builder.control(made.subdevice, 0x20800170, Words{change.parameter_bytes}.bytes(), reply, change.status);
    for (unsigned i = 0; i < change.polls; ++i) {
        builder.control(made.subdevice, 0x20800142, Words{4}.bytes());
    }
    if (change.more) {
        builder.control(made.subdevice, 0x20801fff, Words{4}.bytes());
    }
    builder.free(made.group, made.channel);
    return builder.trace;
}

TEST(RmDifference, TwoRunsOfOneProgramAreTheSame) {
    const Difference difference = compare(program({}), program(other_run()));
    EXPECT_TRUE(difference.asks.empty());
    EXPECT_FALSE(difference.first) << difference.first->why << " " << difference.first->a->name;
    EXPECT_FALSE(difference.first_reply) << difference.first_reply->a->name << " at "
                                         << difference.first_reply->offsets[0];
    EXPECT_TRUE(difference.same());
}

TEST(RmDifference, PollLoopsCountOnce) {
    Change longer;
    longer.polls = 30;
    EXPECT_TRUE(compare(program({}), program(other_run(), longer)).same());
}

TEST(RmDifference, AnotherCall) {
    Change change;
    change.more = true;
    const Difference difference = compare(program({}), program(other_run(), change));
    ASSERT_EQ(difference.asks.size(), 1U);
    EXPECT_TRUE(difference.asks[0].only_b());
    EXPECT_EQ(difference.asks[0].ask.number, 0x20801fffU);
    ASSERT_TRUE(difference.first);
    EXPECT_EQ(difference.first->why, "another call");
    EXPECT_EQ(difference.first->b->ask.number, 0x20801fffU);
    EXPECT_EQ(difference.first->before.size(), 5U);
}

TEST(RmDifference, AnotherSizeAnotherStatus) {
    Change size;
    size.parameter_bytes = 344;
    const Difference sizes = compare(program({}), program({}, size));
    ASSERT_EQ(sizes.asks.size(), 1U);
    EXPECT_EQ(sizes.asks[0].sizes_b, (std::set<std::uint64_t>{344}));
    EXPECT_EQ(sizes.first->why, "another size");
    Change status;
    status.status = 0x56;
    const Difference outcomes = compare(program({}), program({}, status));
    EXPECT_EQ(outcomes.first->why, "another outcome");
    EXPECT_EQ(outcomes.first->b->outcome, "NV_ERR_NOT_SUPPORTED (0x56)");
}

TEST(RmDifference, AnotherReply) {
    Change change;
    change.reply = 2;
    const Difference difference = compare(program({}), program(other_run(), change));
    EXPECT_FALSE(difference.first);
    ASSERT_TRUE(difference.first_reply);
    EXPECT_EQ(difference.first_reply->a->ask.number, 0x20800170U);
    ASSERT_EQ(difference.first_reply->offsets.size(), 1U);
    EXPECT_EQ(difference.first_reply->offsets[0], 32U); // behind the 32 bytes of the argument
    EXPECT_EQ(difference.asks.at(0).changed_replies, 1U);
    EXPECT_TRUE(compare(program({}), program(other_run(), change), false).same());
}

TEST(RmDifference, OneEndsBefore) {
    Trace shorter = program({});
    shorter.records.pop_back();
    const Difference difference = compare(shorter, program({}));
    ASSERT_TRUE(difference.first);
    EXPECT_EQ(difference.first->why, "A ends here");
    EXPECT_FALSE(difference.first->a);
    EXPECT_TRUE(compare({}, {}).same());
}

} // namespace
} // namespace upcie::rm::test
