// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "device.hpp"

namespace upcie::conformance {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::byte poison{0xee};

class Data : public Conformance {
  protected:
    void stamp(std::byte* data, Lba lba, std::uint64_t blocks, std::uint64_t seed) const {
        for (std::uint64_t i = 0; i < blocks; ++i) {
            fill_stamp({data + i * block_size(), block_size()}, seed, format.nsid, lba.value() + i);
        }
    }
    [[nodiscard]] std::string check(const std::byte* data, Lba lba, std::uint64_t blocks, std::uint64_t seed) const {
        for (std::uint64_t i = 0; i < blocks; ++i) {
            std::string fault =
                check_stamp({data + i * block_size(), block_size()}, seed, format.nsid, lba.value() + i);
            if (!fault.empty()) {
                return fault;
            }
        }
        return {};
    }
    static bool all(std::span<const std::byte> bytes, std::byte value) {
        return std::all_of(bytes.begin(), bytes.end(), [value](std::byte byte) { return byte == value; });
    }

    /// Writes and reads back `bytes` with both buffers `offset` bytes into a page, and looks at what lies around.
    void round_trip(nvme::QueuePair& queue, const Memory& out, const Memory& in, std::size_t bytes, std::size_t offset,
                    std::uint64_t seed) {
        SCOPED_TRACE(::testing::Message() << bytes << " bytes at offset " << offset);
        const std::size_t page = std::size_t{1} << controller->page_shift();
        const std::size_t at = page + offset;
        const auto blocks = static_cast<std::uint32_t>(bytes / block_size());
        const Lba lba = scratch(seed % 7, blocks);
        stamp(out.data() + at, lba, blocks, seed);
        std::memset(in.data(), std::to_integer<int>(poison), at + bytes + page);
        ASSERT_EQ(code(finish_one(queue, queue.write(format, lba, blocks, out.data() + at, 1))), 0);
        if (const sim::Controller* const witness = Device::instance().simulated(); witness != nullptr) {
            std::vector<std::byte> medium(bytes);
            ASSERT_TRUE(witness->read_medium(format.nsid, lba, medium));
            ASSERT_EQ(check(medium.data(), lba, blocks, seed), "") << "on the medium";
        }
        ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, blocks, in.data() + at, 2))), 0);
        EXPECT_EQ(check(in.data() + at, lba, blocks, seed), "");
        EXPECT_TRUE(all(in.bytes(0, at), poison)) << "written before the buffer";
        EXPECT_TRUE(all(in.bytes(at + bytes, page), poison)) << "written behind the buffer";
    }
};

TEST_F(Data, AllSizesAtAllOffsets) {
    auto queue = make_queue(4);
    const std::size_t page = std::size_t{1} << controller->page_shift();
    const std::size_t most = max_bytes(queue);
    const Memory out = make_memory(2048 * kib + 3 * page);
    const Memory in = make_memory(2048 * kib + 3 * page);
    ASSERT_TRUE(out.registration && in.registration);
    std::uint64_t seed = 1;
    std::size_t last = 0;
    for (const std::size_t wanted : {block_size(), 3 * block_size(), 4 * kib, 8 * kib, 12 * kib, 64 * kib, 124 * kib,
                                     128 * kib, 512 * kib, 1024 * kib, 2047 * kib, 2048 * kib}) {
        const std::size_t bytes = std::min(wanted, most) / block_size() * block_size();
        if (bytes == 0 || bytes == last) {
            continue; // beyond what one command takes, and done already
        }
        last = bytes;
        for (const std::size_t offset : {std::size_t{0}, std::size_t{4}, std::size_t{512}, page - 512, page - 4}) {
            round_trip(queue, out, in, bytes, offset, seed++);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

// Pages from all over a buffer in one command: entries that do not follow each other.
TEST_F(Data, PiecesInReverseOrder) {
    auto queue = make_queue(4);
    const std::size_t page = std::size_t{1} << controller->page_shift();
    const std::size_t pieces = std::min<std::size_t>(16, max_bytes(queue) / page);
    const Memory memory = make_memory(pieces * page);
    const auto blocks = static_cast<std::uint32_t>(pieces * page / block_size());
    const Lba lba = scratch(0, blocks);
    std::vector<iommu::Extent> extents;
    std::vector<std::byte> whole(pieces * page);
    stamp(whole.data(), lba, blocks, 99);
    for (std::size_t i = 0; i < pieces; ++i) {
        const std::size_t at = (pieces - 1 - i) * page;
        std::memcpy(memory.data() + at, whole.data() + i * page, page);
        const auto resolved = memory.registration.resolve(ByteCount{at}, ByteCount{page});
        ASSERT_TRUE(resolved);
        ASSERT_EQ(resolved.extent.length, ByteCount{page});
        extents.push_back(resolved.extent);
    }
    ASSERT_EQ(code(finish_one(queue, queue.transfer(nvme::IoOpcode::write, format, lba, blocks, extents, 1))), 0);
    const Memory back = make_memory(pieces * page);
    ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, blocks, back.data(), 2))), 0);
    EXPECT_EQ(check(back.data(), lba, blocks, 99), "");
}

