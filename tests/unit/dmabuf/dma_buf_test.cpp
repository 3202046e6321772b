// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/dma_buf.hpp>

#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include <support/fake_dma_buf.hpp>
#include <support/mock_system.hpp>

namespace upcie::dmabuf {
namespace {

using namespace upcie::literals;
using testing::_;
using testing::HasSubstr;
using testing::StartsWith;

class DmaBufTest : public testing::Test {
  protected:
    Result<DmaBuf> adopt(const std::string& fdinfo) {
        const os::Fd fd = test::memfd(system_);
        test::show_fdinfo(system_, fdinfo, folder_);
        return DmaBuf::adopt(system_, os::Fd{system_, ::dup(fd.get())});
    }
    test::MockSystem system_;
    test::TempDirectory folder_;
};

TEST_F(DmaBufTest, SizeExporterAndNameComeFromTheKernel) {
    const auto made =
        adopt("pos:\t0\nflags:\t02000002\nsize:\t6442450944\ncount:\t2\nexp_name:\tnv_dmabuf\nname:\tweights\n");
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->size(), 6_GiB);
    EXPECT_EQ(made->facts().exporter, "nv_dmabuf");
    EXPECT_EQ(made->facts().name, "weights");
    EXPECT_TRUE(*made);
}

TEST_F(DmaBufTest, ADescriptorThatIsNoDmaBufIsRefused) {
    for (const char* other : {"pos:\t0\nflags:\t02\nmnt_id:\t15\n", "size:\t4096\n", "", "exp_name:\tudmabuf\n",
                              "size:\tmany\nexp_name:\tudmabuf\n"}) {
        const auto made = adopt(other);
        ASSERT_FALSE(made) << other;
        EXPECT_TRUE(made.error().is(EINVAL));
        EXPECT_THAT(made.error().message(), HasSubstr("not a dma-buf"));
    }
    EXPECT_TRUE(DmaBuf::adopt(system_, os::Fd{}).error().is(EBADF));
    const auto real = DmaBuf::adopt(os::real_system(), test::memfd(os::real_system()));
    EXPECT_TRUE(real.error().is(EINVAL)) << "a memfd, and the real /proc";
}

TEST_F(DmaBufTest, TheFdinfoThatCannotBeReadIsSaid) {
    EXPECT_CALL(system_, open(StartsWith("/proc/self/fdinfo/"), _, _)).WillOnce(test::fails_with(ENOENT));
    const auto made = DmaBuf::adopt(system_, test::memfd(system_));
    EXPECT_TRUE(made.error().is(ENOENT));
}

TEST_F(DmaBufTest, CpuAccessIsBracketedAndBegunAgainAfterASignal) {
    auto made = adopt("size:\t4096\nexp_name:\tudmabuf\n");
    ASSERT_TRUE(made);
    std::vector<std::uint64_t> flags;
    int interruptions = 2;
    EXPECT_CALL(system_, ioctl(made->fd(), DMA_BUF_IOCTL_SYNC, _))
        .WillRepeatedly([&](int, unsigned long, void* argument) {
            if (interruptions > 0) {
                errno = interruptions-- == 2 ? EINTR : EAGAIN;
                return -1;
            }
            flags.push_back(static_cast<dma_buf_sync*>(argument)->flags);
            return 0;
        });
    EXPECT_TRUE(made->begin_cpu_access(DmaBuf::CpuAccess::read));
    EXPECT_TRUE(made->end_cpu_access(DmaBuf::CpuAccess::read_write));
    EXPECT_THAT(flags,
                testing::ElementsAre(DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW));
    EXPECT_CALL(system_, ioctl(made->fd(), DMA_BUF_IOCTL_SYNC, _)).WillOnce(test::fails_with(ENODEV));
    const auto refused = made->begin_cpu_access(DmaBuf::CpuAccess::write);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(ENODEV));
    EXPECT_THAT(refused.error().message(), HasSubstr("udmabuf"));
    EXPECT_TRUE(DmaBuf{}.begin_cpu_access(DmaBuf::CpuAccess::read).error().is(EBADF));
}

} // namespace
} // namespace upcie::dmabuf
