// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace upcie::os {

/// The seam over system calls: every call of the cold path goes through one of these, so that unit tests can make each
/// of them fail. Each function behaves as the call whose name it has: -1 (or MAP_FAILED) with errno set.
///
/// Threads: the production object may be used from any thread.
class System {
  public:
    virtual ~System() = default;

    virtual int open(const char* path, int flags, mode_t mode = 0) = 0;
    virtual int close(int fd) = 0;
    virtual int ioctl(int fd, unsigned long request, void* argument) = 0;
    /// An ioctl whose argument is a number and not a pointer (VFIO_CHECK_EXTENSION, VFIO_SET_IOMMU).
    virtual int ioctl_value(int fd, unsigned long request, unsigned long argument) = 0;
    virtual void* mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) = 0;
    virtual int munmap(void* address, std::size_t length) = 0;
    virtual int mprotect(void* address, std::size_t length, int protection) = 0;
    virtual ssize_t read(int fd, void* data, std::size_t length) = 0;
    virtual ssize_t write(int fd, const void* data, std::size_t length) = 0;
    virtual ssize_t pread(int fd, void* data, std::size_t length, off_t offset) = 0;
    virtual ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) = 0;
    virtual int ftruncate(int fd, off_t length) = 0;
    virtual int fstat(int fd, struct stat* result) = 0;
    virtual int stat(const char* path, struct stat* result) = 0;
    virtual int access(const char* path, int mode) = 0;
    virtual ssize_t readlink(const char* path, char* buffer, std::size_t length) = 0;
    /// Names in a directory without "." and "..", sorted. False with errno set when it cannot be read.
    virtual bool list_directory(const char* path, std::vector<std::string>& names) = 0;
    virtual int memfd_create(const char* name, unsigned flags) = 0;
    virtual int fcntl(int fd, int command, long argument) = 0;
    virtual int flock(int fd, int operation) = 0;
    virtual int eventfd(unsigned initial, int flags) = 0;
    virtual int poll(struct pollfd* fds, nfds_t count, int timeout_ms) = 0;
    virtual ssize_t sendmsg(int fd, const struct msghdr* message, int flags) = 0;
    virtual ssize_t recvmsg(int fd, struct msghdr* message, int flags) = 0;
    virtual int mlock(const void* address, std::size_t length) = 0;
    virtual int unlink(const char* path) = 0;
    virtual int link(const char* existing, const char* name) = 0;
    virtual int socket(int domain, int type, int protocol) = 0;
    virtual int bind(int fd, const struct sockaddr* address, socklen_t length) = 0;
    virtual int listen(int fd, int backlog) = 0;
    /// accept4(2) that does not tell the peer's address.
    virtual int accept(int fd, int flags) = 0;
    virtual int connect(int fd, const struct sockaddr* address, socklen_t length) = 0;
    virtual int getsockopt(int fd, int level, int option, void* value, socklen_t* length) = 0;
    virtual int chmod(const char* path, mode_t mode) = 0;
    /// `resource` is one of RLIMIT_*.
    virtual int getrlimit(int resource, struct rlimit* limit) = 0;
    virtual int setrlimit(int resource, const struct rlimit* limit) = 0;
    /// prctl(2) of an option with at most one argument, a number.
    virtual int prctl(int option, unsigned long argument) = 0;

  protected:
    System() = default;
    System(const System&) = default;
    System& operator=(const System&) = default;
};

/// The one that forwards to the kernel. Lives as long as the process.
[[nodiscard]] System& real_system() noexcept;

} // namespace upcie::os