// Pieces that PRPs cannot describe: odd lengths, and meeting anywhere in a page. An SGL does, where there is one.
TEST_F(Data, PiecesOfOddLengths) {
    auto queue = make_queue(4);
    const std::size_t unit = controller->info().sgl() == nvme::SglSupport::bytes ? 1 : 4;
    const auto blocks = static_cast<std::uint32_t>(std::min<std::size_t>(max_bytes(queue), 128 * kib) / block_size());
    const std::size_t bytes = blocks * block_size();
    const Memory memory = make_memory(2 * bytes);
    const Lba lba = scratch(2, blocks);
    std::vector<std::byte> whole(bytes);
    stamp(whole.data(), lba, blocks, 123);
    std::memset(memory.data(), std::to_integer<int>(poison), 2 * bytes);
    // Pieces of 37, 74, 111, ... units, a piece of the same length left out after each.
    std::vector<iommu::Extent> extents;
    std::size_t done = 0;
    std::size_t at = 0;
    for (std::size_t i = 1; done < bytes; i = i % 60 + 1) {
        const std::size_t length = std::min(i * 37 * unit, bytes - done);
        std::memcpy(memory.data() + at, whole.data() + done, length);
        for (std::size_t part = 0; part < length;) { // where the memory is not contiguous, a piece is several extents
            const auto resolved = memory.registration.resolve(ByteCount{at + part}, ByteCount{length - part});
            ASSERT_TRUE(resolved);
            extents.push_back(resolved.extent);
            part += resolved.extent.length.value();
        }
        done += length;
        at += 2 * length;
    }
    const auto submitted = queue.transfer(nvme::IoOpcode::write, format, lba, blocks, extents, 1);
    if (!controller->info().has_sgl()) {
        EXPECT_EQ(submitted.refusal(), Refusal::segment_misaligned);
        EXPECT_EQ(queue.read(format, lba, 1, memory.data() + 2, 1).refusal(), Refusal::misaligned);
        return;
    }
    ASSERT_TRUE(submitted) << submitted.error("write", "pieces").message();
    ASSERT_EQ(code(finish_one(queue, submitted)), 0);
    const Memory back = make_memory(bytes + 4096);
    ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, blocks, back.data() + 3 * unit, 2))), 0);
    EXPECT_EQ(check(back.data() + 3 * unit, lba, blocks, 123), "");
    // And back into the pieces: nothing between them is touched.
    std::memset(memory.data(), std::to_integer<int>(poison), 2 * bytes);
    ASSERT_EQ(code(finish_one(queue, queue.transfer(nvme::IoOpcode::read, format, lba, blocks, extents, 3))), 0);
    done = at = 0;
    for (std::size_t i = 1; done < bytes; i = i % 60 + 1) {
        const std::size_t length = std::min(i * 37 * unit, bytes - done);
        ASSERT_EQ(std::memcmp(memory.data() + at, whole.data() + done, length), 0) << "piece at " << at;
        ASSERT_TRUE(all(memory.bytes(at + length, length), poison)) << "behind the piece at " << at;
        done += length;
        at += 2 * length;
    }
}

