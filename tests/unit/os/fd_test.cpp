// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>

#include <support/mock_system.hpp>
#include <upcie/os/fd.hpp>

namespace upcie::os {
namespace {

using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::HasSubstr;
using testing::Return;

TEST(Fd, ClosesOnceAndOnlyWhatItOwns) {
    MockSystem system;
    EXPECT_CALL(system, close(7)).WillOnce(Return(0));
    EXPECT_CALL(system, close(8)).WillOnce(Return(0));
    EXPECT_CALL(system, close(-1)).Times(0);
    Fd first{system, 7};
    Fd moved{std::move(first)};
    Fd second{system, 8};
    second = std::move(moved); // closes 8 at once
    const Fd empty{system, -1};
    Fd given{system, 9}; // never closed: given away
    EXPECT_EQ(given.release(), 9);
}

TEST(Fd, AnInterruptedCloseIsNotRepeated) {
    MockSystem system;
    EXPECT_CALL(system, close(7)).WillOnce(fails_with(EINTR));
    Fd{system, 7}.reset();
}

TEST(Fd, DuplicateIsAnotherDescriptorOfTheSameFileAndCloseOnExec) {
    auto file = open_file(real_system(), "/dev/null", O_RDWR);
    ASSERT_TRUE(file);
    auto copy = file->duplicate();
    ASSERT_TRUE(copy);
    EXPECT_NE(copy->get(), file->get());
    EXPECT_EQ(real_system().fcntl(copy->get(), F_GETFD, 0), FD_CLOEXEC);
    EXPECT_TRUE(Fd{}.duplicate().error().is(EBADF));
}

TEST(Fd, DuplicateSaysHowToRaiseTheLimit) {
    MockSystem system;
    EXPECT_CALL(system, fcntl(3, F_DUPFD_CLOEXEC, 0)).WillOnce(fails_with(EMFILE));
    EXPECT_CALL(system, close(3)).WillOnce(Return(0));
    const auto copy = Fd{system, 3}.duplicate();
    ASSERT_FALSE(copy);
    EXPECT_THAT(copy.error().message(), HasSubstr("ulimit -n"));
}

TEST(OpenFile, AddsCloseOnExecAndRetriesWhenInterrupted) {
    MockSystem system;
    EXPECT_CALL(system, open(_, O_RDONLY | O_CLOEXEC, _)).WillOnce(fails_with(EINTR)).WillOnce(Return(5));
    EXPECT_CALL(system, close(5)).WillOnce(Return(0));
    EXPECT_EQ(open_file(system, "/x", O_RDONLY)->get(), 5);
}

struct OpenHint {
    int code;
    const char* words;
};
class OpenFileHint : public testing::TestWithParam<OpenHint> {};

TEST_P(OpenFileHint, NamesThePathTheErrnoAndTheFix) {
    MockSystem system;
    EXPECT_CALL(system, open(_, _, _)).WillOnce(fails_with(GetParam().code));
    const auto file = open_file(system, "/dev/vfio/devices/vfio0", O_RDWR);
    ASSERT_FALSE(file);
    EXPECT_TRUE(file.error().is(GetParam().code));
    EXPECT_EQ(file.error().subject, "/dev/vfio/devices/vfio0");
    EXPECT_THAT(file.error().hint, HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(All, OpenFileHint,
                         testing::Values(OpenHint{EACCES, "udev"}, OpenHint{EPERM, "CAP_SYS_RAWIO"},
                                         OpenHint{ENOENT, "does not exist"}, OpenHint{EBUSY, "fuser"},
                                         OpenHint{ENODEV, "no driver"}, OpenHint{EMFILE, "ulimit -n"},
                                         OpenHint{ENFILE, "fs.file-max"}));

TEST(Eventfd, CountsAndDoesNotBlock) {
    auto counter = make_eventfd(real_system());
    ASSERT_TRUE(counter);
    std::uint64_t value = 0;
    EXPECT_EQ(real_system().read(counter->get(), &value, sizeof value), -1);
    EXPECT_EQ(errno, EAGAIN);
    value = 3;
    EXPECT_EQ(real_system().write(counter->get(), &value, sizeof value), 8);
    EXPECT_EQ(real_system().read(counter->get(), &value, sizeof value), 8);
    EXPECT_EQ(value, 3U);
    EXPECT_EQ(real_system().fcntl(counter->get(), F_GETFD, 0), FD_CLOEXEC);
}

TEST(Eventfd, FailureIsAnError) {
    MockSystem system;
    EXPECT_CALL(system, eventfd(_, _)).WillOnce(fails_with(EMFILE));
    EXPECT_TRUE(make_eventfd(system).error().is(EMFILE));
}

} // namespace
} // namespace upcie::os
