// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <upcie/rm/call.hpp>
#include <upcie/rm/objects.hpp>
#include <upcie/rm/picture.hpp>
#include <upcie/rm/push_buffer.hpp>
#include <upcie/rm/summary.hpp>

#include "trace_builder.hpp"

namespace upcie::rm::test {
namespace {

const Object* labelled(const ObjectTree& tree, std::string_view label) {
    for (const Object& object : tree.objects()) {
        if (object.label == label) {
            return &object;
        }
    }
    return nullptr;
}

TEST(RmCall, AllocationUnderstood) {
    TraceBuilder builder;
    builder.allocate(0, 0x41);
    const auto call = understand(builder.trace.records[0], {580, 159, 4});
    ASSERT_TRUE(call);
    EXPECT_EQ(call->class_id, 0x41U);
    EXPECT_EQ(call->client, TraceBuilder::client);
    EXPECT_EQ(call->object, TraceBuilder::client);
    EXPECT_EQ(call->status, 0U);
    EXPECT_EQ(call_name(*call, {}), "RM_ALLOC NV01_ROOT_CLIENT (0x41)");
    EXPECT_EQ(outcome_text(*call), "NV_OK");
}

TEST(RmCall, StatusInsideMakesAFailure) {
    TraceBuilder builder;
    builder.control(1, 0x2080a1ff, Words{8}.bytes(), {}, 0x56);
    const auto call = understand(builder.trace.records[0], {});
    ASSERT_TRUE(call);
    EXPECT_FALSE(call->succeeded());
    EXPECT_EQ(outcome_text(*call), "NV_ERR_NOT_SUPPORTED (0x56)");
    EXPECT_EQ(call_name(*call, {}), "RM_CONTROL legacy control 0x2080a1ff");
}

TEST(RmCall, UnknownNumbersStayNumbers) {
    TraceBuilder builder;
    builder.control(1, 0x20801fff, Words{8}.bytes());
    builder.uvm(4242, Words{8}.bytes());
    builder.ioctl(Node::control, "/dev/nvidiactl", escape_request(0x99, 8), {{"argument", 0, Words{8}.bytes(), {}}});
    builder.ioctl(Node::modeset, "/dev/nvidia-modeset", 0xc0106d00, {{"argument", 0, Words{16}.bytes(), {}}});
    builder.allocate(TraceBuilder::client, 0xfedc);
    std::vector<std::string> names;
    for (const Record& record : builder.trace.records) {
        names.push_back(call_name(*understand(record, {}), {}));
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"RM_CONTROL unknown control 0x20801fff", "unknown UVM command 4242",
                                        "unknown escape 0x99", "ioctl 0xc0106d00", "RM_ALLOC unknown class 0xfedc"}));
}

TEST(RmCall, VersionComesFromTheTraceItself) {
    TraceBuilder::Run run;
    run.driver = "";
    TraceBuilder builder{run};
    EXPECT_FALSE(driver_version(builder.trace).known());
    auto& ioctl = builder.ioctl(Node::control, "/dev/nvidiactl", escape_request(210, 72),
                                {{"argument", 0, Words{72}.bytes(), Words{72}.text(8, "550.163.01").bytes()}});
    EXPECT_EQ(driver_version(builder.trace), (DriverVersion{550, 163, 1}));
    ioctl.blocks.clear();
    EXPECT_FALSE(driver_version(builder.trace).known());
}

