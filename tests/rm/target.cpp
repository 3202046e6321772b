// SPDX-License-Identifier: BSD-3-Clause
// A program that makes a known list of calls on files given as nodes, for upcie_rm_trace to record. It is built
// dynamic and static. What it asks for stands in target_calls.hpp.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervisor.hpp"
#include "target_calls.hpp"

namespace {

using namespace upcie::rm::target;

std::string control_path;
std::string gpu_path;
std::string uvm_path;
const char* self = nullptr;

int open_node(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        std::perror(path.c_str());
        std::exit(90);
    }
    return fd;
}

/// A control whose parameters say which one it is.
int numbered_control(int fd, std::uint32_t object, std::uint32_t number) {
    std::array<std::uint32_t, 8> parameters{};
    parameters.fill(number);
    Control control{object, plain_control, parameters.data(), sizeof parameters};
    return ::ioctl(fd, rm_control, control.bytes.data());
}

void all_kinds() {
    const int control = open_node(control_path);
    const int gpu = open_node(gpu_path);
    const int uvm = open_node(uvm_path);
    numbered_control(control, 1, 100);

    std::array<unsigned char, device_parameter_bytes> device{};
    device.fill(0x11);
    Alloc alloc{client, 0x5c000001, device_class, device.data()};
    ::ioctl(control, rm_alloc, alloc.bytes.data());

    std::array<std::array<char, version_bytes>, 3> versions{};
    for (std::size_t i = 0; i < versions.size(); ++i) {
        versions[i].fill(static_cast<char>('a' + i));
    }
    std::array<unsigned char, 32> build_version{};
    put(build_version.data(), 0, static_cast<std::uint32_t>(version_bytes));
    for (std::size_t i = 0; i < versions.size(); ++i) {
        put(build_version.data(), 8 + 8 * i, reinterpret_cast<std::uint64_t>(versions[i].data()));
    }
    Control embedded{client, build_version_control, build_version.data(), sizeof build_version};
    ::ioctl(control, rm_control, embedded.bytes.data());

    std::array<std::uint32_t, 8> inner{};
    inner.fill(200);
    Control indirect{2, plain_control, inner.data(), sizeof inner};
    std::array<unsigned char, 16> transfer{};
    put(transfer.data(), 0, control_escape);
    put(transfer.data(), 4, static_cast<std::uint32_t>(indirect.bytes.size()));
    put(transfer.data(), 8, reinterpret_cast<std::uint64_t>(indirect.bytes.data()));
    ::ioctl(control, rm_transfer, transfer.data());

    int passed = control;
    ::ioctl(gpu, register_fd, &passed);

    std::array<unsigned char, 16> initialize{};
    ::ioctl(uvm, uvm_initialize, initialize.data());
    std::array<unsigned char, 40> registration{};
    registration.fill(0x33);
    ::ioctl(uvm, uvm_register_gpu, registration.data());
    std::vector<unsigned char> unknown(8192, 0x44);
    ::ioctl(uvm, uvm_unknown, unknown.data());

    const int copy = ::dup(control);
    numbered_control(copy, 1, 101);
    ::dup2(gpu, copy); // ends what it was
    numbered_control(copy, 1, 102);

    void* const mapped = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0);
    if (mapped == MAP_FAILED) {
        std::exit(91);
    }
    ::munmap(mapped, 4096);
    void* const other = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(other, 4096);
    ::munmap(static_cast<char*>(mapped) + 4096, 4096);

    pollfd polled{control, POLLIN, 0};
    ::poll(&polled, 1, 0);
    struct stat status {};
    ::stat(control_path.c_str(), &status);
    char text[64];
    const int devices = ::open("/proc/devices", O_RDONLY | O_CLOEXEC);
    const ssize_t got = ::read(devices, text, sizeof text);
    ::close(devices);
    if (got <= 0) {
        std::exit(92);
    }
    ::open("/proc/driver/nvidia/no-such-file", O_RDONLY | O_CLOEXEC);
    ::close(copy);
    ::close(uvm);
    ::close(gpu);
    ::close(control);
}

void many_threads(unsigned threads, unsigned calls) {
    const int fd = open_node(control_path);
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; ++i) {
        all.emplace_back([=] {
            for (std::uint32_t k = 0; k < calls; ++k) {
                numbered_control(fd, i, k);
            }
        });
    }
    for (auto& one : all) {
        one.join();
    }
}

