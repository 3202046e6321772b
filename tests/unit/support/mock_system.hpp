// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gmock/gmock.h>

#include <upcie/os/system.hpp>

namespace upcie::test {

/// A System for tests of every room. What a test says nothing about goes to the kernel, so that it states just the
/// calls that it wants to fail or fake.
class MockSystemBase : public os::System {
  public:
    MOCK_METHOD(int, open, (const char*, int, mode_t), (override));
    MOCK_METHOD(int, close, (int), (override));
    MOCK_METHOD(int, ioctl, (int, unsigned long, void*), (override));
    MOCK_METHOD(int, ioctl_value, (int, unsigned long, unsigned long), (override));
    MOCK_METHOD(void*, mmap, (void*, std::size_t, int, int, int, off_t), (override));
    MOCK_METHOD(int, munmap, (void*, std::size_t), (override));
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

    MockSystemBase() {
        using testing::_;
        os::System& real = os::real_system();
        const auto forward = [&real](auto method) {
            return [&real, method](auto... arguments) { return (real.*method)(arguments...); };
        };
        ON_CALL(*this, open(_, _, _)).WillByDefault(forward(&System::open));
        ON_CALL(*this, close(_)).WillByDefault(forward(&System::close));
        ON_CALL(*this, ioctl(_, _, _)).WillByDefault(forward(&System::ioctl));
        ON_CALL(*this, ioctl_value(_, _, _)).WillByDefault(forward(&System::ioctl_value));
        ON_CALL(*this, mmap(_, _, _, _, _, _)).WillByDefault(forward(&System::mmap));
        ON_CALL(*this, munmap(_, _)).WillByDefault(forward(&System::munmap));
        ON_CALL(*this, read(_, _, _)).WillByDefault(forward(&System::read));
        ON_CALL(*this, write(_, _, _)).WillByDefault(forward(&System::write));
        ON_CALL(*this, pread(_, _, _, _)).WillByDefault(forward(&System::pread));
        ON_CALL(*this, pwrite(_, _, _, _)).WillByDefault(forward(&System::pwrite));
        ON_CALL(*this, ftruncate(_, _)).WillByDefault(forward(&System::ftruncate));
        ON_CALL(*this, fstat(_, _)).WillByDefault(forward(&System::fstat));
        ON_CALL(*this, stat(_, _)).WillByDefault(forward(&System::stat));
        ON_CALL(*this, access(_, _)).WillByDefault(forward(&System::access));
        ON_CALL(*this, readlink(_, _, _)).WillByDefault(forward(&System::readlink));
        ON_CALL(*this, list_directory(_, _)).WillByDefault([&real](const char* path, std::vector<std::string>& names) {
            return real.list_directory(path, names);
        });
        ON_CALL(*this, memfd_create(_, _)).WillByDefault(forward(&System::memfd_create));
        ON_CALL(*this, fcntl(_, _, _)).WillByDefault(forward(&System::fcntl));
        ON_CALL(*this, flock(_, _)).WillByDefault(forward(&System::flock));
        ON_CALL(*this, eventfd(_, _)).WillByDefault(forward(&System::eventfd));
        ON_CALL(*this, poll(_, _, _)).WillByDefault(forward(&System::poll));
        ON_CALL(*this, sendmsg(_, _, _)).WillByDefault(forward(&System::sendmsg));
        ON_CALL(*this, recvmsg(_, _, _)).WillByDefault(forward(&System::recvmsg));
        ON_CALL(*this, mlock(_, _)).WillByDefault(forward(&System::mlock));
        ON_CALL(*this, unlink(_)).WillByDefault(forward(&System::unlink));
        ON_CALL(*this, socket(_, _, _)).WillByDefault(forward(&System::socket));
        ON_CALL(*this, bind(_, _, _)).WillByDefault(forward(&System::bind));
        ON_CALL(*this, listen(_, _)).WillByDefault(forward(&System::listen));
        ON_CALL(*this, accept(_, _)).WillByDefault(forward(&System::accept));
        ON_CALL(*this, connect(_, _, _)).WillByDefault(forward(&System::connect));
        ON_CALL(*this, getsockopt(_, _, _, _, _)).WillByDefault(forward(&System::getsockopt));
        ON_CALL(*this, chmod(_, _)).WillByDefault(forward(&System::chmod));
        ON_CALL(*this, getrlimit(_, _)).WillByDefault(forward(&System::getrlimit));
        ON_CALL(*this, setrlimit(_, _)).WillByDefault(forward(&System::setrlimit));
        ON_CALL(*this, prctl(_, _)).WillByDefault(forward(&System::prctl));
    }
};

/// Silent about calls without an expectation: they were forwarded on purpose.
using MockSystem = testing::NiceMock<MockSystemBase>;

/// An action: sets errno and answers -1.
inline auto fails_with(int code) {
    return testing::SetErrnoAndReturn(code, -1);
}

} // namespace upcie::test
