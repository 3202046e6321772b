// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <gtest/gtest.h>
#include <upcie/rm/difference.hpp>
#include <upcie/rm/scrub.hpp>

#include "trace_builder.hpp"

namespace upcie::rm::test {
namespace {

constexpr std::string_view uuid_text = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";

std::vector<std::byte> uuid_bytes() {
    std::vector<std::byte> bytes(16);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(0xa0 + i);
    }
    return bytes;
}

Words with_uuid(std::size_t size, std::size_t at) {
    Words words{size};
    const auto uuid = uuid_bytes();
    for (std::size_t i = 0; i < uuid.size(); i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, uuid.data() + i, 4);
        words.u32(at + i, word);
    }
    return words;
}

Trace private_trace() {
    TraceBuilder builder;
    const auto made = builder.objects();
    builder.map(made.memory, 2 << 20, 0x7f1200000000);
    builder.uvm(37, with_uuid(40, 0).bytes());
    builder.control(made.subdevice, 0x2080014a, Words{268}.u32(4, 2).bytes(),
                    with_uuid(268, 12).u32(4, 2).u32(8, 16).bytes());
    builder.control(made.subdevice, 0x2080013f, Words{136}.bytes(), Words{136}.text(68, "1650923004711").bytes());
    builder.control(made.subdevice, 0x2080a1ff, Words{32}.bytes(), Words{32}.text(0, "secret").bytes());
    // Addresses of one region, among them one inside a payload; a number that looks like none.
    builder.control(made.subdevice, 0x20800142, Words{24}.bytes(),
                    Words{24}.u64(0, 0x7f1200000040).u64(8, 0x7f1200100040).u64(16, 0x200400000).bytes());
    ReadRecord read;
    read.path = "/home/alice/.nv/version";
    const std::string content = std::string{uuid_text} + " built by joe@buildhost /home/alice/x\n";
    read.content.path = "content";
    read.content.after.bytes = Words{content.size()}.text(0, content).bytes();
    builder.record(read);
    return builder.trace;
}

std::string all_bytes(const Trace& trace) {
    std::string text;
    const auto add = [&](const std::vector<std::byte>& bytes) {
        std::ranges::transform(bytes, std::back_inserter(text), [](std::byte b) { return std::to_integer<char>(b); });
        text += '|';
    };
    for (const Record& record : trace.records) {
        if (const auto* ioctl = std::get_if<IoctlRecord>(&record.body)) {
            for (const Block& block : ioctl->blocks) {
                add(block.before.bytes);
                add(block.after.bytes);
            }
        } else if (const auto* read = std::get_if<ReadRecord>(&record.body)) {
            add(read->content.after.bytes);
            text += read->path;
        }
    }
    for (const std::string& word : trace.headers.front().command) {
        text += word;
    }
    return text;
}

TEST(RmScrub, TakesOutWhatTellsAboutOneMachine) {
    Trace trace = private_trace();
    const ScrubReport report = scrub(trace);
    const std::string text = all_bytes(trace);
    const auto uuid = uuid_bytes();
    std::string uuid_raw(16, '\0');
    std::ranges::transform(uuid, uuid_raw.begin(), [](std::byte b) { return std::to_integer<char>(b); });
    for (const std::string& secret : {std::string{"alice"}, std::string{"1650923004711"}, std::string{"secret"},
                                      std::string{"joe"}, std::string{"buildhost"}, std::string{uuid_text}, uuid_raw}) {
        EXPECT_EQ(text.find(secret), std::string::npos) << secret;
    }
    EXPECT_EQ(report.identifiers, 1U);
    EXPECT_EQ(report.serials, 1U);
    EXPECT_EQ(report.opaque, 1U);
    EXPECT_GT(report.pointers, 0U);
    EXPECT_GT(report.texts, 0U);
    // As bytes and as text the GPU has the same new name.
    EXPECT_NE(text.find(std::string{"upcie\0\0\0\0\0\0\0\0\0\0\1", 16}), std::string::npos);
    EXPECT_NE(text.find("GPU-75706369-6500-0000-0000-000000000001"), std::string::npos);
}

TEST(RmScrub, DistancesAndSmallAddressesStay) {
    Trace trace = private_trace();
    scrub(trace);
    std::uint64_t mapping = 0;
    std::vector<std::byte> reply;
    for (const Record& record : trace.records) {
        if (const auto* map = std::get_if<MapRecord>(&record.body)) {
            mapping = static_cast<std::uint64_t>(map->outcome.value);
        }
        const auto* ioctl = std::get_if<IoctlRecord>(&record.body);
        if (ioctl != nullptr && ioctl->blocks.size() == 2 && ioctl->blocks[1].after.bytes.size() == 24) {
            reply = ioctl->blocks[1].after.bytes;
        }
    }
    ASSERT_EQ(reply.size(), 24U);
    std::uint64_t words[3];
    std::memcpy(words, reply.data(), sizeof words);
    EXPECT_NE(mapping, 0x7f1200000000U);
    EXPECT_EQ(words[0], mapping + 0x40);
    EXPECT_EQ(words[1], mapping + 0x100040);
    EXPECT_EQ(words[2], 0x200400000U);
}

TEST(RmScrub, IsIdempotentAndKeepsTheStructure) {
    Trace trace = private_trace();
    scrub(trace);
    Trace again = trace;
    const ScrubReport report = scrub(again);
    EXPECT_EQ(again.records, trace.records);
    EXPECT_EQ(again.headers, trace.headers);
    EXPECT_EQ(report.pointers, 0U);
    EXPECT_EQ(report.texts, 0U);
    EXPECT_FALSE(compare(private_trace(), trace, false).first);
}

TEST(RmScrub, OpaqueRepliesAreKeptOnDemandAndTextsRemoved) {
    Trace trace = private_trace();
    ScrubOptions options;
    options.keep_opaque = true;
    options.also = {"secret"};
    scrub(trace, options);
    EXPECT_EQ(all_bytes(trace).find("secret"), std::string::npos);
    EXPECT_NE(all_bytes(trace).find("remove"), std::string::npos);
    Trace kept = private_trace();
    options.also.clear();
    scrub(kept, options);
    EXPECT_NE(all_bytes(kept).find("secret"), std::string::npos);
}

} // namespace
} // namespace upcie::rm::test
