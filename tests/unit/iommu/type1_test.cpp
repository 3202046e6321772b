// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iommu/type1_info.hpp>
#include <support/mock_system.hpp>
#include <uapi/vfio.hpp>
#include <upcie/iommu/type1.hpp>

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

/// Builds answers of VFIO_IOMMU_GET_INFO, well-formed or not.
class Answer {
  public:
    explicit Answer(std::uint64_t page_sizes = 0x40201000) {
        fixed_.flags = uapi::vfio_iommu_info_pgsizes | uapi::vfio_iommu_info_caps;
        fixed_.iova_pgsizes = page_sizes;
        bytes_.resize(sizeof fixed_);
    }
    template <class Capability>
    std::uint32_t add(Capability capability, std::uint16_t id) {
        capability.header.id = id;
        capability.header.version = 1;
        const auto offset = static_cast<std::uint32_t>(bytes_.size());
        if (last_ == 0) {
            fixed_.cap_offset = offset;
        } else {
            link(last_, offset);
        }
        last_ = offset;
        append(capability);
        return offset;
    }
    Answer& ranges(const std::vector<uapi::VfioIovaRange>& list) {
        uapi::VfioType1CapIovaRange capability{};
        capability.nr_iovas = static_cast<std::uint32_t>(list.size());
        add(capability, uapi::vfio_type1_cap_iova_range);
        for (const auto& range : list) {
            append(range);
        }
        return *this;
    }
    Answer& available(std::uint32_t number) {
        uapi::VfioType1CapDmaAvail capability{};
        capability.avail = number;
        add(capability, uapi::vfio_type1_cap_dma_avail);
        return *this;
    }
    void link(std::uint32_t from, std::uint32_t to) {
        std::memcpy(bytes_.data() + from + offsetof(uapi::VfioInfoCapHeader, next), &to, sizeof to);
    }
    template <class T>
    void append(const T& value) {
        const auto* const raw = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    }
    std::vector<std::byte> build() {
        fixed_.argsz = static_cast<std::uint32_t>(bytes_.size());
        std::memcpy(bytes_.data(), &fixed_, sizeof fixed_);
        return bytes_;
    }
    uapi::VfioIommuType1Info& fixed() { return fixed_; }

  private:
    uapi::VfioIommuType1Info fixed_{};
    std::vector<std::byte> bytes_;
    std::uint32_t last_ = 0;
};

TEST(Type1Info, ReadsTheChain) {
    const auto info =
        parse_type1_info(Answer{}.available(65535).ranges({{0, 0xfedfffff}, {0xfef00000, (1ULL << 39) - 1}}).build());
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->page_sizes, 0x40201000U);
    EXPECT_THAT(info->ranges,
                ElementsAre(IovaRange{Iova{0}, Iova{0xfedfffff}}, IovaRange{Iova{0xfef00000}, Iova{(1ULL << 39) - 1}}));
    EXPECT_EQ(info->available_mappings, 65535U);
}

TEST(Type1Info, SkipsWhatItDoesNotKnow) {
    Answer answer;
    answer.add(uapi::VfioType1CapDmaAvail{}, 2); // migration
    const auto info = parse_type1_info(answer.ranges({{0x1000, 0xffff}}).build());
    ASSERT_TRUE(info);
    EXPECT_FALSE(info->available_mappings.has_value());
}

TEST(Type1Info, NoApertureIsNoGuess) {
    Answer without;
    without.fixed().flags = uapi::vfio_iommu_info_pgsizes;
    EXPECT_TRUE(parse_type1_info(without.build()).error().is(EOPNOTSUPP));
    EXPECT_TRUE(parse_type1_info(Answer{}.available(1).build()).error().is(EOPNOTSUPP));
    auto old_kernel = without.build();
    old_kernel.resize(16); // before cap_offset was added
    EXPECT_TRUE(parse_type1_info(old_kernel).error().is(EOPNOTSUPP));
}

