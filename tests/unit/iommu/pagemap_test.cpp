// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <iommu/smaps.hpp>
#include <support/mock_system.hpp>
#include <upcie/iommu/pagemap.hpp>

namespace upcie::iommu {
namespace {

using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Return;
using testing::StrEq;
using namespace upcie::literals;

std::string area(std::uint64_t from, std::uint64_t to, const char* permissions, unsigned page_kib) {
    return fmt::format("{:x}-{:x} {} 00000000 00:0f 4711   /memfd:upcie (deleted)\nSize:     2048 kB\n"
                       "KernelPageSize:     {} kB\nMMUPageSize:        4 kB\nVmFlags: rd wr sh\n",
                       from, to, permissions, page_kib);
}

TEST(Smaps, FindsWhatARangeIsMadeOf) {
    const std::string text = area(0x1000, 0x3000, "rw-p", 4) + area(0x200000, 0x600000, "rw-s", 2048) +
                             area(0x600000, 0x800000, "rw-p", 2048) + area(0x900000, 0xa00000, "rw-s", 4);
    const auto look = [&](std::uint64_t start, std::uint64_t length) { return look_up_smaps(text, start, length); };
    EXPECT_TRUE(look(0x200000, 0x400000).mapped);
    EXPECT_TRUE(look(0x200000, 0x400000).shared);
    EXPECT_EQ(look(0x200000, 0x400000).smallest_page_kib, 2048U);
    EXPECT_TRUE(look(0x400000, 0x400000).mapped); // over two areas
    EXPECT_FALSE(look(0x400000, 0x400000).shared);
    EXPECT_FALSE(look(0x600000, 0x300001).mapped); // over a hole
    EXPECT_FALSE(look(0x800000, 0x1000).mapped);   // in a hole
    EXPECT_FALSE(look(0, 0x2000).mapped);          // begins before
    EXPECT_FALSE(look(0x900000, 0x100001).mapped); // ends after
    EXPECT_EQ(look(0x1000, 0x2000).smallest_page_kib, 4U);
    EXPECT_FALSE(look_up_smaps("", 0x1000, 1).mapped);
    EXPECT_FALSE(look_up_smaps("1000-2000 rw-s 0 0 0\nSize: 4 kB\n", 0x1000, 1).mapped); // no page size told
    EXPECT_FALSE(look_up_smaps("1000-2000 rw-s 0 0 0\nKernelPageSize: x kB\n", 0x1000, 1).mapped);
    EXPECT_FALSE(look_up_smaps("1000-2000 rw-s 0\n" + area(0x2000, 0x3000, "rw-s", 4), 0x1000, 0x2000).mapped);
}

class PagemapTest : public testing::Test {
  protected:
    static constexpr int pagemap = 400;
    static constexpr std::uint64_t present = 1ULL << 63;
    static constexpr std::uint64_t base = 0x7f0000000000;

    PagemapTest() {
        ON_CALL(system_, open(StrEq("/proc/self/pagemap"), _, _)).WillByDefault(Return(pagemap));
        ON_CALL(system_, close(pagemap)).WillByDefault(Return(0));
        ON_CALL(system_, open(StrEq("/proc/self/smaps"), _, _)).WillByDefault([this](const char*, int, mode_t) {
            const int file = os::real_system().memfd_create("smaps", MFD_CLOEXEC);
            EXPECT_EQ(os::real_system().pwrite(file, smaps_.data(), smaps_.size(), 0),
                      static_cast<ssize_t>(smaps_.size()));
            return file;
        });
        ON_CALL(system_, pread(pagemap, _, 8, _)).WillByDefault([this](int, void* data, std::size_t, off_t offset) {
            const auto address = static_cast<std::uint64_t>(offset) / 8 * 4096;
            std::uint64_t entry = other_pages_;
            if (address >= base && address < base + (64ULL << 20)) {
                const std::size_t index = (address - base) >> 21;
                entry = index < frames_.size() ? frames_[index] : 0;
            }
            std::memcpy(data, &entry, sizeof entry);
            return ssize_t{8};
        });
        ON_CALL(system_, mlock(_, _)).WillByDefault(Return(0));
    }
    std::shared_ptr<PagemapAddressSpace> create() { return *PagemapAddressSpace::create(system_); }
    static void* at(std::uint64_t offset) { return reinterpret_cast<void*>(base + offset); }

