// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <support/mock_system.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>

namespace upcie::memory {
namespace {

using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Return;
using namespace upcie::literals;

/// An address space that maps what it is told it can.
class FakeSpace final : public iommu::AddressSpace {
  public:
    iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    std::string describe() const override { return "fake space"; }
    bool translating() const noexcept override { return true; }
    bool needs_hugepages() const noexcept override { return hugepages; }
    Result<std::vector<iommu::IovaRange>> iova_ranges() override { return std::vector<iommu::IovaRange>{}; }
    ByteCount granule() const noexcept override { return unit; }

    bool hugepages = false;
    ByteCount unit = 4_KiB;
    int file_error = 0;
    int memory_error = 0;
    std::vector<std::string> calls;

  protected:
    Result<Mapped> do_map_memory(void*, ByteCount length, iommu::Access) override {
        calls.emplace_back("memory");
        return memory_error != 0 ? Result<Mapped>{fail(memory_error, "map", "memory", {})} : two_runs(length);
    }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount length, iommu::Access) override {
        calls.emplace_back("file");
        return file_error != 0 ? Result<Mapped>{fail(file_error, "map", "file", {})} : two_runs(length);
    }
    Result<void> do_unmap(std::uint64_t, ByteCount) override {
        calls.emplace_back("unmap");
        return {};
    }