void forks() {
    const int fd = open_node(control_path);
    numbered_control(fd, 1, 300);
    for (std::uint32_t i = 0; i < 4; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            numbered_control(fd, 2, 310 + i);
            ::_exit(0);
        }
        ::waitpid(child, nullptr, 0);
    }
    // A child of vfork that becomes this program again, with the descriptor handed on.
    ::fcntl(fd, F_SETFD, 0);
    const std::string number = std::to_string(fd);
    const pid_t child = ::vfork();
    if (child == 0) {
        ::execl(self, self, control_path.c_str(), gpu_path.c_str(), uvm_path.c_str(), "inherited", number.c_str(),
                static_cast<char*>(nullptr));
        ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    numbered_control(fd, 1, 330);
    std::exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 93);
}

void passes() {
    std::array<int, 2> pair{};
    ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair.data());
    const pid_t child = ::fork();
    char letter = 'x';
    iovec data{&letter, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    if (child == 0) {
        if (::recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) != 1) {
            ::_exit(94);
        }
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        numbered_control(fd, 3, 400);
        ::_exit(0);
    }
    const int fd = open_node(control_path);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
    ::sendmsg(pair[0], &message, 0);
    ::close(fd);
    int status = 0;
    ::waitpid(child, &status, 0);
    std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 95);
}

/// Makes calls, then one that never returns, in the midst of which all ends.
[[noreturn]] void dies_midway(unsigned calls) {
    const int fd = open_node(control_path);
    for (std::uint32_t i = 0; i < calls; ++i) {
        numbered_control(fd, 1, i);
    }
    ::kill(::getpid(), SIGKILL);
    for (;;) {
        ::pause();
    }
}

/// Everything that a careless or hostile program may pass.
void hostile() {
    const int fd = open_node(control_path);
    ::ioctl(fd, rm_control, nullptr);
    ::ioctl(fd, rm_control, reinterpret_cast<void*>(16));
    ::ioctl(fd, rm_control, reinterpret_cast<void*>(~std::uint64_t{0} - 8));
    Control bad_pointer{1, plain_control, reinterpret_cast<void*>(0x10), 32};
    ::ioctl(fd, rm_control, bad_pointer.bytes.data());
    std::array<unsigned char, 32> some{};
    some.fill(0x55);
    Control huge{1, plain_control, some.data(), 0xffffffff};
    ::ioctl(fd, rm_control, huge.bytes.data());
    // An argument half of which is there.
    auto* const pages =
        static_cast<unsigned char*>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(pages + 4096, 4096, PROT_NONE);
    std::memset(pages, 0x66, 4096);
    ::ioctl(fd, rm_control, pages + 4096 - 16);
    // Itself as its parameters, and itself once more.
    Control loop{1, plain_control, nullptr, 32};
    put(loop.bytes.data(), 16, reinterpret_cast<std::uint64_t>(loop.bytes.data()));
    ::ioctl(fd, rm_control, loop.bytes.data());
    std::array<unsigned char, 16> transfer{};
    put(transfer.data(), 0, std::uint32_t{211});
    put(transfer.data(), 4, std::uint32_t{16});
    put(transfer.data(), 8, reinterpret_cast<std::uint64_t>(transfer.data()));
    ::ioctl(fd, rm_transfer, transfer.data());
    ::ioctl(fd, 0xffffffff, transfer.data());
    ::ioctl(fd, 0, 7);
    ::ioctl(-1, rm_control, some.data());
    ::ioctl(12345, rm_control, some.data());
    ::close(fd);
}