TEST(Type1Info, MalformedAnswersAreErrors) {
    const std::vector<uapi::VfioIovaRange> some{{0x1000, 0xffff}};
    const auto code = [](const std::vector<std::byte>& bytes) {
        const auto info = parse_type1_info(bytes);
        return info ? 0 : info.error().code;
    };
    EXPECT_EQ(code(Answer{}.ranges(some).build()), 0);
    EXPECT_EQ(code(std::vector<std::byte>(15)), EPROTO);
    EXPECT_EQ(code(Answer{0}.ranges(some).build()), EPROTO); // no page size
    {                                                        // a chain that turns back on itself
        Answer answer;
        answer.ranges(some).available(1);
        answer.link(24 + 32, 24);
        EXPECT_EQ(code(answer.build()), EPROTO);
    }
    { // a member pointing at itself
        Answer answer;
        answer.ranges(some);
        answer.link(24, 24);
        EXPECT_EQ(code(answer.build()), EPROTO);
    }
    for (const std::uint32_t next : {4U, 60U, 0xfffffff8U}) { // into the fixed part, past the end, far past it
        Answer answer;
        answer.ranges(some);
        answer.link(24, next);
        EXPECT_EQ(code(answer.build()), EPROTO) << next;
    }
    { // more ranges than the answer holds, also where the product overflows
        for (const std::uint32_t count : {2U, 0x10000000U, 0xffffffffU}) {
            auto bytes = Answer{}.ranges(some).build();
            std::memcpy(bytes.data() + 24 + offsetof(uapi::VfioType1CapIovaRange, nr_iovas), &count, sizeof count);
            EXPECT_EQ(code(bytes), EPROTO) << count;
        }
    }
    { // a member cut off at the end
        auto bytes = Answer{}.ranges(some).available(1).build();
        bytes.resize(bytes.size() - 1);
        EXPECT_EQ(code(bytes), EPROTO);
    }
}

/// A kernel's container with the manners of the real one where they matter.
class Type1Test : public testing::Test {
  protected:
    static constexpr int container = 300;
    static constexpr int group = 301;

    Type1Test() {
        ON_CALL(system_, open(StrEq("/dev/vfio/vfio"), _, _)).WillByDefault(Return(container));
        ON_CALL(system_, close(_)).WillByDefault(Return(0));
        ON_CALL(system_, ioctl_value(container, uapi::vfio_get_api_version, _)).WillByDefault(Return(0));
        ON_CALL(system_, ioctl_value(container, uapi::vfio_check_extension, uapi::vfio_type1v2_iommu))
            .WillByDefault(Return(1));
        ON_CALL(system_, ioctl_value(container, uapi::vfio_set_iommu, uapi::vfio_type1v2_iommu))
            .WillByDefault([this](int, unsigned long, unsigned long) {
                ++set_iommu_;
                return 0;
            });
        ON_CALL(system_, ioctl(_, uapi::vfio_group_set_container, _))
            .WillByDefault(
                [](int, unsigned long, void* argument) { return *static_cast<int*>(argument) == container ? 0 : -1; });
        ON_CALL(system_, ioctl(_, uapi::vfio_group_unset_container, _))
            .WillByDefault([this](int, unsigned long, void*) {
                ++unset_;
                mappings_.clear();
                return 0;
            });
        ON_CALL(system_, ioctl(container, uapi::vfio_iommu_get_info, _))
            .WillByDefault([this](int, unsigned long, void* argument) {
                auto* const head = static_cast<uapi::VfioIommuType1Info*>(argument);
                if (head->argsz >= info_.size()) {
                    std::memcpy(argument, info_.data(), info_.size());
                } else {
                    head->argsz = static_cast<std::uint32_t>(info_.size());
                }
                return 0;
            });
        ON_CALL(system_, ioctl(container, uapi::vfio_iommu_map_dma, _))
            .WillByDefault([this](int, unsigned long, void* argument) {
                last_map_ = *static_cast<uapi::VfioDmaMap*>(argument);
                mappings_[last_map_.iova] = last_map_.size;
                return 0;
            });
        ON_CALL(system_, ioctl(container, uapi::vfio_iommu_unmap_dma, _))
            .WillByDefault([this](int, unsigned long, void* argument) {
                auto& in = *static_cast<uapi::VfioDmaUnmap*>(argument);
                const auto found = mappings_.find(in.iova);
                in.size = found == mappings_.end() ? 0 : found->second; // unmapping nothing is a success to the kernel
                mappings_.erase(in.iova);
                return 0;
            });
    }
    std::shared_ptr<Type1Container> attached() {
        auto space = *Type1Container::open(system_);
        EXPECT_TRUE(space->attach_group(group));
        return space;
    }

    MockSystem system_;
    std::vector<std::byte> info_ =
        Answer{}.ranges({{0, 0xfedfffff}, {0xfef00000, (1ULL << 39) - 1}}).available(65535).build();
    std::map<std::uint64_t, std::uint64_t> mappings_;
    uapi::VfioDmaMap last_map_{};
    int set_iommu_ = 0;
    int unset_ = 0;
    alignas(4096) std::byte memory_[16384]{};
};

TEST_F(Type1Test, MappingBeforeAGroupIsExplainedAndNeverReachesTheKernel) {
    EXPECT_CALL(system_, ioctl(_, _, _)).Times(0);
    const auto space = *Type1Container::open(system_);
    const auto mapping = space->map_memory(memory_, 4_KiB);
    ASSERT_FALSE(mapping);
    EXPECT_TRUE(mapping.error().is(EINVAL));
    EXPECT_THAT(mapping.error().hint, HasSubstr("attach_group"));
    EXPECT_TRUE(space->info().error().is(EINVAL));
    EXPECT_TRUE(space->detach_group(group).error().is(EINVAL));
}

