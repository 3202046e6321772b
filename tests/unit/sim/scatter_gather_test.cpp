// SPDX-License-Identifier: BSD-3-Clause
// SGLs as a controller reads them: what may be, and that everything else is refused before a byte moves.
#include <upcie/nvme/sgl.hpp>

#include "sim/raw_driver.hpp"

namespace upcie::sim::test {
namespace {

using nvme::SglDescriptor;
using nvme::SglKind;

class ScatterGather : public ::testing::Test {
  protected:
    explicit ScatterGather(const char* spec = "sim:size=16M,thread=off,sgl=bytes") : driver{spec} {
        EXPECT_TRUE(driver.enable());
        rings = driver.queue(1);
        EXPECT_EQ(driver.violations(), "");
        std::vector<std::byte> medium(4096);
        for (std::size_t i = 0; i < medium.size(); ++i) {
            medium[i] = static_cast<std::byte>(i * 7 + i / 256);
        }
        EXPECT_TRUE(driver.controller->write_medium(Nsid{1}, Lba{0}, medium));
        expected = medium;
        std::memset(data.as(), 0xee, data.size());
    }
    [[nodiscard]] AddressSpace& space() const { return *driver.controller->address_space(); }

    static SglDescriptor block(std::uint64_t address, std::uint32_t length) {
        return SglDescriptor::make(SglKind::data_block, address, length);
    }
    /// Puts descriptors into the list memory, and answers the link to them.
    SglDescriptor segment(SglKind kind, std::size_t offset, const std::vector<SglDescriptor>& descriptors) const {
        std::memcpy(list.as(offset), descriptors.data(), descriptors.size() * sizeof descriptors[0]);
        return SglDescriptor::make(kind, list.address(offset), descriptors.size() * sizeof descriptors[0]);
    }
    /// Status of a read of `blocks` blocks of 512 bytes.
    unsigned read(const SglDescriptor& pointer, std::uint16_t blocks = 1) {
        nvme::Command command = RawDriver::io(2, 0, blocks, 0);
        command.flags = nvme::psdt_sgl;
        std::memcpy(&command.prp1, &pointer, sizeof pointer);
        return driver.run(*rings, command).code();
    }
    void expect_refused(unsigned status, const SglDescriptor& pointer, std::uint16_t blocks = 1) {
        driver.controller->clear_violations();
        EXPECT_EQ(read(pointer, blocks), status);
        EXPECT_TRUE(driver.violated(ViolationKind::sgl_invalid));
        for (std::size_t i = 0; i < data.size(); ++i) {
            ASSERT_EQ(data.as()[i], 0xee) << "nothing moves unless all of it can";
        }
    }
    bool holds(std::size_t at, std::size_t from, std::size_t length) const {
        return std::memcmp(data.as(at), expected.data() + from, length) == 0;
    }