/// One thread opens and closes, so that the number is now this file and now that; each call says which one it meant.
void reuse(unsigned rounds) {
    const std::string plain = control_path + ".plain";
    ::close(::open(plain.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    for (std::uint32_t i = 0; i < rounds; ++i) {
        int fd = -1;
        std::thread{[&] { fd = open_node(control_path); }}.join();
        numbered_control(fd, 1, i);
        std::thread{[&] { ::close(fd); }}.join();
        const int other = ::open(plain.c_str(), O_RDWR | O_CLOEXEC);
        numbered_control(other, 2, i);
        std::thread{[&] {
            const int node = open_node(gpu_path);
            ::dup2(node, other);
            ::close(node);
        }}.join();
        numbered_control(other, 3, i);
        ::close(other);
    }
    ::unlink(plain.c_str());
}

/// Memory that another thread never leaves alone.
void changing(unsigned calls) {
    const int fd = open_node(control_path);
    std::array<std::uint32_t, 8> parameters{};
    Control control{1, plain_control, parameters.data(), sizeof parameters};
    volatile bool done = false;
    std::thread writer{[&] {
        for (std::uint32_t i = 0; !done; ++i) {
            put(parameters.data(), 4, i);
            put(control.bytes.data(), 24, i % 2 == 0 ? std::uint32_t{32} : std::uint32_t{0xfffffff0});
        }
    }};
    for (std::uint32_t i = 0; i < calls; ++i) {
        ::ioctl(fd, rm_control, control.bytes.data());
    }
    done = true;
    writer.join();
}

double now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Prints nanoseconds a call.
void timed_calls(unsigned calls) {
    const int fd = open_node(control_path);
    numbered_control(fd, 1, 0);
    const double start = now();
    for (std::uint32_t i = 0; i < calls; ++i) {
        numbered_control(fd, 1, i);
    }
    std::printf("%.1f\n", (now() - start) * 1e9 / calls);
}

/// A second's work of a program that also allocates, reads a file and locks now and then. Prints seconds.
void computes() {
    const double start = now();
    double sum = 0;
    for (unsigned block = 0; block < 64; ++block) {
        std::vector<double> values(1U << 20, 1.5);
        for (unsigned k = 0; k < 12; ++k) {
            for (double& value : values) {
                value = value * 1.0000001 + 0.5;
            }
        }
        sum += values[block];
        struct timespec time {};
        ::clock_gettime(CLOCK_REALTIME, &time);
        (void)::getppid();
    }
    std::printf("%.6f\n", now() - start);
    if (sum == 0) {
        std::exit(96);
    }
}

/// Waits for SIGUSR1 to begin, so that a tracer can attach before.
void waits_then_calls(unsigned calls) {
    sigset_t start{};
    ::sigemptyset(&start);
    ::sigaddset(&start, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &start, nullptr);
    const int fd = open_node(control_path);
    std::thread other{[&] {
        for (;;) {
            ::usleep(1000);
        }
    }};
    std::puts("ready");
    std::fflush(stdout);
    int number = 0;
    ::sigwait(&start, &number);
    for (std::uint32_t i = 0; i < calls; ++i) {
        numbered_control(fd, 1, i);
    }
    std::puts("done");
    std::fflush(stdout);
    ::sigwait(&start, &number);
    std::_Exit(17);
}

/// A call that a signal breaks into: started over by the kernel, or ended with EINTR.
void interrupted(bool start_over) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = start_over ? SA_RESTART : 0;
    ::sigaction(SIGALRM, &action, nullptr);
    const int fd = open_node(control_path);
    itimerval soon{};
    soon.it_value.tv_usec = 20000;
    ::setitimer(ITIMER_REAL, &soon, nullptr);
    const int answer = numbered_control(fd, slow_object, 600);
    const int error = errno;
    numbered_control(fd, 1, 601);
    if (start_over ? answer != 0 : (answer != -1 || error != EINTR)) {
        std::exit(97);
    }
}

[[noreturn]] void stops_and_goes() {
    std::puts("ready");
    std::fflush(stdout);
    ::raise(SIGSTOP);
    const int fd = open_node(control_path);
    numbered_control(fd, 1, 500);
    ::raise(SIGTERM);
    std::_Exit(97);
}

} // namespace

int main(int count, char** arguments) {
    self = arguments[0];
    std::vector<std::string_view> words(arguments + 1, arguments + count);
    if (!words.empty() && words.front() == "--supervised") {
        words.erase(words.begin());
        if (!start_supervisor()) {
            std::perror("seccomp");
            return 98;
        }
    }
    if (words.size() < 4) {
        return 99;
    }
    control_path = words[0];
    gpu_path = words[1];
    uvm_path = words[2];
    const std::string_view what = words[3];
    const auto number = [&](std::size_t i) {
        return i < words.size() ? static_cast<unsigned>(std::strtoul(std::string{words[i]}.c_str(), nullptr, 10)) : 0U;
    };
    if (what == "all-kinds") {
        all_kinds();
    } else if (what == "threads") {
        many_threads(number(4), number(5));
    } else if (what == "forks") {
        forks();
    } else if (what == "inherited") {
        return numbered_control(static_cast<int>(number(4)), 4, 320) == -1 && errno == EBADF ? 1 : 0;
    } else if (what == "passes") {
        passes();
    } else if (what == "dies") {
        dies_midway(number(4));
    } else if (what == "hostile") {
        hostile();
    } else if (what == "reuse") {
        reuse(number(4));
    } else if (what == "changing") {
        changing(number(4));
    } else if (what == "timed") {
        timed_calls(number(4));
    } else if (what == "computes") {
        computes();
    } else if (what == "waits") {
        waits_then_calls(number(4));
    } else if (what == "interrupted") {
        interrupted(number(4) != 0);
    } else if (what == "stops") {
        stops_and_goes();
    } else {
        return 99;
    }
    return 0;
}
