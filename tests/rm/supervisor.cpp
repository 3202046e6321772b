// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <semaphore>
#include <thread>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "target_calls.hpp"

namespace upcie::rm::target {

namespace {

void serve(int listener) {
    for (;;) {
        seccomp_notif call{};
        if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
            if (errno == EINTR || errno == ENOENT) {
                continue;
            }
            return;
        }
        const auto request = static_cast<std::uint32_t>(call.data.args[1]);
        if (is_slow(static_cast<pid_t>(call.pid), request, call.data.args[2])) {
            ::usleep(100000);
        }
        seccomp_notif_resp answer{};
        answer.id = call.id;
        answer.error = -answer_ioctl(static_cast<pid_t>(call.pid), request, call.data.args[2]);
        (void)::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

} // namespace

bool start_supervisor() {
    // Made before the filter, so that its own ioctls are not held up.
    static std::binary_semaphore ready{0};
    static int listener = -1;
    std::thread{[] {
        ready.acquire();
        if (listener >= 0) {
            serve(listener);
        }
    }}.detach();
    constexpr unsigned request = offsetof(seccomp_data, args) + 8;
    constexpr auto statement = [](std::uint16_t code, std::uint32_t value) { return sock_filter{code, 0, 0, value}; };
    constexpr auto jump = [](std::uint16_t code, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
        return sock_filter{code, yes, no, value};
    };
    std::array filter{
        statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 7),
        statement(BPF_LD | BPF_W | BPF_ABS, request),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 0x30000001, 4, 0),
        jump(BPF_JMP | BPF_JGT | BPF_K, 0x3fff, 0, 3), // UVM's small numbers
        statement(BPF_ALU | BPF_RSH | BPF_K, 8),
        statement(BPF_ALU | BPF_AND | BPF_K, 0xff),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 'F', 0, 1),
        statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return false;
    }
    listener =
        static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    const int kept = errno;
    ready.release();
    errno = kept;
    return listener >= 0;
}

} // namespace upcie::rm::target
