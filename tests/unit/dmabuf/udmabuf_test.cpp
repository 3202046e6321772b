// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/udmabuf.hpp>

#include <cerrno>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>

#include <support/fake_dma_buf.hpp>
#include <support/mock_system.hpp>

namespace upcie::dmabuf {
namespace {

using namespace upcie::literals;
using testing::_;
using testing::HasSubstr;
using testing::StrEq;

class UdmabufTest : public testing::Test {
  protected:
    UdmabufTest() {
        test::show_fdinfo(system_, "size:\t12288\nexp_name:\tudmabuf\n", folder_);
        EXPECT_CALL(system_, open(StrEq("/dev/udmabuf"), _, _)).WillRepeatedly([this](const char*, int, mode_t) {
            return system_.memfd_create("stands for /dev/udmabuf", 0);
        });
        EXPECT_CALL(system_, ioctl(_, UDMABUF_CREATE_LIST, _)).Times(0);
    }
    test::MockSystem system_;
    test::TempDirectory folder_;
};

TEST_F(UdmabufTest, ThePiecesReachTheKernelInTheirOrder) {
    std::vector<udmabuf_create_item> items;
    std::uint32_t flags = 0;
    EXPECT_CALL(system_, ioctl(_, UDMABUF_CREATE_LIST, _)).WillOnce([&](int, unsigned long, void* argument) {
        // flags, count, then the list (linux/udmabuf.h)
        std::uint32_t head[2] = {};
        std::memcpy(head, argument, sizeof head);
        flags = head[0];
        items.resize(head[1]);
        std::memcpy(items.data(), static_cast<std::byte*>(argument) + sizeof head, items.size() * sizeof items[0]);
        return system_.memfd_create("stands for the dma-buf", 0);
    });
    const std::vector<MemfdRange> pieces{{7, 8_KiB, 4_KiB}, {9, 0_B, 8_KiB}};
    const auto made = create_udmabuf(system_, pieces);
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->size(), 12_KiB);
    EXPECT_EQ(made->facts().exporter, "udmabuf");
    ASSERT_EQ(items.size(), 2U);
    EXPECT_EQ(items[0].memfd, 7U);
    EXPECT_EQ(items[0].offset, 8192U);
    EXPECT_EQ(items[0].size, 4096U);
    EXPECT_EQ(items[1].memfd, 9U);
    EXPECT_EQ(items[1].size, 8192U);
    EXPECT_EQ(flags, static_cast<std::uint32_t>(UDMABUF_FLAGS_CLOEXEC));
}

TEST_F(UdmabufTest, PiecesThatNoPagesAreAreRefusedBeforeTheKernelIsAsked) {
    const std::vector<MemfdRange> bad[]{{}, {{7, 0_B, 0_B}}, {{7, 512_B, 4_KiB}}, {{7, 0_B, 4_KiB}, {7, 0_B, 5000_B}}};
    for (const auto& pieces : bad) {
        EXPECT_TRUE(create_udmabuf(system_, pieces).error().is(EINVAL));
    }
    EXPECT_THAT(create_udmabuf(system_, bad[3]).error().message(), HasSubstr("Piece 1"));
}

TEST_F(UdmabufTest, EachRefusalSaysWhatToDo) {
    const std::vector<MemfdRange> pieces{{7, 0_B, 4_KiB}};
    for (const auto& [code, words] :
         {std::pair{EINVAL, "F_SEAL_SHRINK"}, {EBADF, "not a memfd"}, {ENOMEM, "no memory"}}) {
        EXPECT_CALL(system_, ioctl(_, UDMABUF_CREATE_LIST, _)).WillOnce(test::fails_with(code));
        const auto made = create_udmabuf(system_, pieces);
        ASSERT_FALSE(made);
        EXPECT_TRUE(made.error().is(code));
        EXPECT_THAT(made.error().message(), HasSubstr(words));
    }
    for (const auto& [code, words] : {std::pair{ENOENT, "modprobe udmabuf"}, {EACCES, "permissions"}}) {
        EXPECT_CALL(system_, open(StrEq("/dev/udmabuf"), _, _)).WillOnce(test::fails_with(code));
        const auto made = create_udmabuf(system_, pieces);
        EXPECT_TRUE(made.error().is(code));
        EXPECT_THAT(made.error().message(), HasSubstr(words));
    }
}

} // namespace
} // namespace upcie::dmabuf