TEST_F(Type1Test, MapsInTheApertureAndUnmaps) {
    const auto space = attached();
    EXPECT_EQ(space->kind(), AddressSpaceKind::type1);
    EXPECT_EQ(space->granule(), 4_KiB);
    EXPECT_EQ(space->iova_ranges()->size(), 2U);
    EXPECT_EQ(space->info()->available_mappings, 65535U);
    {
        const auto mapping = space->map_memory(memory_, 8_KiB, Access::write);
        ASSERT_TRUE(mapping) << mapping.error().message();
        EXPECT_THAT(mapping->extents(), ElementsAre(Extent{DmaAddress{0x1000}, 8_KiB}));
        EXPECT_EQ(last_map_.flags, uapi::vfio_dma_map_flag_write);
        EXPECT_EQ(last_map_.argsz, sizeof last_map_);
        EXPECT_EQ(last_map_.vaddr, reinterpret_cast<std::uintptr_t>(&memory_[0]));
        EXPECT_EQ(mappings_.at(0x1000), 8192U);
    }
    EXPECT_TRUE(mappings_.empty());
    EXPECT_TRUE(space->map_memory(memory_, 4_KiB)); // the address came back
    EXPECT_EQ(last_map_.iova, 0x1000U);
    EXPECT_TRUE(space->map_file(9, 0_B, 4_KiB).error().is(EOPNOTSUPP));
}

TEST_F(Type1Test, UnmappingNothingIsENOENT) {
    const auto space = attached();
    auto mapping = *space->map_memory(memory_, 4_KiB);
    mappings_.clear();
    EXPECT_TRUE(mapping.unmap().error().is(ENOENT));
    auto partial = *space->map_memory(memory_, 8_KiB);
    mappings_.begin()->second = 4096;
    EXPECT_TRUE(partial.unmap().error().is(EIO));
}

TEST_F(Type1Test, TheIommuIsSetOnceAndASecondGroupNarrowsTheAperture) {
    const auto space = attached();
    const auto kept = space->map_memory(memory_, 4_KiB);
    info_ = Answer{0x10000}.ranges({{0, 0x2ffff}}).build();
    ASSERT_TRUE(space->attach_group(302).error().is(EINVAL)); // the live page does not fit granules of 64 KiB
    EXPECT_EQ(unset_, 1);
    mappings_[0x1000] = 4096; // the fake kernel forgot it with the group
    info_ = Answer{}.ranges({{0, 0x2fff}}).build();
    ASSERT_TRUE(space->attach_group(302));
    EXPECT_EQ(set_iommu_, 1);
    const auto second = space->map_memory(memory_, 4_KiB);
    EXPECT_THAT(second->extents(), ElementsAre(Extent{DmaAddress{0x2000}, 4_KiB}));
    EXPECT_TRUE(space->map_memory(memory_, 8_KiB).error().is(ENOSPC));
}

TEST_F(Type1Test, TheLastGroupTakesTheMappingsAlong) {
    const auto space = attached();
    auto old_mapping = *space->map_memory(memory_, 4_KiB);
    ASSERT_TRUE(space->detach_group(group));
    EXPECT_TRUE(space->map_memory(memory_, 4_KiB).error().is(EINVAL));
    ASSERT_TRUE(space->attach_group(group));
    EXPECT_EQ(set_iommu_, 2);
    const auto fresh = *space->map_memory(memory_, 4_KiB); // the same IOVA again
    EXPECT_TRUE(old_mapping.unmap());
    EXPECT_EQ(mappings_.count(0x1000), 1U); // and still there
}

TEST_F(Type1Test, AFailedMapGivesItsAddressBackUnlessItIsTaken) {
    const auto space = attached();
    EXPECT_CALL(system_, ioctl(_, _, _)).Times(testing::AnyNumber());
    EXPECT_CALL(system_, ioctl(container, uapi::vfio_iommu_map_dma, _))
        .WillOnce(fails_with(EINTR))
        .WillOnce(fails_with(EFAULT))
        .WillOnce(fails_with(EEXIST))
        .WillOnce(Return(0));
    EXPECT_TRUE(space->map_memory(memory_, 4_KiB).error().is(EFAULT));
    EXPECT_TRUE(space->map_memory(memory_, 4_KiB).error().is(EEXIST));
    EXPECT_THAT(space->map_memory(memory_, 4_KiB)->extents(), ElementsAre(Extent{DmaAddress{0x2000}, 4_KiB}));
}