TEST(RmObjects, TreeOfACudaProgram) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.uvm(73, Words{24}.u64(0, 0x200400000).u64(8, 2 << 20).bytes());
    builder.uvm(
        33,
        Words{9264}.u64(0, 0x200400000).u64(8, 2 << 20).u32(9252, TraceBuilder::client).u32(9256, made.memory).bytes());
    builder.map(made.memory, 2 << 20, 0x7f1200000000);
    const auto dma_buf =
        Words{2608}.u32(4, TraceBuilder::client).u32(8, 1).u32(12, 1).u64(24, 2 << 20).u32(36, made.memory);
    auto answered = dma_buf;
    builder.ioctl(Node::gpu, "/dev/nvidia0", escape_request(217, 2608),
                  {{"argument", 0, Words{dma_buf}.u64(1576, 2 << 20).bytes(), answered.u32(0, 9).bytes()}});
    const ObjectTree tree = ObjectTree::of(builder.trace);
    ASSERT_EQ(tree.objects().size(), 7U);
    const Object* copy = labelled(tree, "copy engine 1");
    ASSERT_NE(copy, nullptr);
    EXPECT_EQ(tree.objects()[*copy->parent_index].label, "channel 1");
    EXPECT_EQ(labelled(tree, "video memory 1")->bytes, std::uint64_t{2} << 20);
    EXPECT_EQ(labelled(tree, "channel 1")->ring_entries, 1024U);
    ASSERT_EQ(tree.mappings().size(), 2U);
    EXPECT_EQ(tree.mappings()[0].kind, ObjectMapping::Kind::external);
    EXPECT_EQ(tree.mappings()[1].kind, ObjectMapping::Kind::cpu);
    EXPECT_EQ(tree.mappings()[1].address, 0x7f1200000000U);
    ASSERT_EQ(tree.exports().size(), 1U);
    EXPECT_EQ(tree.exports()[0].fd, 9);
    ASSERT_EQ(tree.exports()[0].parts.size(), 1U);
    EXPECT_EQ(tree.objects()[*tree.exports()[0].parts[0].object].label, "video memory 1");
    const std::string text = tree_text(tree);
    EXPECT_NE(text.find("exported as dma-buf fd 9, 2 MiB"), std::string::npos) << text;
    EXPECT_NE(tree_dot(tree).find("o0 -> o1"), std::string::npos);
    EXPECT_NE(tree_svg(tree).find("copy engine 1"), std::string::npos);
    EXPECT_NE(timeline_html(builder.trace, "<x>").find("&lt;x>"), std::string::npos);
}

TEST(RmObjects, FreeTakesTheChildrenAlong) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.free(made.device, made.group);
    const ObjectTree tree = ObjectTree::of(builder.trace);
    EXPECT_NE(labelled(tree, "channel 1")->died, 0U);
    EXPECT_NE(labelled(tree, "copy engine 1")->died, 0U);
    EXPECT_EQ(labelled(tree, "video memory 1")->died, 0U);
    EXPECT_EQ(tree.find(TraceBuilder::client, made.channel), nullptr);
}

TEST(RmObjects, RefusedAllocationMakesNothing) {
    TraceBuilder builder;
    builder.objects();
    builder.allocate(TraceBuilder::client, 0x40, Words{128}.bytes(), 0x51);
    EXPECT_EQ(ObjectTree::of(builder.trace).objects().size(), 7U);
}

// A trace of a running process begins in the middle.
TEST(RmObjects, ParentsThatWereNotSeenAreAssumed) {
    TraceBuilder builder;
    builder.allocate(0x5c0000aa, 0x40, Words{128}.bytes());
    const ObjectTree tree = ObjectTree::of(builder.trace);
    ASSERT_EQ(tree.objects().size(), 2U);
    EXPECT_TRUE(tree.objects()[0].assumed);
    EXPECT_EQ(tree.roots().size(), 1U);
}

// Each ioctl counts once: by what XFER wraps, and beside that as having come by XFER.
TEST(RmSummary, NothingIsLostAndNothingCountedTwice) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.control(made.subdevice, 0x20800170, Words{340}.bytes(), {}, 0, true);
    builder.control(made.subdevice, 0x20800170, Words{340}.bytes());
    builder.control(made.subdevice, 0x20801fff, Words{4}.bytes(), {}, 0x56);
    builder.uvm(75, Words{8}.bytes());
    builder.ioctl(Node::modeset, "/dev/nvidia-modeset", 0xc0106d00, {{"argument", 0, Words{16}.bytes(), {}}});
    const Summary summary = summarise(builder.trace);
    EXPECT_EQ(summary.ioctls, builder.trace.records.size());
    EXPECT_EQ(summary.escapes.at(0x2a).calls, 3U);
    EXPECT_EQ(summary.escapes.at(0x2b).calls, 7U);
    EXPECT_FALSE(summary.escapes.contains(211));
    EXPECT_EQ(summary.xfer_wrapped.at(0x2a).calls, 1U);
    EXPECT_EQ(summary.controls.at(0x20800170).calls, 2U);
    EXPECT_EQ(summary.controls.at(0x20801fff).failures, 1U);
    EXPECT_EQ(summary.classes.at(0xc86f).calls, 1U);
    EXPECT_EQ(summary.uvm.at(75).calls, 1U);
    EXPECT_EQ(summary.others.at(0xc0106d00).calls, 1U);
    std::uint64_t all = 0;
    for (const auto& [number, tally] : summary.escapes) {
        all += tally.calls;
    }
    EXPECT_EQ(all + 2, summary.ioctls);
    EXPECT_EQ(summary.failed.size(), 1U);
    EXPECT_EQ(summary.nanoseconds, 400 * summary.ioctls);
}