  private:
    static Result<Mapped> two_runs(ByteCount length) {
        Mapped mapped;
        mapped.extents = {{DmaAddress{0x100000}, 4_KiB}};
        if (length > 4_KiB) {
            mapped.extents.push_back({DmaAddress{0}, length - 4_KiB});
        }
        return mapped;
    }
};

TEST(Buffer, IsZeroedRoundedAndBackedByASealedFile) {
    os::System& system = os::real_system();
    auto buffer = Buffer::allocate(system, 5000_B);
    ASSERT_TRUE(buffer) << buffer.error().message();
    EXPECT_EQ(buffer->size(), 8_KiB);
    EXPECT_EQ(buffer->bytes().size(), 8192U);
    EXPECT_TRUE(
        std::all_of(buffer->bytes().begin(), buffer->bytes().end(), [](std::byte b) { return b == std::byte{}; }));
    buffer->data()[8191] = std::byte{7};
    std::byte last{};
    EXPECT_EQ(system.pread(buffer->fd(), &last, 1, 8191), 1);
    EXPECT_EQ(last, std::byte{7});
    EXPECT_EQ(system.ftruncate(buffer->fd(), 4096), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(system.fcntl(buffer->fd(), F_GETFD, 0), FD_CLOEXEC);
    EXPECT_EQ(buffer->backing(), Backing::plain);
}

TEST(Buffer, RefusesNothingAndMoreThanAFileHolds) {
    MockSystem system;
    EXPECT_CALL(system, memfd_create(_, _)).Times(0);
    for (const std::uint64_t bytes : {0ULL, 1ULL << 63, ~0ULL, (1ULL << 63) - 1}) {
        EXPECT_TRUE(Buffer::allocate(system, ByteCount{bytes}).error().is(EINVAL)) << bytes;
        EXPECT_TRUE(Buffer::allocate(system, ByteCount{bytes}, Backing::hugepage_2m).error().is(EINVAL)) << bytes;
    }
}

TEST(Buffer, HugepagesAreAskedForAndRounded) {
    MockSystem system;
    static std::byte memory[1];
    EXPECT_CALL(system, memfd_create(_, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB))
        .WillOnce(Return(50));
    EXPECT_CALL(system, ftruncate(50, 4 << 20)).WillOnce(Return(0));
    EXPECT_CALL(system, fcntl(50, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)).WillOnce(Return(0));
    EXPECT_CALL(system, mmap(_, 4U << 20, PROT_READ | PROT_WRITE, MAP_SHARED, 50, 0)).WillOnce(Return(memory));
    EXPECT_CALL(system, munmap(memory, 4U << 20)).WillOnce(Return(0));
    EXPECT_CALL(system, close(50)).WillOnce(Return(0));
    const auto buffer = Buffer::allocate(system, 2_MiB + 1_B, Backing::hugepage_2m);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->size(), 4_MiB);
}

TEST(Buffer, WithoutHugepagesSaysHowManyAndHowToReserve) {
    MockSystem system;
    EXPECT_CALL(system, memfd_create(_, _)).WillOnce(Return(50));
    EXPECT_CALL(system, ftruncate(50, _)).WillOnce(Return(0));
    EXPECT_CALL(system, fcntl(50, _, _)).WillOnce(Return(0));
    EXPECT_CALL(system, mmap(_, _, _, _, _, _))
        .WillOnce(testing::SetErrnoAndReturn(ENOMEM, reinterpret_cast<void*>(~std::uintptr_t{0})));
    EXPECT_CALL(system, close(50)).WillOnce(Return(0));
    const auto buffer = Buffer::allocate(system, 6_MiB, Backing::hugepage_2m);
    ASSERT_FALSE(buffer);
    EXPECT_TRUE(buffer.error().is(ENOMEM));
    EXPECT_THAT(buffer.error().hint, HasSubstr("3 hugepages"));
    EXPECT_THAT(buffer.error().hint, HasSubstr("nr_hugepages"));
}

TEST(Buffer, EachStepsFailureIsNamedAndClosesTheFile) {
    struct Step {
        int code;
        const char* words;
    };
    for (const auto& [code, words] : {Step{ENOSYS, "3.17"}, Step{EMFILE, "ulimit -n"}, Step{ENFILE, "fs.file-max"},
                                      Step{EINVAL, "refused"}, Step{ENOMEM, "memory.max"}}) {
        MockSystem system;
        EXPECT_CALL(system, memfd_create(_, _)).WillOnce(fails_with(code));
        const auto buffer = Buffer::allocate(system, 4_KiB);
        ASSERT_FALSE(buffer);
        EXPECT_TRUE(buffer.error().is(code));
        EXPECT_THAT(buffer.error().hint, HasSubstr(words));
    }
    {
        MockSystem system;
        EXPECT_CALL(system, memfd_create(_, _)).WillOnce(fails_with(ENODEV));
        EXPECT_THAT(Buffer::allocate(system, 4_KiB, Backing::hugepage_2m).error().hint, HasSubstr("CONFIG_HUGETLBFS"));
    }
    MockSystem system;
    EXPECT_CALL(system, memfd_create(_, _)).WillRepeatedly(Return(50));
    EXPECT_CALL(system, close(50)).Times(2).WillRepeatedly(Return(0));
    EXPECT_CALL(system, ftruncate(50, _)).WillOnce(fails_with(EFBIG)).WillOnce(Return(0));
    EXPECT_CALL(system, fcntl(50, _, _)).WillOnce(fails_with(EPERM));
    EXPECT_THAT(Buffer::allocate(system, 4_KiB).error().hint, HasSubstr("RLIMIT_FSIZE"));
    EXPECT_EQ(Buffer::allocate(system, 4_KiB).error().operation, "F_ADD_SEALS");
}

class DmaBufferTest : public testing::Test {
  protected:
    os::System& system_ = os::real_system();
    std::shared_ptr<FakeSpace> space_ = std::make_shared<FakeSpace>();
};

TEST_F(DmaBufferTest, MapsByFileAndTranslatesEveryOffset) {
    auto buffer = DmaBuffer::allocate(system_, space_, 12_KiB);
    ASSERT_TRUE(buffer) << buffer.error().message();
    EXPECT_TRUE(buffer->mapped_by_file());
    EXPECT_THAT(space_->calls, ElementsAre("file"));
    EXPECT_EQ(*buffer->at(0_B), (iommu::Extent{DmaAddress{0x100000}, 4_KiB}));
    EXPECT_EQ(*buffer->at(4095_B), (iommu::Extent{DmaAddress{0x100fff}, 1_B}));
    EXPECT_EQ(*buffer->at(4_KiB), (iommu::Extent{DmaAddress{0}, 8_KiB})); // address 0 is an answer
    EXPECT_EQ(*buffer->at(12287_B), (iommu::Extent{DmaAddress{8191}, 1_B}));
    EXPECT_TRUE(buffer->at(12_KiB).error().is(EINVAL));
    EXPECT_TRUE(buffer->at(ByteCount{~0ULL}).error().is(EINVAL));
}

TEST_F(DmaBufferTest, MapsByAddressWhereFilesCannotBeMapped) {
    for (const int code : {EOPNOTSUPP, ENOTTY}) {
        space_->calls.clear();
        space_->file_error = code;
        const auto buffer = DmaBuffer::allocate(system_, space_, 4_KiB);
        ASSERT_TRUE(buffer);
        EXPECT_FALSE(buffer->mapped_by_file());
        EXPECT_THAT(space_->calls, ElementsAre("file", "memory"));
    }
}

// The same of a registry: `upcie verify` over a type1 container failed by it.
TEST_F(DmaBufferTest, RegistersByAddressWhereFilesCannotBeMapped) {
    const auto registry = Registry::create(system_, space_).value();
    const auto buffer = Buffer::allocate(system_, 4_KiB).value();
    for (const int code : {0, EOPNOTSUPP, ENOTTY}) {
        space_->calls.clear();
        space_->file_error = code;
        const auto registered = registry->register_buffer(buffer);
        ASSERT_TRUE(registered) << registered.error().message();
        EXPECT_EQ(registered->resolve(0_B, 512_B).extent.address, DmaAddress{0x100000});
        EXPECT_EQ(space_->calls.size(), code == 0 ? 1U : 2U);
    }
    space_->file_error = ENOMEM;
    EXPECT_TRUE(registry->register_buffer(buffer).error().is(ENOMEM));
}

TEST_F(DmaBufferTest, OtherFailuresAreNotPaperedOver) {
    space_->file_error = ENOMEM;
    EXPECT_TRUE(DmaBuffer::allocate(system_, space_, 4_KiB).error().is(ENOMEM));
    EXPECT_THAT(space_->calls, ElementsAre("file"));
    space_->file_error = EOPNOTSUPP;
    space_->memory_error = EFAULT;
    EXPECT_TRUE(DmaBuffer::allocate(system_, space_, 4_KiB).error().is(EFAULT));
}

TEST_F(DmaBufferTest, FillsTheGranule) {
    space_->unit = 64_KiB;
    EXPECT_EQ(DmaBuffer::allocate(system_, space_, 4_KiB)->size(), 64_KiB);
    EXPECT_TRUE(DmaBuffer::allocate(system_, space_, 0_B).error().is(EINVAL));
    EXPECT_TRUE(DmaBuffer::allocate(system_, nullptr, 4_KiB).error().is(EINVAL));
}

TEST_F(DmaBufferTest, TakesHugepagesWhereTheSpaceNeedsThem) {
    space_->hugepages = true;
    MockSystem system;
    EXPECT_CALL(system, memfd_create(_, testing::Truly([](unsigned flags) { return (flags & MFD_HUGETLB) != 0; })))
        .WillOnce(fails_with(ENOMEM));
    EXPECT_TRUE(DmaBuffer::allocate(system, space_, 4_KiB).error().is(ENOMEM));
}

TEST_F(DmaBufferTest, ABufferThatCouldNotBeMappedIsKept) {
    auto buffer = *Buffer::allocate(system_, 4_KiB);
    space_->file_error = EBADF;
    EXPECT_FALSE(DmaBuffer::map(std::move(buffer), space_));
    EXPECT_TRUE(static_cast<bool>(buffer)); // NOLINT: kept by contract
    space_->file_error = 0;
    EXPECT_TRUE(DmaBuffer::map(std::move(buffer), space_));
    EXPECT_FALSE(static_cast<bool>(buffer)); // NOLINT: taken by contract
    EXPECT_TRUE(DmaBuffer::map(Buffer{}, space_).error().is(EINVAL));
}

TEST_F(DmaBufferTest, TheDevicesWayGoesBeforeTheMemory) {
    MockSystem system;
    bool unmapped_first = true;
    ON_CALL(system, munmap(_, _)).WillByDefault([&](void* address, std::size_t length) {
        unmapped_first = unmapped_first && !space_->calls.empty() && space_->calls.back() == "unmap";
        return os::real_system().munmap(address, length);
    });
    {
        auto one = *DmaBuffer::allocate(system, space_, 4_KiB);
        auto two = *DmaBuffer::allocate(system, space_, 4_KiB);
        two = std::move(one);
        EXPECT_EQ(two.size(), 4_KiB);
        EXPECT_EQ(std::count(space_->calls.begin(), space_->calls.end(), "unmap"), 1);
    }
    EXPECT_EQ(std::count(space_->calls.begin(), space_->calls.end(), "unmap"), 2);
    EXPECT_TRUE(unmapped_first);
}

} // namespace
} // namespace upcie::memory
