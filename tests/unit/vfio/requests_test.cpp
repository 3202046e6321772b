// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/requests.hpp>

#include <array>
#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/mock_system.hpp>
#include <uapi/vfio.hpp>

namespace upcie::vfio {
namespace {

using testing::_;
using testing::HasSubstr;

constexpr int device_number = 42;

/// A kernel that answers VFIO_DEVICE_GET_REGION_INFO with bytes that the test chooses.
class RegionInfo : public testing::Test {
  protected:
    RegionInfo() {
        head_.flags =
            uapi::vfio_region_info_flag_read | uapi::vfio_region_info_flag_write | uapi::vfio_region_info_flag_mmap;
        head_.size = 0x4000;
        head_.offset = 0;
        ON_CALL(system_, ioctl(device_number, uapi::vfio_device_get_region_info, _))
            .WillByDefault([this](int, unsigned long, void* argument) {
                uapi::VfioRegionInfo asked{};
                std::memcpy(&asked, argument, sizeof(asked));
                ++calls_;
                uapi::VfioRegionInfo answer = head_;
                answer.index = asked.index;
                answer.argsz =
                    static_cast<std::uint32_t>(claimed_size_ ? claimed_size_ : sizeof(answer) + tail_.size());
                const bool fits = asked.argsz >= sizeof(answer) + tail_.size();
                answer.cap_offset = fits ? head_.cap_offset : 0; // as the kernel does it
                std::memcpy(argument, &answer, sizeof(answer));
                if (fits && !tail_.empty()) {
                    std::memcpy(static_cast<std::byte*>(argument) + sizeof(answer), tail_.data(), tail_.size());
                }
                return 0;
            });
    }

    /// Appends a part of the answer behind the fixed structure and says where it begins.
    template <class T>
    std::uint32_t append(const T& part) {
        const std::size_t begin = tail_.size();
        tail_.resize(begin + sizeof(part));
        std::memcpy(tail_.data() + begin, &part, sizeof(part));
        return static_cast<std::uint32_t>(sizeof(uapi::VfioRegionInfo) + begin);
    }
    void with_sparse(std::uint32_t claimed, const std::vector<uapi::VfioRegionSparseMmapArea>& areas,
                     std::uint32_t next = 0) {
        head_.flags |= uapi::vfio_region_info_flag_caps;
        uapi::VfioRegionInfoCapSparseMmap capability{};
        capability.header = {uapi::vfio_region_info_cap_sparse_mmap, 1, next};
        capability.nr_areas = claimed;
        head_.cap_offset = append(capability);
        for (const auto& area : areas) {
            append(area);
        }
    }
    Result<Region> ask() { return get_region(system_, device_number, 0, "0000:01:00.0"); }
    void expect_malformed() {
        const auto region = ask();
        ASSERT_FALSE(region);
        EXPECT_TRUE(region.error().is(EPROTO)) << region.error().message();
    }