TEST_F(Type1Test, AGrowingAnswerEndsInAnError) {
    auto space = *Type1Container::open(system_);
    EXPECT_CALL(system_, ioctl(_, _, _)).Times(testing::AnyNumber());
    EXPECT_CALL(system_, ioctl(container, uapi::vfio_iommu_get_info, _))
        .WillRepeatedly([](int, unsigned long, void* argument) {
            static_cast<uapi::VfioIommuType1Info*>(argument)->argsz += 8;
            return 0;
        });
    EXPECT_TRUE(space->attach_group(group).error().is(EAGAIN));
    EXPECT_CALL(system_, ioctl(container, uapi::vfio_iommu_get_info, _))
        .WillOnce([](int, unsigned long, void* argument) {
            static_cast<uapi::VfioIommuType1Info*>(argument)->argsz = 0x7fffffff;
            return 0;
        });
    EXPECT_TRUE(space->attach_group(group).error().is(EPROTO));
    EXPECT_EQ(unset_, 2);
}

TEST_F(Type1Test, OpenAsksForVersionAndExtension) {
    EXPECT_CALL(system_, ioctl_value(container, uapi::vfio_get_api_version, _)).WillOnce(Return(1));
    EXPECT_TRUE(Type1Container::open(system_).error().is(EPROTO));
    EXPECT_CALL(system_, ioctl_value(container, uapi::vfio_get_api_version, _)).WillRepeatedly(Return(0));
    EXPECT_CALL(system_, ioctl_value(container, uapi::vfio_check_extension, _)).WillOnce(Return(0));
    const auto without = Type1Container::open(system_);
    EXPECT_TRUE(without.error().is(EOPNOTSUPP));
    EXPECT_THAT(without.error().hint, HasSubstr("vfio_iommu_type1"));
}

struct Hint {
    const char* where;
    int code;
    const char* words;
};
class Type1Hint : public Type1Test, public testing::WithParamInterface<Hint> {};

TEST_P(Type1Hint, SaysWhatToDo) {
    const auto& [where, code, words] = GetParam();
    Error error;
    const std::string call = where;
    if (call == "open") {
        EXPECT_CALL(system_, open(_, _, _)).WillOnce(fails_with(code));
        error = Type1Container::open(system_).error();
    } else if (call == "map") {
        const auto space = attached();
        EXPECT_CALL(system_, ioctl(container, uapi::vfio_iommu_map_dma, _)).WillOnce(fails_with(code));
        error = space->map_memory(memory_, 4_KiB).error();
    } else if (call == "unset") {
        const auto space = attached();
        EXPECT_CALL(system_, ioctl(group, uapi::vfio_group_unset_container, _)).WillOnce(fails_with(code));
        error = space->detach_group(group).error();
    } else {
        const auto space = *Type1Container::open(system_);
        if (call == "container") {
            EXPECT_CALL(system_, ioctl(group, uapi::vfio_group_set_container, _)).WillOnce(fails_with(code));
        } else {
            EXPECT_CALL(system_, ioctl_value(container, uapi::vfio_set_iommu, _)).WillOnce(fails_with(code));
        }
        error = space->attach_group(group).error();
        EXPECT_EQ(unset_, call == "container" ? 0 : 1); // a half attached group is let go
    }
    EXPECT_TRUE(error.is(code)) << error.message();
    EXPECT_THAT(error.hint, HasSubstr(words));
}
INSTANTIATE_TEST_SUITE_P(
    All, Type1Hint,
    testing::Values(Hint{"open", ENOENT, "modprobe vfio"}, Hint{"open", EACCES, "0666"},
                    Hint{"open", ENODEV, "modprobe vfio"}, Hint{"container", EINVAL, "not viable"},
                    Hint{"container", EPERM, "CAP_SYS_RAWIO"}, Hint{"container", EBUSY, "in use"},
                    Hint{"container", ENOTTY, "not an open group"}, Hint{"iommu", EPERM, "allow_unsafe_interrupts"},
                    Hint{"iommu", ENODEV, "intel_iommu=on"}, Hint{"iommu", EINVAL, "no IOMMU behind it"},
                    Hint{"map", ENOMEM, "RLIMIT_MEMLOCK"}, Hint{"map", ENOMEM, "VmLck"}, Hint{"map", EEXIST, "already"},
                    Hint{"map", EFAULT, "not memory"}, Hint{"map", ENOSPC, "dma_entry_limit"},
                    Hint{"map", EINVAL, "aperture"}, Hint{"unset", EBUSY, "close it first"},
                    Hint{"unset", EINVAL, "not in this container"}));

} // namespace
} // namespace upcie::iommu
