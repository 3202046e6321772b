// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_iommufd.hpp>
#include <upcie/iommu/iommufd.hpp>

namespace upcie::iommu {
namespace {

using test::FakeIommufd;
using test::MockSystem;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace upcie::literals;

class IoasTest : public testing::Test {
  protected:
    MockSystem system_;
    FakeIommufd kernel_{system_};
    std::shared_ptr<Iommufd> iommufd_ = *Iommufd::open(system_);
    alignas(4096) std::byte memory_[16384]{};
};

TEST_F(IoasTest, MapsAsOneRunAndUnmapsByItself) {
    auto space = *IoasAddressSpace::create(iommufd_);
    EXPECT_EQ(space->kind(), AddressSpaceKind::iommufd);
    EXPECT_TRUE(space->translating());
    EXPECT_FALSE(space->needs_hugepages());
    EXPECT_EQ(space->granule(), 4_KiB);
    EXPECT_EQ(space->iova_ranges()->size(), 2U);
    EXPECT_EQ(space->describe(), "IOAS 3 of /dev/iommu");
    {
        const auto memory = space->map_memory(memory_, 8_KiB);
        const auto file = space->map_file(9, 4_KiB, 4_KiB, Access::read);
        ASSERT_TRUE(memory && file);
        EXPECT_THAT(memory->extents(), ElementsAre(Extent{DmaAddress{0x100000}, 8_KiB}));
        EXPECT_THAT(file->extents(), ElementsAre(Extent{DmaAddress{0x103000}, 4_KiB}));
        EXPECT_EQ(kernel_.mappings.size(), 2U);
    }
    EXPECT_TRUE(kernel_.mappings.empty());
}

TEST_F(IoasTest, DestroysWhatItOwnsAfterItsMappings) {
    auto space = *IoasAddressSpace::create(iommufd_);
    auto mapping = *space->map_memory(memory_, 4_KiB);
    space.reset();
    EXPECT_EQ(kernel_.objects.size(), 1U); // the mapping holds it
    mapping = DmaMapping{};
    EXPECT_TRUE(kernel_.objects.empty());
    EXPECT_TRUE(kernel_.mappings.empty());
}

TEST_F(IoasTest, ABorrowedIoasStays) {
    const auto id = *iommufd_->allocate_ioas();
    { const auto space = *IoasAddressSpace::adopt(iommufd_, id); }
    EXPECT_EQ(kernel_.objects.count(id), 1U);
}

TEST_F(IoasTest, AGuessedIdIsRefused) {
    const auto space = IoasAddressSpace::adopt(iommufd_, 42);
    ASSERT_FALSE(space);
    EXPECT_TRUE(space.error().is(ENOENT));
    EXPECT_TRUE(NoIommuIoasAddressSpace::adopt(iommufd_, 42).error().is(ENOENT));
    EXPECT_TRUE(IoasAddressSpace::create(nullptr).error().is(EINVAL));
}

TEST_F(IoasTest, AnIoasIsNotLeftBehindWhenItsDescriptionFails) {
    kernel_.alignment = 0;
    EXPECT_TRUE(IoasAddressSpace::create(iommufd_).error().is(EPROTO));
    EXPECT_TRUE(kernel_.objects.empty());
}

TEST_F(IoasTest, AGranuleAboveThePageIsHonoured) {
    kernel_.alignment = 65536;
    const auto space = *IoasAddressSpace::create(iommufd_);
    EXPECT_EQ(space->granule(), 64_KiB);
    EXPECT_TRUE(space->map_memory(memory_, 4_KiB).error().is(EINVAL));
    kernel_.alignment = 1; // what no attached device demands is still a page for us
    EXPECT_EQ((*IoasAddressSpace::create(iommufd_))->granule(), 4_KiB);
}

TEST_F(IoasTest, AWindowKeepsToItselfAndGivesBack) {
    const auto id = *iommufd_->allocate_ioas();
    const IovaRange window{Iova{0xfedfe000}, Iova{0xfef00fff}}; // straddles the MSI window: three pages remain
    const auto space = *IoasAddressSpace::adopt(iommufd_, id, IoasOwnership::borrowed, window);
    {
        const auto first = space->map_memory(memory_, 8_KiB);
        const auto second = space->map_memory(memory_, 4_KiB);
        ASSERT_TRUE(first && second);
        EXPECT_THAT(first->extents(), ElementsAre(Extent{DmaAddress{0xfedfe000}, 8_KiB}));
        EXPECT_THAT(second->extents(), ElementsAre(Extent{DmaAddress{0xfef00000}, 4_KiB}));
        EXPECT_TRUE(space->map_memory(memory_, 4_KiB).error().is(ENOSPC));
    }
    kernel_.failures[uapi::iommu_ioas_map] = EFAULT; // a failed map gives its address back too
    EXPECT_TRUE(space->map_memory(memory_, 8_KiB).error().is(EFAULT));
    EXPECT_TRUE(space->map_memory(memory_, 8_KiB));
    const IovaRange outside{Iova{0xfee00000}, Iova{0xfeefffff}};
    EXPECT_TRUE(IoasAddressSpace::adopt(iommufd_, id, IoasOwnership::borrowed, outside).error().is(ENOSPC));
}

TEST_F(IoasTest, AnAddressThatCouldNotBeUnmappedIsNotHandedOutAgain) {
    const auto id = *iommufd_->allocate_ioas();
    const auto space =
        *IoasAddressSpace::adopt(iommufd_, id, IoasOwnership::borrowed, IovaRange{Iova{0x1000}, Iova{0x2fff}});
    auto mapping = *space->map_memory(memory_, 4_KiB);
    kernel_.failures[uapi::iommu_ioas_unmap] = EIO;
    EXPECT_TRUE(mapping.unmap().error().is(EIO));
    EXPECT_THAT(space->map_memory(memory_, 4_KiB)->extents(), ElementsAre(Extent{DmaAddress{0x2000}, 4_KiB}));
}

TEST_F(IoasTest, APartialUnmapIsAnError) {
    const auto space = *IoasAddressSpace::create(iommufd_);
    auto mapping = *space->map_memory(memory_, 8_KiB);
    kernel_.unmap_answer = 4096;
    EXPECT_TRUE(mapping.unmap().error().is(EIO));
}

class NoIommuTest : public IoasTest {};

TEST_F(NoIommuTest, AnswersThePhysicalRunsMerged) {
    const auto space = *NoIommuIoasAddressSpace::create(iommufd_);
    EXPECT_EQ(space->kind(), AddressSpaceKind::noiommu_ioas);
    EXPECT_FALSE(space->translating());
    EXPECT_TRUE(space->iova_ranges()->empty());
    kernel_.physical[0x100000] = {0x7000, 4096};
    kernel_.physical[0x101000] = {0x8000, 4096};
    kernel_.physical[0x102000] = {0x4000, 8192};
    {
        const auto mapping = space->map_file(9, 0_B, 16_KiB);
        ASSERT_TRUE(mapping) << mapping.error().message();
        EXPECT_THAT(mapping->extents(),
                    ElementsAre(Extent{DmaAddress{0x7000}, 8_KiB}, Extent{DmaAddress{0x4000}, 8_KiB}));
    }
    EXPECT_TRUE(kernel_.mappings.empty()); // by the IOVA, not by the physical address
}

TEST_F(NoIommuTest, WithoutGetPaNothingStaysPinned) {
    const auto space = *NoIommuIoasAddressSpace::create(iommufd_);
    const auto old_kernel = space->map_memory(memory_, 8_KiB);
    EXPECT_TRUE(old_kernel.error().is(ENOTTY));
    EXPECT_THAT(old_kernel.error().hint, HasSubstr("7.3"));
    EXPECT_TRUE(kernel_.mappings.empty());
    kernel_.next_iova = 0x100000;
    kernel_.physical[0x100000] = {0x7000, 4096}; // the second half has no answer
    EXPECT_TRUE(space->map_memory(memory_, 8_KiB).error().is(ENOENT));
    EXPECT_TRUE(kernel_.mappings.empty());
}

TEST_F(NoIommuTest, DestroysItsIoas) {
    { const auto space = *NoIommuIoasAddressSpace::create(iommufd_); }
    EXPECT_TRUE(kernel_.objects.empty());
}

} // namespace
} // namespace upcie::iommu
