// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gmock/gmock.h>

#include <upcie/os/system.hpp>

namespace upcie::test {

/// A System for tests of every room. What a test says nothing about goes to the kernel, so that it states just the
/// calls that it wants to fail or fake. Constructor and destructor are in mock_system.cpp: inline they would cost every
/// file that includes this half a minute of the compiler's time.
class MockSystemBase : public os::System {
  public:
    MOCK_METHOD(int, open, (const char*, int, mode_t), (override));
    MOCK_METHOD(int, close, (int), (override));
    MOCK_METHOD(int, ioctl, (int, unsigned long, void*), (override));
    MOCK_METHOD(int, ioctl_value, (int, unsigned long, unsigned long), (override));
    MOCK_METHOD(void*, mmap, (void*, std::size_t, int, int, int, off_t), (override));
    MOCK_METHOD(int, munmap, (void*, std::size_t), (override));
    MOCK_METHOD(int, mprotect, (void*, std::size_t, int), (override));
    MOCK_METHOD(ssize_t, read, (int, void*, std::size_t), (override));
    MOCK_METHOD(ssize_t, write, (int, const void*, std::size_t), (override));
    MOCK_METHOD(ssize_t, pread, (int, void*, std::size_t, off_t), (override));
    MOCK_METHOD(ssize_t, pwrite, (int, const void*, std::size_t, off_t), (override));
    MOCK_METHOD(int, ftruncate, (int, off_t), (override));
    MOCK_METHOD(int, fstat, (int, struct stat*), (override));
    MOCK_METHOD(int, stat, (const char*, struct stat*), (override));
    MOCK_METHOD(int, access, (const char*, int), (override));
    MOCK_METHOD(ssize_t, readlink, (const char*, char*, std::size_t), (override));
    MOCK_METHOD(bool, list_directory, (const char*, std::vector<std::string>&), (override));
    MOCK_METHOD(int, memfd_create, (const char*, unsigned), (override));
    MOCK_METHOD(int, fcntl, (int, int, long), (override));
    MOCK_METHOD(int, flock, (int, int), (override));
    MOCK_METHOD(int, eventfd, (unsigned, int), (override));
    MOCK_METHOD(int, poll, (struct pollfd*, nfds_t, int), (override));
    MOCK_METHOD(ssize_t, sendmsg, (int, const struct msghdr*, int), (override));
    MOCK_METHOD(ssize_t, recvmsg, (int, struct msghdr*, int), (override));
    MOCK_METHOD(int, mlock, (const void*, std::size_t), (override));
    MOCK_METHOD(int, unlink, (const char*), (override));
    MOCK_METHOD(int, link, (const char*, const char*), (override));
    MOCK_METHOD(int, socket, (int, int, int), (override));
    MOCK_METHOD(int, bind, (int, const struct sockaddr*, socklen_t), (override));
    MOCK_METHOD(int, listen, (int, int), (override));
    MOCK_METHOD(int, accept, (int, int), (override));
    MOCK_METHOD(int, connect, (int, const struct sockaddr*, socklen_t), (override));
    MOCK_METHOD(int, getsockopt, (int, int, int, void*, socklen_t*), (override));
    MOCK_METHOD(int, chmod, (const char*, mode_t), (override));
    MOCK_METHOD(int, getrlimit, (int, struct rlimit*), (override));
    MOCK_METHOD(int, setrlimit, (int, const struct rlimit*), (override));
    MOCK_METHOD(int, prctl, (int, unsigned long), (override));

    MockSystemBase();
    ~MockSystemBase() override;
};

/// Silent about calls without an expectation: they were forwarded on purpose.
class MockSystem : public testing::NiceMock<MockSystemBase> {
  public:
    MockSystem();
    ~MockSystem() override;
};

/// An action: sets errno and answers -1.
inline auto fails_with(int code) {
    return testing::SetErrnoAndReturn(code, -1);
}

} // namespace upcie::test
