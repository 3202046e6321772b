// SPDX-License-Identifier: BSD-3-Clause
#include "support/mock_system.hpp"

namespace upcie::test {

MockSystemBase::MockSystemBase() {
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
    ON_CALL(*this, mprotect(_, _, _)).WillByDefault(forward(&System::mprotect));
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
    ON_CALL(*this, link(_, _)).WillByDefault(forward(&System::link));
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

MockSystemBase::~MockSystemBase() = default;

MockSystem::MockSystem() = default;
MockSystem::~MockSystem() = default;

} // namespace upcie::test