    MockSystem system_;
    std::string smaps_ = area(base, base + (8 << 20), "rw-s", 2048);
    std::uint64_t other_pages_ = present | 0x1234; ///< the entry of the stack's page, and of all others
    // Bits 55 and up are flags (soft dirty, exclusive): no part of the frame.
    std::vector<std::uint64_t> frames_{present | 0x200000, present | (3ULL << 55) | 0x200200, present | 0x80000,
                                       present | 0x7ffffffffffe00};
};

TEST_F(PagemapTest, AnswersPhysicalRunsMerged) {
    const auto space = create();
    EXPECT_EQ(space->kind(), AddressSpaceKind::hugepage_pagemap);
    EXPECT_TRUE(space->needs_hugepages());
    EXPECT_FALSE(space->translating());
    EXPECT_EQ(space->granule(), 2_MiB);
    EXPECT_TRUE(space->iova_ranges()->empty());
    EXPECT_CALL(system_, mlock(at(0), 8U << 20)).WillOnce(Return(0));
    auto mapping = space->map_memory(at(0), 8_MiB);
    ASSERT_TRUE(mapping) << mapping.error().message();
    EXPECT_THAT(mapping->extents(),
                ElementsAre(Extent{DmaAddress{0x200000000}, 4_MiB}, Extent{DmaAddress{0x80000000}, 2_MiB},
                            Extent{DmaAddress{0x7ffffffffffe00ULL << 12}, 2_MiB}));
    EXPECT_TRUE(mapping->unmap());
    EXPECT_TRUE(space->map_memory(at(0x1000), 2_MiB).error().is(EINVAL)); // not on a hugepage's start
}

TEST_F(PagemapTest, FrameNumber0MeansNoPermissionAndIsFoundAtOnce) {
    other_pages_ = present;
    const auto space = PagemapAddressSpace::create(system_);
    ASSERT_FALSE(space);
    EXPECT_TRUE(space.error().is(EPERM));
    EXPECT_THAT(space.error().hint, HasSubstr("CAP_SYS_ADMIN"));
}

TEST_F(PagemapTest, FrameNumber0IsNeverAnAddress) {
    const auto space = create();
    frames_[1] = present; // the capability was dropped since
    EXPECT_TRUE(space->map_memory(at(0), 4_MiB).error().is(EPERM));
}

TEST_F(PagemapTest, APageThatIsNotThereIsAnError) {
    const auto space = create();
    frames_[1] = 0x200200; // not present: what looks like a frame is swap's
    EXPECT_TRUE(space->map_memory(at(0), 4_MiB).error().is(EFAULT));
    frames_[1] = present | 0x200201; // a frame inside a hugepage
    EXPECT_TRUE(space->map_memory(at(0), 4_MiB).error().is(EPROTO));
}

TEST_F(PagemapTest, PlainPrivateAndMissingMemoryIsRefusedWithTheReason) {
    const auto space = create();
    EXPECT_CALL(system_, mlock(_, _)).Times(0);
    smaps_ = area(base, base + (8 << 20), "rw-s", 4);
    const auto plain = space->map_memory(at(0), 2_MiB);
    EXPECT_TRUE(plain.error().is(EOPNOTSUPP));
    EXPECT_THAT(plain.error().hint, HasSubstr("move"));
    smaps_ = area(base, base + (8 << 20), "rw-p", 2048);
    const auto copied = space->map_memory(at(0), 2_MiB);
    EXPECT_TRUE(copied.error().is(EOPNOTSUPP));
    EXPECT_THAT(copied.error().hint, HasSubstr("fork"));
    smaps_ = area(base, base + (2 << 20), "rw-s", 2048);
    EXPECT_TRUE(space->map_memory(at(0), 4_MiB).error().is(EFAULT));
}

TEST_F(PagemapTest, AFileStaysMappedAsLongAsItsMapping) {
    const auto space = create();
    EXPECT_CALL(system_, mmap(nullptr, 4U << 20, PROT_READ | PROT_WRITE, MAP_SHARED, 9, 2 << 20))
        .WillOnce(Return(at(0)));
    {
        const auto mapping = space->map_file(9, 2_MiB, 4_MiB);
        ASSERT_TRUE(mapping) << mapping.error().message();
        EXPECT_THAT(mapping->extents(), ElementsAre(Extent{DmaAddress{0x200000000}, 4_MiB}));
        EXPECT_CALL(system_, munmap(at(0), 4U << 20)).WillOnce(Return(0));
    }
    testing::Mock::VerifyAndClearExpectations(&system_);
    EXPECT_TRUE(space->map_file(9, ByteCount{1ULL << 63}, 2_MiB).error().is(EINVAL));
    smaps_ = area(base, base + (8 << 20), "rw-s", 4); // a file of ordinary pages is let go
    EXPECT_CALL(system_, mmap(_, _, _, _, 9, 0)).WillOnce(Return(at(0)));
    EXPECT_CALL(system_, munmap(at(0), 2U << 20)).WillOnce(Return(0));
    EXPECT_TRUE(space->map_file(9, 0_B, 2_MiB).error().is(EOPNOTSUPP));
}

TEST_F(PagemapTest, FailuresSayWhatToDo) {
    const auto space = create();
    EXPECT_CALL(system_, mlock(_, _)).WillOnce(fails_with(ENOMEM));
    const auto locked = space->map_memory(at(0), 2_MiB);
    EXPECT_THAT(locked.error().hint, HasSubstr("HugePages_Free"));
    EXPECT_THAT(locked.error().hint, HasSubstr("RLIMIT_MEMLOCK"));
    EXPECT_CALL(system_, mlock(_, _)).WillRepeatedly(Return(0));
    EXPECT_CALL(system_, pread(_, _, _, _)).WillOnce(fails_with(EPERM)).WillOnce(Return(4)).WillOnce(fails_with(EIO));
    EXPECT_THAT(space->map_memory(at(0), 2_MiB).error().hint, HasSubstr("CAP_SYS_ADMIN"));
    EXPECT_TRUE(space->map_memory(at(0), 2_MiB).error().is(EIO));
    EXPECT_TRUE(space->map_memory(at(0), 2_MiB).error().is(EIO));
    MockSystem without;
    EXPECT_CALL(without, open(_, _, _)).WillOnce(fails_with(ENOENT)).WillOnce(fails_with(EACCES));
    EXPECT_THAT(PagemapAddressSpace::create(without).error().hint, HasSubstr("CONFIG_PROC_PAGE_MONITOR"));
    EXPECT_THAT(PagemapAddressSpace::create(without).error().hint, HasSubstr("PR_SET_DUMPABLE"));
}

} // namespace
} // namespace upcie::iommu
