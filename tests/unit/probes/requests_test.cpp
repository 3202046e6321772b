// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "requests.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using testing::_;

class RequestsTest : public testing::Test {
  protected:
    testing::NiceMock<test::MockSystemBase> system_;
    Requests requests_{system_};
};

TEST_F(RequestsTest, TheKernelsErrnoComesThrough) {
    ON_CALL(system_, ioctl(_, _, _)).WillByDefault([](int, unsigned long, void*) {
        errno = EOPNOTSUPP;
        return -1;
    });
    EXPECT_EQ(requests_.bind(3, 4).error, EOPNOTSUPP);
    EXPECT_EQ(requests_.map_file(3, 1, 4, 0, 4096).error, EOPNOTSUPP);
    EXPECT_EQ(requests_.set_rlimit_mode(3, 1), EOPNOTSUPP);
    EXPECT_EQ(requests_.export_dmabuf(3, 0, {{0, 4096}}).error, EOPNOTSUPP);
}

TEST_F(RequestsTest, ADmabufRequestHoldsAllRanges) {
    EXPECT_CALL(system_, ioctl(3, uapi::vfio_device_feature, _)).WillOnce([](int, unsigned long, void* argument) {
        const auto* const bytes = static_cast<const std::byte*>(argument);
        uapi::VfioDeviceFeature header{};
        uapi::VfioDeviceFeatureDmaBuf details{};
        uapi::VfioRegionDmaRange ranges[2] = {};
        std::memcpy(&header, bytes, sizeof(header));
        std::memcpy(&details, bytes + sizeof(header), sizeof(details));
        std::memcpy(ranges, bytes + sizeof(header) + sizeof(details), sizeof(ranges));
        EXPECT_EQ(header.argsz, sizeof(header) + sizeof(details) + sizeof(ranges));
        EXPECT_EQ(header.flags, uapi::vfio_device_feature_get | uapi::vfio_device_feature_dma_buf);
        EXPECT_EQ(details.nr_ranges, 2U);
        EXPECT_EQ(ranges[1].offset, 8192U);
        errno = ENOTTY;
        return -1;
    });
    EXPECT_EQ(requests_.export_dmabuf(3, 0, {{0, 4096}, {8192, 4096}}).error, ENOTTY);
}

TEST_F(RequestsTest, TheCommandRegisterKeepsItsOtherBits) {
    ON_CALL(system_, ioctl(_, _, _)).WillByDefault([](int, unsigned long, void* argument) {
        static_cast<uapi::VfioRegionInfo*>(argument)->offset = 0x70000;
        return 0;
    });
    ON_CALL(system_, pread(_, _, _, _)).WillByDefault([](int, void* data, std::size_t, off_t place) {
        EXPECT_EQ(place, 0x70004);
        const std::uint16_t now = 0x0402;
        std::memcpy(data, &now, sizeof(now));
        return ssize_t{2};
    });
    EXPECT_CALL(system_, pwrite(_, _, 2, 0x70004)).WillOnce([](int, const void* data, std::size_t, off_t) {
        std::uint16_t then = 0;
        std::memcpy(&then, data, sizeof(then));
        EXPECT_EQ(then, 0x0404);
        return ssize_t{2};
    });
    const Answered<std::uint16_t> before = requests_.change_command(3, 4, 2);
    EXPECT_EQ(before.error, 0);
    EXPECT_EQ(before.value, 0x0402);
}

TEST_F(RequestsTest, AShortReadOfConfigSpaceIsAnError) {
    ON_CALL(system_, ioctl(_, _, _)).WillByDefault([](int, unsigned long, void*) { return 0; });
    ON_CALL(system_, pread(_, _, _, _)).WillByDefault([](int, void*, std::size_t, off_t) { return ssize_t{1}; });
    EXPECT_CALL(system_, pwrite(_, _, _, _)).Times(0);
    EXPECT_EQ(requests_.change_command(3, 4, 2).error, EIO);
}

} // namespace
} // namespace upcie::probes