TEST_F(Data, OutsideOfTheNamespace) {
    auto queue = make_queue();
    const Memory memory = make_memory(2 * block_size());
    const std::uint64_t end = space.size_blocks;
    EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{end - 1}, 1, memory.data(), 1))), 0x000);
    EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{end}, 1, memory.data(), 1))), 0x080);
    EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{end - 1}, 2, memory.data(), 1))), 0x080);
    EXPECT_EQ(code(finish_one(queue, queue.write(format, Lba{end}, 1, memory.data(), 1))), 0x080);
    EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{~std::uint64_t{0}}, 1, memory.data(), 1))), 0x080);
    nvme::BlockFormat other = format;
    other.nsid = Nsid{0xfffffff0};
    EXPECT_EQ(code(finish_one(queue, queue.read(other, Lba{0}, 1, memory.data(), 1))), 0x00b);
    EXPECT_EQ(code(finish_one(queue, queue.read(format, Lba{0}, 1, memory.data(), 1))), 0x000);
}

TEST_F(Data, UnknownOpcode) {
    auto queue = make_queue();
    nvme::Command command;
    command.opcode = 0x70;
    command.nsid = format.nsid.value();
    EXPECT_EQ(code(finish_one(queue, queue.submit(command, 1))), 0x001);
}

TEST_F(Data, FlushAndWriteZeroes) {
    auto queue = make_queue();
    const Memory memory = make_memory(16 * block_size());
    const Lba lba = scratch(0, 16);
    stamp(memory.data(), lba, 16, 5);
    ASSERT_EQ(code(finish_one(queue, queue.write(format, lba, 16, memory.data(), 1))), 0);
    EXPECT_EQ(code(finish_one(queue, queue.flush(format.nsid, 2))), 0);
    ASSERT_TRUE(controller->info().has_write_zeroes());
    ASSERT_EQ(code(finish_one(queue, queue.write_zeroes(format, Lba{lba.value() + 4}, 8, 3))), 0);
    std::memset(memory.data(), 0xee, 16 * block_size());
    ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, 16, memory.data(), 4))), 0);
    EXPECT_EQ(check(memory.data(), lba, 4, 5), "");
    EXPECT_TRUE(all(memory.bytes(4 * block_size(), 8 * block_size()), std::byte{0}));
    EXPECT_EQ(check(memory.data() + 12 * block_size(), Lba{lba.value() + 12}, 4, 5), "");
}

// What was deallocated reads as before or as zeroes; its neighbours read as before.
TEST_F(Data, DatasetManagement) {
    ASSERT_TRUE(controller->info().has_dataset_management());
    auto queue = make_queue();
    const std::size_t per_page = std::max<std::size_t>(1, 4096 / block_size());
    const auto blocks = static_cast<std::uint32_t>(3 * per_page);
    const Memory memory = make_memory(blocks * block_size());
    const Lba lba = scratch(0, blocks);
    stamp(memory.data(), lba, blocks, 6);
    ASSERT_EQ(code(finish_one(queue, queue.write(format, lba, blocks, memory.data(), 1))), 0);
    const Memory ranges = make_memory(4096);
    const std::uint32_t count = static_cast<std::uint32_t>(per_page);
    const std::uint64_t first = lba.value() + per_page;
    std::memcpy(ranges.data() + 4, &count, 4);
    std::memcpy(ranges.data() + 8, &first, 8);
    nvme::Command command;
    command.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::dataset_management);
    command.nsid = format.nsid.value();
    command.cdw10 = 0; // one range
    command.cdw11 = 4; // deallocate
    const auto extent = ranges.registration.resolve(ByteCount{0}, ByteCount{16}).extent;
    ASSERT_EQ(code(finish_one(queue, queue.submit(command, std::span{&extent, 1}, ByteCount{16}, 2))), 0);
    std::memset(memory.data(), 0xee, blocks * block_size());
    ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, blocks, memory.data(), 3))), 0);
    EXPECT_EQ(check(memory.data(), lba, per_page, 6), "");
    EXPECT_EQ(check(memory.data() + 2 * per_page * block_size(), Lba{lba.value() + 2 * per_page}, per_page, 6), "");
    const auto middle = memory.bytes(per_page * block_size(), per_page * block_size());
    EXPECT_TRUE(all(middle, std::byte{0}) || check(middle.data(), Lba{first}, per_page, 6).empty());
}