    test::MockSystem system_;
    uapi::VfioRegionInfo head_{};
    std::vector<std::byte> tail_;
    std::uint32_t claimed_size_ = 0;
    int calls_ = 0;
};

TEST_F(RegionInfo, WithoutCapabilitiesTheWholeRegionIsMappable) {
    head_.offset = 0x10000000000;
    const auto region = ask();
    ASSERT_TRUE(region) << region.error().message();
    EXPECT_EQ(region->info.size, ByteCount{0x4000});
    EXPECT_EQ(region->file_offset, 0x10000000000U);
    EXPECT_TRUE(region->info.readable && region->info.writable);
    ASSERT_EQ(region->info.areas.size(), 1U);
    EXPECT_EQ(region->info.areas[0].size, ByteCount{0x4000});
}

TEST_F(RegionInfo, ARegionThatCannotBeMappedHasNoArea) {
    head_.flags = uapi::vfio_region_info_flag_read;
    EXPECT_TRUE(ask()->info.areas.empty());
    head_.flags = uapi::vfio_region_info_flag_mmap;
    head_.size = 0;
    EXPECT_TRUE(ask()->info.areas.empty());
}

TEST_F(RegionInfo, HonoursTheSparseAreasAndSortsThem) {
    with_sparse(3, {{0x3000, 0x1000}, {0, 0x2000}, {0x2000, 0}});
    const auto region = ask();
    ASSERT_TRUE(region) << region.error().message();
    ASSERT_EQ(region->info.areas.size(), 2U) << "an empty area is none";
    EXPECT_EQ(region->info.areas[0].offset, ByteCount{0});
    EXPECT_EQ(region->info.areas[0].size, ByteCount{0x2000});
    EXPECT_EQ(region->info.areas[1].offset, ByteCount{0x3000});
    EXPECT_EQ(calls_, 2) << "asked again with room for the capabilities";
}

TEST_F(RegionInfo, FindsTheSparseCapabilityBehindOthers) {
    const uapi::VfioInfoCapHeader last{3, 1, 0}; // MSI-X mappable
    const std::uint32_t last_at = append(last);
    with_sparse(1, {{0x1000, 0x1000}}, last_at);
    const uapi::VfioInfoCapHeader first{2, 1, head_.cap_offset};
    head_.cap_offset = append(first);
    const auto region = ask();
    ASSERT_TRUE(region) << region.error().message();
    ASSERT_EQ(region->info.areas.size(), 1U);
    EXPECT_EQ(region->info.areas[0].offset, ByteCount{0x1000});
}

TEST_F(RegionInfo, ASparseCapabilityOfNothingMeansNothing) {
    with_sparse(0, {});
    const auto region = ask();
    ASSERT_TRUE(region);
    EXPECT_TRUE(region->info.areas.empty());
}

TEST_F(RegionInfo, AChainInACircleEnds) {
    with_sparse(1, {{0, 0x1000}}, sizeof(uapi::VfioRegionInfo));
    expect_malformed();
}

TEST_F(RegionInfo, AChainThatLeavesTheBufferIsRefused) {
    with_sparse(1, {{0, 0x1000}}, 0x10000);
    expect_malformed();
}

TEST_F(RegionInfo, AHeaderCutByTheEndOfTheBufferIsRefused) {
    with_sparse(1, {{0, 0x1000}}, static_cast<std::uint32_t>(sizeof(uapi::VfioRegionInfo) + 28));
    expect_malformed();
}

TEST_F(RegionInfo, AChainIntoTheFixedPartIsRefused) {
    with_sparse(1, {{0, 0x1000}}, 8);
    expect_malformed();
}

TEST_F(RegionInfo, MoreAreasThanTheBufferHoldsAreRefused) {
    with_sparse(2, {{0, 0x1000}});
    expect_malformed();
    tail_.clear();
    with_sparse(0xffffffff, {{0, 0x1000}});
    expect_malformed();
}

TEST_F(RegionInfo, AnAreaOutsideItsRegionIsRefused) {
    for (const uapi::VfioRegionSparseMmapArea& area :
         {uapi::VfioRegionSparseMmapArea{0x3000, 0x2000}, uapi::VfioRegionSparseMmapArea{0x4000, 1},
          uapi::VfioRegionSparseMmapArea{0xfffffffffffff000, 0x2000}, uapi::VfioRegionSparseMmapArea{0, 0x4001}}) {
        tail_.clear();
        with_sparse(1, {area});
        expect_malformed();
    }
}

TEST_F(RegionInfo, AKernelThatAlwaysWantsMoreIsNotFollowedForEver) {
    claimed_size_ = 1U << 30;
    expect_malformed();
    EXPECT_LE(calls_, 4);
}

TEST_F(RegionInfo, BeforeTheBindTheHintSaysSo) {
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_get_region_info, _)).WillOnce(test::fails_with(EINVAL));
    const auto region = ask();
    ASSERT_FALSE(region);
    EXPECT_TRUE(region.error().is(EINVAL));
    EXPECT_THAT(region.error().message(), HasSubstr("BIND_IOMMUFD"));
    EXPECT_THAT(region.error().message(), HasSubstr("0000:01:00.0"));
}

class Requests : public testing::Test {
  protected:
    test::MockSystem system_;
};