    RawDriver driver;
    std::unique_ptr<Rings> rings;
    Memory data{space(), 16384};
    Memory list{space(), 16384};
    std::vector<std::byte> expected;
};

TEST_F(ScatterGather, OneBlockAtAnyAddress) {
    EXPECT_EQ(read(block(data.address(4099), 512)), 0U);
    EXPECT_TRUE(holds(4099, 0, 512));
    EXPECT_EQ(data.as()[4098], 0xee);
    EXPECT_EQ(data.as()[4099 + 512], 0xee);
    EXPECT_EQ(driver.violations(), "");
}

TEST_F(ScatterGather, SegmentsLeadToEachOther) {
    const auto third = segment(SglKind::last_segment, 512, {block(data.address(9000), 401)});
    const auto second = segment(SglKind::segment, 256, {block(data.address(5), 100), block(0, 0), third});
    const auto first = segment(SglKind::segment, 0, {block(data.address(8192), 11), second});
    EXPECT_EQ(read(first), 0U);
    EXPECT_TRUE(holds(8192, 0, 11));
    EXPECT_TRUE(holds(5, 11, 100));
    EXPECT_TRUE(holds(9000, 111, 401));
    EXPECT_EQ(data.as()[105], 0xee);
    EXPECT_EQ(driver.violations(), "");
}

TEST_F(ScatterGather, WrongLengthsAreRefused) {
    expect_refused(0x00f, block(data.address(), 511));
    expect_refused(0x00f, block(data.address(), 513));
    expect_refused(0x00f,
                   segment(SglKind::last_segment, 0, {block(data.address(), 500), block(data.address(600), 13)}));
    expect_refused(0x00d, SglDescriptor::make(SglKind::last_segment, list.address(), 24));
    expect_refused(0x00d, SglDescriptor::make(SglKind::last_segment, list.address(), 0));
    expect_refused(0x00d, SglDescriptor::make(SglKind::last_segment, list.address(4), 16));
    expect_refused(0x00d, SglDescriptor::make(SglKind::last_segment, list.address(), std::uint64_t{1} << 24));
}

TEST_F(ScatterGather, LinksStandAtTheEndOfWhatIsNotLast) {
    const auto good = segment(SglKind::last_segment, 1024, {block(data.address(), 512)});
    expect_refused(0x00d, segment(SglKind::last_segment, 0, {good})); // a link in the last segment
    expect_refused(0x00d, segment(SglKind::segment, 0, {good, block(data.address(), 512)})); // not at the end
    expect_refused(0x00d, segment(SglKind::segment, 0, {block(data.address(), 512)}));       // none at the end
    expect_refused(0x00d, segment(SglKind::segment, 0, {block(data.address(), 256), block(data.address(300), 256)}));
}

TEST_F(ScatterGather, ACircleEnds) {
    segment(SglKind::segment, 0, {SglDescriptor::make(SglKind::segment, list.address(), 16)});
    expect_refused(0x00e, SglDescriptor::make(SglKind::segment, list.address(), 16));
}

TEST_F(ScatterGather, OtherKindsAreNotOffered) {
    expect_refused(0x011, SglDescriptor::make(SglKind::bit_bucket, 0, 512));
    SglDescriptor keyed = block(data.address(), 512);
    keyed.kind = 0x40;
    expect_refused(0x011, keyed);
    SglDescriptor offset = block(data.address(), 512);
    offset.kind = 0x01; // an offset into a controller memory buffer
    expect_refused(0x011, offset);
    SglDescriptor reserved = block(data.address(), 512);
    reserved.reserved[1] = 1;
    expect_refused(0x011, reserved);
}

TEST_F(ScatterGather, UnmappedMemoryIsAFault) {
    const std::uint64_t nowhere = list.address() + (std::uint64_t{1} << 36);
    EXPECT_EQ(read(SglDescriptor::make(SglKind::last_segment, nowhere, 16)), 0x004U);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
    driver.controller->clear_violations();
    EXPECT_EQ(read(segment(SglKind::last_segment, 0, {block(data.address(), 256), block(nowhere, 256)})), 0x004U);
    EXPECT_EQ(data.as()[0], 0xee);
    EXPECT_TRUE(driver.violated(ViolationKind::access_fault));
}

TEST_F(ScatterGather, NotOfAnAdminCommand) {
    nvme::Command command;
    command.opcode = 0x06;
    command.flags = nvme::psdt_sgl;
    command.prp1 = data.address();
    command.cdw10 = 1;
    driver.admin_run(command);
    EXPECT_TRUE(driver.violated(ViolationKind::reserved_field));
}

struct ScatterGatherOfDwords : ScatterGather {
    ScatterGatherOfDwords() : ScatterGather{"sim:size=16M,thread=off,sgl=dwords"} {}
};

TEST_F(ScatterGatherOfDwords, TakeMultiplesOfFourOnly) {
    expect_refused(0x00d, block(data.address(2), 512));
    expect_refused(0x00d, segment(SglKind::last_segment, 0, {block(data.address(), 511), block(data.address(600), 1)}));
    EXPECT_EQ(read(block(data.address(4), 512)), 0U);
}

struct WithoutScatterGather : ScatterGather {
    WithoutScatterGather() : ScatterGather{"sim:size=16M,thread=off"} {}
};

TEST_F(WithoutScatterGather, ThePsdtFieldIsReserved) {
    read(block(data.address(), 512));
    EXPECT_TRUE(driver.violated(ViolationKind::reserved_field));
}

} // namespace
} // namespace upcie::sim::test