TEST_F(Data, SurvivesResetAndReopening) {
    const Lba lba = scratch(3, 2);
    {
        auto queue = make_queue();
        const Memory memory = make_memory(2 * block_size());
        stamp(memory.data(), lba, 2, 77);
        ASSERT_EQ(code(finish_one(queue, queue.write(format, lba, 2, memory.data(), 1))), 0);
        ASSERT_EQ(code(finish_one(queue, queue.flush(format.nsid, 1))), 0);
    }
    for (const bool reopen : {false, true}) {
        if (reopen) {
            open_controller();
        } else {
            ASSERT_TRUE(controller->reset());
        }
        ASSERT_TRUE(controller);
        auto queue = make_queue();
        const Memory memory = make_memory(2 * block_size());
        ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, 2, memory.data(), 1))), 0);
        EXPECT_EQ(check(memory.data(), lba, 2, 77), "");
    }
}

// ---- an independent witness: the medium of the simulator, or the host that owns a virtual machine's disk image.
// Reading back one's own writes proves nothing: a driver that swaps blocks both ways passes.

TEST_F(Data, ReadsWhatTheWitnessWrote) {
    BlockRange range{11, 300, 4711};
    if (sim::Controller* const simulated = Device::instance().simulated(); simulated != nullptr) {
        std::vector<std::byte> medium(range.count * block_size());
        stamp(medium.data(), Lba{range.first}, range.count, range.seed);
        ASSERT_TRUE(simulated->write_medium(format.nsid, Lba{range.first}, medium));
    } else if (Device::instance().witness_read()) {
        range = *Device::instance().witness_read();
    } else {
        GTEST_SKIP() << "no witness: UPCIE_TEST_WITNESS_READ=SEED:FIRST:COUNT names blocks that hold stamps";
    }
    auto queue = make_queue();
    const std::uint64_t step =
        std::max<std::uint64_t>(1, std::min<std::size_t>(max_bytes(queue), 128 * kib) / block_size());
    const Memory memory = make_memory(step * block_size());
    for (std::uint64_t done = 0; done < range.count; done += step) {
        const std::uint64_t here = std::min(step, range.count - done);
        const Lba lba{range.first + done};
        std::memset(memory.data(), 0xee, here * block_size());
        ASSERT_EQ(code(finish_one(queue, queue.read(format, lba, static_cast<std::uint32_t>(here), memory.data(), 1))),
                  0);
        ASSERT_EQ(check(memory.data(), lba, here, range.seed), "");
    }
}

TEST_F(Data, WritesWhatTheWitnessReads) {
    BlockRange range{21, 300, 815};
    sim::Controller* const simulated = Device::instance().simulated();
    if (simulated == nullptr) {
        if (!Device::instance().witness_write()) {
            GTEST_SKIP() << "no witness: UPCIE_TEST_WITNESS_WRITE=SEED:FIRST:COUNT names blocks to write stamps into";
        }
        range = *Device::instance().witness_write();
    }
    auto queue = make_queue();
    const std::uint64_t step =
        std::max<std::uint64_t>(1, std::min<std::size_t>(max_bytes(queue), 128 * kib) / block_size());
    const Memory memory = make_memory(step * block_size());
    for (std::uint64_t done = 0; done < range.count; done += step) {
        const std::uint64_t here = std::min(step, range.count - done);
        const Lba lba{range.first + done};
        stamp(memory.data(), lba, here, range.seed);
        ASSERT_EQ(code(finish_one(queue, queue.write(format, lba, static_cast<std::uint32_t>(here), memory.data(), 1))),
                  0);
    }
    ASSERT_EQ(code(finish_one(queue, queue.flush(format.nsid, 2))), 0);
    if (simulated != nullptr) {
        std::vector<std::byte> medium(range.count * block_size());
        ASSERT_TRUE(simulated->read_medium(format.nsid, Lba{range.first}, medium));
        EXPECT_EQ(check(medium.data(), Lba{range.first}, range.count, range.seed), "");
    }
}

} // namespace
} // namespace upcie::conformance
