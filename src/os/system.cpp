// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/system.hpp>

#include <algorithm>
#include <cerrno>

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace upcie::os {

namespace {

class RealSystem final : public System {
  public:
    int open(const char* path, int flags, mode_t mode) override { return ::open(path, flags, mode); }
    int close(int fd) override { return ::close(fd); }
    int ioctl(int fd, unsigned long request, void* argument) override { return ::ioctl(fd, request, argument); }
    int ioctl_value(int fd, unsigned long request, unsigned long argument) override {
        return ::ioctl(fd, request, argument);
    }
    void* mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) override {
        return ::mmap(address, length, protection, flags, fd, offset);
    }
    int munmap(void* address, std::size_t length) override { return ::munmap(address, length); }
    int mprotect(void* address, std::size_t length, int protection) override {
        return ::mprotect(address, length, protection);
    }
    ssize_t read(int fd, void* data, std::size_t length) override { return ::read(fd, data, length); }
    ssize_t write(int fd, const void* data, std::size_t length) override { return ::write(fd, data, length); }
    ssize_t pread(int fd, void* data, std::size_t length, off_t offset) override {
        return ::pread(fd, data, length, offset);
    }
    ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
        return ::pwrite(fd, data, length, offset);
    }
    int ftruncate(int fd, off_t length) override { return ::ftruncate(fd, length); }
    int fstat(int fd, struct stat* result) override { return ::fstat(fd, result); }
    int stat(const char* path, struct stat* result) override { return ::stat(path, result); }
    int access(const char* path, int mode) override { return ::access(path, mode); }
    ssize_t readlink(const char* path, char* buffer, std::size_t length) override {
        return ::readlink(path, buffer, length);
    }
    bool list_directory(const char* path, std::vector<std::string>& names) override {
        names.clear();
        DIR* const directory = ::opendir(path);
        if (directory == nullptr) {
            return false;
        }
        // readdir tells its end from a failure by errno alone.
        errno = 0;
        while (const dirent* const entry = ::readdir(directory)) {
            const std::string name{static_cast<const char*>(entry->d_name)};
            if (name != "." && name != "..") {
                names.push_back(name);
            }
            errno = 0;
        }
        const int failure = errno;
        ::closedir(directory);
        if (failure != 0) {
            names.clear();
            errno = failure;
            return false;
        }
        std::sort(names.begin(), names.end());
        return true;
    }
    int memfd_create(const char* name, unsigned flags) override { return ::memfd_create(name, flags); }
    int fcntl(int fd, int command, long argument) override { return ::fcntl(fd, command, argument); }
    int flock(int fd, int operation) override { return ::flock(fd, operation); }
    int eventfd(unsigned initial, int flags) override { return ::eventfd(initial, flags); }
    int poll(struct pollfd* fds, nfds_t count, int timeout_ms) override { return ::poll(fds, count, timeout_ms); }
    ssize_t sendmsg(int fd, const struct msghdr* message, int flags) override { return ::sendmsg(fd, message, flags); }
    ssize_t recvmsg(int fd, struct msghdr* message, int flags) override { return ::recvmsg(fd, message, flags); }
    int mlock(const void* address, std::size_t length) override { return ::mlock(address, length); }
    int unlink(const char* path) override { return ::unlink(path); }
    int link(const char* existing, const char* name) override { return ::link(existing, name); }
    int socket(int domain, int type, int protocol) override { return ::socket(domain, type, protocol); }
    int bind(int fd, const struct sockaddr* address, socklen_t length) override { return ::bind(fd, address, length); }
    int listen(int fd, int backlog) override { return ::listen(fd, backlog); }
    int accept(int fd, int flags) override { return ::accept4(fd, nullptr, nullptr, flags); }
    int connect(int fd, const struct sockaddr* address, socklen_t length) override {
        return ::connect(fd, address, length);
    }
    int getsockopt(int fd, int level, int option, void* value, socklen_t* length) override {
        return ::getsockopt(fd, level, option, value, length);
    }
    int chmod(const char* path, mode_t mode) override { return ::chmod(path, mode); }
    int getrlimit(int resource, struct rlimit* limit) override {
        return ::getrlimit(static_cast<__rlimit_resource>(resource), limit);
    }
    int setrlimit(int resource, const struct rlimit* limit) override {
        return ::setrlimit(static_cast<__rlimit_resource>(resource), limit);
    }
    int prctl(int option, unsigned long argument) override { return ::prctl(option, argument, 0UL, 0UL, 0UL); }
};

} // namespace

System& real_system() noexcept {
    // Never destroyed: objects with static storage may close their descriptors after main.
    static System* const system = new RealSystem;
    return *system;
}

} // namespace upcie::os