TEST(RmPushBuffer, FormatsOfTheHeader) {
    const auto words = Words{36}
                           .u32(0, 1U << 29 | 2U << 16 | 4U << 13 | 0x400 >> 2) // increasing
                           .u32(4, 0x7f12)
                           .u32(8, 0x100)
                           .u32(12, 4U << 29 | 0x182U << 16 | 4U << 13 | 0x300 >> 2) // immediate
                           .u32(16, 3U << 29 | 2U << 16 | 0x1b4 >> 2)                // not increasing
                           .u32(20, 1)
                           .u32(24, 2)
                           .u32(28, 0) // padding
                           .u32(32, 4U << 29 | 1U << 13);
    const PushBuffer read = read_push_buffer(words.bytes());
    EXPECT_TRUE(read.complete);
    EXPECT_EQ(read.methods,
              (std::vector<Method>{
                  {4, 0x400, 0x7f12}, {4, 0x404, 0x100}, {4, 0x300, 0x182}, {0, 0x1b4, 1}, {0, 0x1b4, 2}, {1, 0, 0}}));
    EXPECT_EQ(method_name(ClassRole::copy, 0x300), "LAUNCH_DMA");
    EXPECT_EQ(method_name(ClassRole::other, 0x6c), "SEM_EXECUTE");
    EXPECT_EQ(method_name(ClassRole::other, 0x300), "");
    EXPECT_FALSE(read_push_buffer(Words{8}.u32(0, 1U << 29 | 5U << 16).bytes()).complete);
}

TEST(RmRings, CommandsAreFoundThroughTheMappings) {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.uvm(
        33,
        Words{9264}.u64(0, 0x200400000).u64(8, 2 << 20).u32(9252, TraceBuilder::client).u32(9256, made.memory).bytes());
    builder.map(made.memory, 2 << 20, 0x7f1200000000);
    const auto commands = Words{8}.u32(0, 4U << 29 | 0x182U << 16 | 4U << 13 | 0x300 >> 2).u32(4, 4U << 29).bytes();
    MemoryRecord ring;
    ring.address = ring.mapping = 0x7f1200000000;
    ring.occasion = 9;
    ring.bytes.bytes = Words{8}.u64(0, 0x200410000 | std::uint64_t{2} << 42).bytes();
    MemoryRecord buffer = ring;
    buffer.address = 0x7f1200010000;
    buffer.bytes.bytes = commands;
    builder.record(ring);
    builder.record(buffer);
    ObjectTree tree;
    RingReader reader;
    std::vector<Submission> found;
    for (const Record& record : builder.trace.records) {
        for (Submission& submission : reader.take(record, tree)) {
            found.push_back(std::move(submission));
        }
        tree.apply(record, understand(record, {580, 1, 1}));
    }
    EXPECT_TRUE(found.empty());
    found = reader.finish(tree);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_TRUE(found[0].recorded);
    EXPECT_EQ(found[0].bytes, 8U);
    ASSERT_EQ(found[0].buffer.methods.size(), 2U);
    EXPECT_EQ(found[0].buffer.methods[0], (Method{4, 0x300, 0x182}));
    EXPECT_TRUE(reader.finish(tree).empty());
}

} // namespace
} // namespace upcie::rm::test