TEST_F(Requests, InterruptsCarryTheEventfds) {
    const std::array fds{7, -1, 9};
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_set_irqs, _))
        .WillOnce([](int, unsigned long, void* argument) {
            uapi::VfioIrqSet set{};
            std::memcpy(&set, argument, sizeof(set));
            EXPECT_EQ(set.argsz, sizeof(set) + 12);
            EXPECT_EQ(set.flags, uapi::vfio_irq_set_data_eventfd | uapi::vfio_irq_set_action_trigger);
            EXPECT_EQ(set.index, uapi::vfio_pci_msix_irq_index);
            EXPECT_EQ(set.start, 0U);
            EXPECT_EQ(set.count, 3U);
            std::array<std::int32_t, 3> given{};
            std::memcpy(given.data(), static_cast<std::byte*>(argument) + sizeof(set), sizeof(given));
            EXPECT_THAT(given, testing::ElementsAre(7, -1, 9));
            return 0;
        });
    EXPECT_TRUE(set_interrupts(system_, device_number, InterruptKind::msix, fds, "x"));
}

TEST_F(Requests, APositiveAnswerToSetIrqsIsAFailure) {
    const std::array fds{7, 8, 9};
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_set_irqs, _)).WillOnce(testing::Return(2));
    const auto done = set_interrupts(system_, device_number, InterruptKind::msix, fds, "x");
    ASSERT_FALSE(done) << "the kernel enabled none and says how many it could";
    EXPECT_TRUE(done.error().is(ENOSPC));
    EXPECT_THAT(done.error().message(), HasSubstr("has 2"));
}

TEST_F(Requests, DisablingSendsNoData) {
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_set_irqs, _))
        .WillOnce([](int, unsigned long, void* argument) {
            const auto* set = static_cast<uapi::VfioIrqSet*>(argument);
            EXPECT_EQ(set->flags, uapi::vfio_irq_set_data_none | uapi::vfio_irq_set_action_trigger);
            EXPECT_EQ(set->count, 0U);
            return 0;
        });
    EXPECT_TRUE(clear_interrupts(system_, device_number, InterruptKind::msix, "x"));
}

TEST_F(Requests, HotResetInfoGrowsItsBuffer) {
    constexpr std::uint32_t count = 20;
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_get_pci_hot_reset_info, _))
        .Times(2)
        .WillRepeatedly([](int, unsigned long, void* argument) {
            auto* head = static_cast<uapi::VfioPciHotResetInfo*>(argument);
            const bool fits = head->argsz >= sizeof(*head) + count * sizeof(uapi::VfioPciDependentDevice);
            head->count = count;
            if (!fits) {
                errno = ENOSPC;
                return -1;
            }
            head->flags = uapi::vfio_pci_hot_reset_flag_dev_id;
            for (std::uint32_t i = 0; i < count; ++i) {
                const uapi::VfioPciDependentDevice entry{i == 1 ? uapi::vfio_pci_devid_not_owned : 0, 1, 2,
                                                         static_cast<std::uint8_t>(i)};
                std::memcpy(static_cast<std::byte*>(argument) + sizeof(*head) + i * sizeof(entry), &entry,
                            sizeof(entry));
            }
            return 0;
        });
    const auto info = get_hot_reset_info(system_, device_number, "x");
    ASSERT_TRUE(info) << info.error().message();
    ASSERT_EQ(info->affected.size(), count);
    EXPECT_EQ(info->affected[19].bdf, (pci::Bdf{1, 2, 2, 3}));
    EXPECT_TRUE(info->by_device_id);
    EXPECT_FALSE(info->all_owned);
    EXPECT_TRUE(info->affected[0].owned);
    EXPECT_FALSE(info->affected[1].owned);
}

TEST_F(Requests, HotResetInfoDoesNotBelieveALargerCountThanItsRoom) {
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_get_pci_hot_reset_info, _))
        .WillOnce([](int, unsigned long, void* argument) {
            static_cast<uapi::VfioPciHotResetInfo*>(argument)->count = 1000000;
            return 0;
        });
    const auto info = get_hot_reset_info(system_, device_number, "x");
    ASSERT_FALSE(info);
    EXPECT_TRUE(info.error().is(EPROTO));
}

TEST_F(Requests, HotResetThroughACdevSendsNoDescriptors) {
    EXPECT_CALL(system_, ioctl(device_number, uapi::vfio_device_pci_hot_reset, _))
        .WillOnce([](int, unsigned long, void* argument) {
            const auto* request = static_cast<uapi::VfioPciHotReset*>(argument);
            EXPECT_EQ(request->count, 0U);
            EXPECT_EQ(request->argsz, sizeof(*request));
            return 0;
        });
    EXPECT_TRUE(hot_reset(system_, device_number, {}, "x"));
}

} // namespace
} // namespace upcie::vfio
