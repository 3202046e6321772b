// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include <gtest/gtest.h>
#include <upcie/rm/vocabulary.hpp>

#include "trace_builder.hpp"

namespace upcie::rm::test {
namespace {

constexpr DriverVersion driver{580, 159, 4};

std::vector<NestedBlock> below(Node node, std::uint64_t request, const std::vector<std::byte>& block) {
    return nested_blocks(node, request, block, driver);
}

TEST(RmNested, ControlPointsAtItsParameters) {
    const auto found = below(Node::control, escape_request(0x2a, 32),
                             Words{32}.u32(8, 0x20800170).u64(16, 0x1000).u32(24, 340).bytes());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].name, "params");
    EXPECT_EQ(found[0].pointer_offset, 16U);
    EXPECT_EQ(found[0].address, 0x1000U);
    EXPECT_EQ(found[0].bytes, 340U);
    EXPECT_EQ(found[0].kind, (BlockKind{BlockKind::Type::control, 0x20800170}));
}

TEST(RmNested, AllocationOfSizeZeroHasTheSizeOfItsClass) {
    const auto argument = Words{48}.u32(12, 0xc86f).u64(16, 0x1000).u64(24, 0x2000).bytes();
    const auto found = below(Node::control, escape_request(0x2b, 48), argument);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].bytes, 368U);
    EXPECT_EQ(found[1].name, "rights");
    EXPECT_EQ(found[1].bytes, 4U);
    const auto older = nested_blocks(Node::control, escape_request(0x2b, 48), argument, DriverVersion{555, 58, 2});
    EXPECT_EQ(older[0].bytes, 360U);
}

TEST(RmNested, AllocationOfTheOldForm) {
    const auto found =
        below(Node::control, escape_request(0x2b, 32), Words{32}.u32(12, 0x2080).u64(16, 0x1000).bytes());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].bytes, 4U);
}

TEST(RmNested, AllocationOfAnUnknownClassHasNoSize) {
    EXPECT_TRUE(
        below(Node::control, escape_request(0x2b, 48), Words{48}.u32(12, 0xfefe).u64(16, 0x1000).bytes()).empty());
    const auto given =
        below(Node::control, escape_request(0x2b, 48), Words{48}.u32(12, 0xfefe).u64(16, 0x1000).u32(32, 24).bytes());
    ASSERT_EQ(given.size(), 1U);
    EXPECT_EQ(given[0].bytes, 24U);
}

TEST(RmNested, SerialisedParametersAreOpaque) {
    const auto found = below(Node::control, escape_request(0x2a, 32),
                             Words{32}.u32(8, 0x101).u32(12, 4).u64(16, 0x1000).u32(24, 100).bytes());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].kind.type, BlockKind::Type::opaque);
}

// XFER, escape parameters, control parameters, three strings: everything is read, outer before inner.
TEST(RmNested, AllLevelsAreCollected) {
    std::map<std::uint64_t, std::vector<std::byte>> memory;
    memory[0x1000] = Words{32}.u32(8, 0x101).u64(16, 0x2000).u32(24, 40).bytes();
    memory[0x2000] = Words{40}.u32(0, 64).u64(8, 0x3000).u64(16, 0x4000).u64(24, 0x5000).bytes();
    memory[0x3000] = Words{64}.text(0, "580.159.04").bytes();
    memory[0x5000] = Words{64}.bytes();
    const auto found = collect_nested_blocks(
        Node::control, escape_request(211, 16), Words{16}.u32(0, 0x2a).u32(4, 32).u64(8, 0x1000).bytes(), driver,
        [&](std::uint64_t address, std::uint32_t) {
            return memory.contains(address) ? memory[address] : std::vector<std::byte>{};
        });
    ASSERT_EQ(found.size(), 5U);
    EXPECT_EQ(found[0].path, "xfer");
    EXPECT_EQ(found[1].path, "xfer/params");
    EXPECT_EQ(found[2].path, "xfer/params/driver_version");
    EXPECT_EQ(found[2].bytes, 64U);
    EXPECT_EQ(found[3].path, "xfer/params/version");
    EXPECT_TRUE(found[3].data.empty()); // could not be read, and is there all the same
    EXPECT_EQ(found[4].path, "xfer/params/title");
}

TEST(RmNested, GraphicsInfoListIsFollowed) {
    const auto found =
        nested_blocks({BlockKind::Type::control, 0x20801201}, Words{32}.u32(0, 5).u64(8, 0x1000).bytes(), driver);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].bytes, 40U);
}

TEST(RmNested, MatrixOfPeersIsSquared) {
    const auto found = nested_blocks({BlockKind::Type::control, 0x127},
                                     Words{176}.u32(128, 4).u64(160, 0x1000).u64(168, 0x2000).bytes(), driver);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].bytes, 64U);
    EXPECT_EQ(nested_blocks({BlockKind::Type::control, 0x127}, Words{168}.u32(128, 4).u64(160, 0x1000).bytes(),
                            DriverVersion{535, 1, 1})
                  .size(),
              1U);
}

TEST(RmNested, WildLengthsAreCut) {
    const auto found = below(Node::control, escape_request(0x2a, 32),
                             Words{32}.u32(8, 0x20800170).u64(16, 0x1000).u32(24, 0xffffffff).bytes());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_TRUE(found[0].truncated);
    EXPECT_EQ(found[0].bytes, most_nested_bytes);
    const auto list = nested_blocks({BlockKind::Type::control, 0x127},
                                    Words{168}.u32(128, 0xffffffff).u64(160, 0x1000).bytes(), driver);
    ASSERT_EQ(list.size(), 1U);
    EXPECT_TRUE(list[0].truncated);
}

TEST(RmNested, ShortBlocksNullPointersAndLoopsHaveNothing) {
    for (std::size_t size = 0; size < 32; ++size) {
        const auto whole = Words{32}.u32(8, 0x101).u64(16, 0x1000).u32(24, 40).bytes();
        const std::vector<std::byte> part{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)};
        EXPECT_EQ(below(Node::control, escape_request(0x2a, 32), part).size(), size >= 28 ? 1U : 0U) << size;
    }
    EXPECT_TRUE(below(Node::control, escape_request(0x2a, 32), Words{32}.u32(24, 40).bytes()).empty());
    const auto loop =
        below(Node::control, escape_request(211, 16), Words{16}.u32(0, 211).u32(4, 16).u64(8, 0x1000).bytes());
    ASSERT_EQ(loop.size(), 1U);
    EXPECT_EQ(loop[0].kind.type, BlockKind::Type::opaque);
}

TEST(RmNested, ArgumentSizes) {
    EXPECT_EQ(argument_bytes(Node::control, escape_request(0x2b, 48), driver), 48U);
    EXPECT_EQ(argument_bytes(Node::uvm, 33, driver), 9264U);
    EXPECT_EQ(argument_bytes(Node::uvm, 33, DriverVersion{535, 1, 1}), 1200U);
    EXPECT_EQ(argument_bytes(Node::uvm, 9999, driver), std::nullopt);
    EXPECT_EQ(argument_bytes(Node::uvm, 0x30000002, driver), std::nullopt);
}

TEST(RmNested, ToolsOfUvm) {
    const auto found = below(Node::uvm_tools, 62, Words{40}.u64(0, 0x1000).u64(8, 16).bytes());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].bytes, 16U);
    EXPECT_TRUE(below(Node::uvm, 33, Words{9264}.u64(0, 0x1000).bytes()).empty());
}

} // namespace
} // namespace upcie::rm::test
