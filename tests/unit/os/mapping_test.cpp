// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <support/mock_system.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>

namespace upcie::os {
namespace {

using test::MockSystem;
using testing::_;
using testing::HasSubstr;
using testing::Return;
using namespace upcie::literals;

TEST(Mapping, SharesTheFileAndKeepsToReading) {
    System& system = real_system();
    const Fd file{system, system.memfd_create("mapping-test", MFD_CLOEXEC)};
    ASSERT_TRUE(file);
    ASSERT_EQ(system.ftruncate(file.get(), 8192), 0);
    auto writer = Mapping::map(system, file.get(), 4096, 4_KiB);
    auto reader = Mapping::map(system, file.get(), 0, 8_KiB, false);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->size(), 8_KiB);
    writer->data()[5] = std::byte{0x5a};
    EXPECT_EQ(reader->data()[4096 + 5], std::byte{0x5a});
}

TEST(Mapping, RefusesNothingAndMoreThanThereIs) {
    MockSystem system;
    EXPECT_CALL(system, mmap(_, _, _, _, _, _)).Times(0);
    EXPECT_TRUE(Mapping::map(system, 3, 0, 0_B).error().is(EINVAL));
    EXPECT_TRUE(Mapping::map(system, 3, 0, ByteCount{~0ULL}).error().is(EINVAL));
}

TEST(Mapping, UnmapsOnceWithItsLength) {
    MockSystem system;
    int memory = 0;
    EXPECT_CALL(system, mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0)).WillOnce(Return(&memory));
    EXPECT_CALL(system, munmap(&memory, 4096)).WillOnce(Return(0));
    auto mapping = Mapping::map(system, 3, 0, 4_KiB);
    ASSERT_TRUE(mapping);
    Mapping moved{std::move(*mapping)};
    moved = Mapping{};
    EXPECT_FALSE(moved);
}

struct MapHint {
    int code;
    const char* words;
};
class MappingHint : public testing::TestWithParam<MapHint> {};

TEST_P(MappingHint, SaysWhy) {
    MockSystem system;
    EXPECT_CALL(system, mmap(_, _, _, _, _, _))
        .WillOnce(testing::SetErrnoAndReturn(GetParam().code, reinterpret_cast<void*>(~std::uintptr_t{0})));
    const auto mapping = Mapping::map(system, 3, 0x2000, 4_KiB);
    ASSERT_FALSE(mapping);
    EXPECT_TRUE(mapping.error().is(GetParam().code));
    EXPECT_THAT(mapping.error().subject, HasSubstr("0x2000"));
    EXPECT_THAT(mapping.error().hint, HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(All, MappingHint,
                         testing::Values(MapHint{EINVAL, "page size"}, MapHint{EACCES, "not opened"},
                                         MapHint{EPERM, "seal"}, MapHint{ENOMEM, "HugePages_Free"},
                                         MapHint{ENODEV, "cannot be mapped"}, MapHint{EAGAIN, "RLIMIT_MEMLOCK"}));

} // namespace
} // namespace upcie::os
