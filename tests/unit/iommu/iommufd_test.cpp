// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/fake_iommufd.hpp>
#include <upcie/iommu/iommufd.hpp>

namespace upcie::iommu {
namespace {

using test::fails_with;
using test::FakeIommufd;
using test::MockSystem;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StrEq;
using namespace upcie::literals;

class IommufdTest : public testing::Test {
  protected:
    MockSystem system_;
    FakeIommufd kernel_{system_};
    std::shared_ptr<Iommufd> iommufd_ = *Iommufd::open(system_);
    alignas(4096) std::byte memory_[16384]{};
};

TEST_F(IommufdTest, OpensForReadingAndWritingAndClosesAtTheEnd) {
    EXPECT_CALL(system_, open(StrEq("/dev/iommu"), O_RDWR | O_CLOEXEC, _));
    EXPECT_CALL(system_, close(FakeIommufd::fd)).Times(2);
    ASSERT_TRUE(Iommufd::open(system_));
    iommufd_.reset();
}

struct OpenHint {
    int code;
    const char* words;
};
class IommufdOpen : public testing::TestWithParam<OpenHint> {};

TEST_P(IommufdOpen, SaysWhatToDo) {
    MockSystem system;
    EXPECT_CALL(system, open(_, _, _)).WillOnce(fails_with(GetParam().code));
    const auto opened = Iommufd::open(system);
    ASSERT_FALSE(opened);
    EXPECT_TRUE(opened.error().is(GetParam().code));
    EXPECT_EQ(opened.error().subject, "/dev/iommu");
    EXPECT_THAT(opened.error().hint, HasSubstr(GetParam().words));
}
INSTANTIATE_TEST_SUITE_P(All, IommufdOpen,
                         testing::Values(OpenHint{ENOENT, "CONFIG_IOMMUFD"}, OpenHint{EACCES, "udev"},
                                         OpenHint{EPERM, "udev"}, OpenHint{ENODEV, "modprobe iommufd"},
                                         OpenHint{EMFILE, "ulimit -n"}));

TEST_F(IommufdTest, AdoptsAPassedDescriptorAndRefusesNone) {
    EXPECT_EQ((*Iommufd::adopt(system_, os::Fd{system_, FakeIommufd::fd}))->fd(), FakeIommufd::fd);
    EXPECT_TRUE(Iommufd::adopt(system_, os::Fd{}).error().is(EBADF));
}

TEST_F(IommufdTest, IoasComeAndGo) {
    const auto id = iommufd_->allocate_ioas();
    ASSERT_TRUE(id);
    EXPECT_TRUE(iommufd_->destroy(*id));
    EXPECT_TRUE(iommufd_->destroy(*id).error().is(ENOENT));
    kernel_.failures[uapi::iommu_destroy] = EBUSY;
    EXPECT_THAT(iommufd_->destroy(1).error().hint, HasSubstr("attached"));
    kernel_.failures[uapi::iommu_ioas_alloc] = ENOTTY;
    EXPECT_THAT(iommufd_->allocate_ioas().error().hint, HasSubstr("/dev/iommu"));
}

TEST_F(IommufdTest, ReadsRangesOfAnyNumber) {
    const auto id = *iommufd_->allocate_ioas();
    EXPECT_THAT(iommufd_->iova_ranges(id)->ranges,
                ElementsAre(IovaRange{Iova{0}, Iova{0xfedfffff}}, IovaRange{Iova{0xfef00000}, Iova{(1ULL << 39) - 1}}));
    kernel_.ranges.clear();
    for (std::uint64_t i = 0; i < 100; ++i) { // more than the first guess: the kernel answers EMSGSIZE and the number
        kernel_.ranges.push_back({i << 20, (i << 20) + 0xffff});
    }
    const auto many = iommufd_->iova_ranges(id);
    ASSERT_TRUE(many) << many.error().message();
    EXPECT_EQ(many->ranges.size(), 100U);
    EXPECT_EQ(many->ranges[99].first, Iova{99ULL << 20});
    EXPECT_THAT(iommufd_->iova_ranges(77).error().hint, HasSubstr("made it"));
}

TEST_F(IommufdTest, EndlesslyChangingRangesEndInAnError) {
    const auto id = *iommufd_->allocate_ioas();
    EXPECT_CALL(system_, ioctl(FakeIommufd::fd, uapi::iommu_ioas_iova_ranges, _))
        .WillRepeatedly([](int, unsigned long, void* argument) {
            static_cast<uapi::IommuIoasIovaRanges*>(argument)->num_iovas += 1;
            errno = EMSGSIZE;
            return -1;
        });
    EXPECT_TRUE(iommufd_->iova_ranges(id).error().is(EAGAIN));
}

TEST_F(IommufdTest, AllowsIovas) {
    const auto id = *iommufd_->allocate_ioas();
    const std::vector<IovaRange> ranges{{Iova{0x1000}, Iova{0xffff}}};
    ASSERT_TRUE(iommufd_->allow_iovas(id, ranges));
    ASSERT_EQ(kernel_.allowed.size(), 1U);
    EXPECT_EQ(kernel_.allowed[0].start, 0x1000U);
    EXPECT_EQ(kernel_.allowed[0].last, 0xffffU);
    kernel_.failures[uapi::iommu_ioas_allow_iovas] = EADDRINUSE;
    EXPECT_THAT(iommufd_->allow_iovas(id, ranges).error().hint, HasSubstr("overlap"));
}

TEST_F(IommufdTest, MapsWhereTheKernelChoosesAndWhereTold) {
    const auto id = *iommufd_->allocate_ioas();
    EXPECT_EQ(*iommufd_->map(id, memory_, 8_KiB, Access::read), Iova{0x100000});
    EXPECT_EQ(kernel_.maps.back().flags, uapi::iommu_ioas_map_readable);
    EXPECT_EQ(kernel_.maps.back().user_va, reinterpret_cast<std::uintptr_t>(&memory_[0]));
    EXPECT_EQ(kernel_.maps.back().size, sizeof(uapi::IommuIoasMap));
    EXPECT_EQ(*iommufd_->map(id, memory_, 8_KiB, Access::write, Iova{0}), Iova{0}); // 0 is an address like any other
    EXPECT_EQ(kernel_.maps.back().flags, uapi::iommu_ioas_map_writeable | uapi::iommu_ioas_map_fixed_iova);
    const auto twice = iommufd_->map(id, memory_, 8_KiB, Access::read_write, Iova{0});
    EXPECT_TRUE(twice.error().is(EEXIST));
    EXPECT_THAT(twice.error().subject, HasSubstr("at IOVA 0x0"));
    EXPECT_EQ(*iommufd_->map_file(id, 9, 4_KiB, 8_KiB, Access::read_write), Iova{0x103000});
    EXPECT_EQ(kernel_.file_maps.back().fd, 9);
    EXPECT_EQ(kernel_.file_maps.back().start, 4096U);
    EXPECT_EQ(*iommufd_->unmap(id, Iova{0}, 8_KiB), 8_KiB);
    EXPECT_TRUE(iommufd_->unmap(id, Iova{0}, 8_KiB).error().is(ENOENT));
}

TEST_F(IommufdTest, UnmappingNothingIsNoSuccess) {
    const auto id = *iommufd_->allocate_ioas();
    ASSERT_TRUE(iommufd_->map(id, memory_, 8_KiB, Access::read, Iova{0x5000}));
    kernel_.unmap_answer = 0;
    EXPECT_TRUE(iommufd_->unmap(id, Iova{0x5000}, 8_KiB).error().is(ENOENT));
}

TEST_F(IommufdTest, InterruptedCallsAreRepeated) {
    const auto id = *iommufd_->allocate_ioas();
    kernel_.failures[uapi::iommu_ioas_map] = EINTR;
    EXPECT_TRUE(iommufd_->map(id, memory_, 8_KiB, Access::read));
}

struct MapHint {
    int code;
    bool by_file;
    const char* words;
};
class IommufdMap : public testing::TestWithParam<MapHint> {};

TEST_P(IommufdMap, SaysWhyAndWhatToDo) {
    MockSystem system;
    FakeIommufd kernel{system};
    ON_CALL(system, getrlimit(RLIMIT_MEMLOCK, _)).WillByDefault([](int, struct rlimit* limit) {
        limit->rlim_cur = 65536;
        return 0;
    });
    const auto iommufd = *Iommufd::open(system);
    const auto& [code, by_file, words] = GetParam();
    kernel.failures[by_file ? uapi::iommu_ioas_map_file : uapi::iommu_ioas_map] = code;
    const auto mapped =
        by_file ? iommufd->map_file(3, 9, 0_B, 8_KiB, Access::read) : iommufd->map(3, nullptr, 8_KiB, Access::read);
    ASSERT_FALSE(mapped);
    EXPECT_TRUE(mapped.error().is(code));
    EXPECT_THAT(mapped.error().hint, HasSubstr(words));
    EXPECT_THAT(mapped.error().subject, HasSubstr("IOAS 3"));
}
INSTANTIATE_TEST_SUITE_P(
    All, IommufdMap,
    testing::Values(MapHint{ENOMEM, false, "RLIMIT_MEMLOCK is 65536 bytes"}, MapHint{ENOMEM, true, "LimitMEMLOCK"},
                    MapHint{ENOMEM, true, "charges the user"}, MapHint{EFAULT, false, "BAR"},
                    MapHint{EINVAL, false, "MSI window"}, MapHint{EEXIST, false, "mapped at that IOVA already"},
                    MapHint{EADDRINUSE, true, "mapped at that IOVA already"}, MapHint{ENOSPC, false, "free stretch"},
                    MapHint{ENOENT, false, "very iommufd"}, MapHint{EOPNOTSUPP, true, "memfd"},
                    MapHint{EINVAL, true, "inside the file"}, MapHint{ENODEV, true, "revoked"},
                    MapHint{ENOTTY, true, "6.13"}, MapHint{EBADF, true, "not open"}));

TEST_F(IommufdTest, AnUnlimitedMemlockIsNotBlamed) {
    EXPECT_CALL(system_, getrlimit(RLIMIT_MEMLOCK, _)).WillOnce([](int, struct rlimit* limit) {
        limit->rlim_cur = RLIM_INFINITY;
        return 0;
    });
    kernel_.failures[uapi::iommu_ioas_map] = ENOMEM;
    EXPECT_THAT(iommufd_->map(3, memory_, 4_KiB, Access::read).error().hint, HasSubstr("out of memory"));
}

TEST_F(IommufdTest, RlimitModeIsSetAndRead) {
    EXPECT_EQ(*iommufd_->rlimit_mode(), RlimitMode::per_user);
    ASSERT_TRUE(iommufd_->set_rlimit_mode(RlimitMode::per_process));
    EXPECT_EQ(*iommufd_->rlimit_mode(), RlimitMode::per_process);
    kernel_.rlimit_mode = 7;
    EXPECT_TRUE(iommufd_->rlimit_mode().error().is(EPROTO));
    kernel_.failures[uapi::iommu_option] = EPERM;
    EXPECT_THAT(iommufd_->set_rlimit_mode(RlimitMode::per_user).error().hint, HasSubstr("CAP_SYS_RESOURCE"));
    kernel_.failures[uapi::iommu_option] = EBUSY;
    EXPECT_THAT(iommufd_->set_rlimit_mode(RlimitMode::per_user).error().hint, HasSubstr("before the first object"));
}

TEST_F(IommufdTest, HardwareInfoIsCutToTheRoomThereWas) {
    const auto info = iommufd_->hardware_info(1);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->type, uapi::iommu_hw_info_type_intel_vtd);
    EXPECT_EQ(info->capabilities, 1U);
    EXPECT_EQ(info->data.size(), 256U);
    EXPECT_EQ(info->data[0], std::byte{0x5a});
}

TEST_F(IommufdTest, PhysicalAddressesAreAskedAndDoubted) {
    EXPECT_THAT(iommufd_->physical(3, Iova{0}, 4_KiB).error().hint, HasSubstr("7.3"));
    kernel_.physical[0x1000] = {0, 4096}; // bus address 0 is legal
    kernel_.physical[0x2000] = {0x8000, 0};
    kernel_.physical[0x3000] = {0x8000, 8192};
    EXPECT_EQ(*iommufd_->physical(3, Iova{0x1000}, 8_KiB), (Extent{DmaAddress{0}, 4_KiB}));
    EXPECT_TRUE(iommufd_->physical(3, Iova{0x2000}, 4_KiB).error().is(EPROTO));
    EXPECT_TRUE(iommufd_->physical(3, Iova{0x3000}, 4_KiB).error().is(EPROTO));
    EXPECT_TRUE(iommufd_->physical(3, Iova{0x9000}, 4_KiB).error().is(ENOENT));
    for (const auto& [code, words] : {std::pair{EOPNOTSUPP, "no-IOMMU"}, std::pair{EPERM, "CAP_SYS_RAWIO"}}) {
        kernel_.failures[uapi::iommu_ioas_noiommu_get_pa] = code;
        EXPECT_THAT(iommufd_->physical(3, Iova{0}, 4_KiB).error().hint, HasSubstr(words));
    }
}

} // namespace
} // namespace upcie::iommu
