// SPDX-License-Identifier: BSD-3-Clause
// Numbers differ by architecture, and newer ones lack the older calls: what the headers do not have does not exist.
#include "system_calls.hpp"

#include <array>
#include <vector>

#include <sys/syscall.h>

namespace upcie::rm {

namespace {

constexpr std::uint8_t none = no_argument;

constexpr SystemCall calls[] = {
    {SYS_ioctl, "ioctl", CallKind::ioctl},
#ifdef SYS_open
    {SYS_open, "open", CallKind::open, Condition::always, none, 0, 1, 2},
    {SYS_creat, "creat", CallKind::open, Condition::always, none, 0, none, 1},
#endif
    {SYS_openat, "openat", CallKind::open, Condition::always, 0, 1, 2, 3},
    {SYS_openat2, "openat2", CallKind::open, Condition::always, 0, 1}, // flags and mode lie in memory
    {SYS_close, "close", CallKind::close},
    {SYS_close_range, "close_range", CallKind::close_range},
    {SYS_dup, "dup", CallKind::duplicate},
#ifdef SYS_dup2
    {SYS_dup2, "dup2", CallKind::duplicate},
#endif
    {SYS_dup3, "dup3", CallKind::duplicate},
    {SYS_fcntl, "fcntl", CallKind::fcntl, Condition::duplicating},
    {SYS_mmap, "mmap", CallKind::map, Condition::file_or_fixed_mapping},
    {SYS_munmap, "munmap", CallKind::unmap},
    {SYS_mremap, "mremap", CallKind::remap},
    {SYS_sendmsg, "sendmsg", CallKind::send_message},
    {SYS_recvmsg, "recvmsg", CallKind::receive_message},
    {SYS_pidfd_getfd, "pidfd_getfd", CallKind::take_descriptor},
#ifdef SYS_poll
    {SYS_poll, "poll", CallKind::poll},
#endif
    {SYS_ppoll, "ppoll", CallKind::poll},
    {SYS_epoll_ctl, "epoll_ctl", CallKind::epoll_control},
#ifdef SYS_stat
    {SYS_stat, "stat", CallKind::stat_path, Condition::always, none, 0, none, none, 1},
    {SYS_lstat, "lstat", CallKind::stat_path, Condition::always, none, 0, none, none, 1},
#endif
    {SYS_newfstatat, "newfstatat", CallKind::stat_path, Condition::always, 0, 1, 3, none, 2},
    {SYS_statx, "statx", CallKind::stat_path, Condition::always, 0, 1, 2, none, 4},
    {SYS_fstat, "fstat", CallKind::stat_descriptor, Condition::always, none, none, none, none, 1},
#ifdef SYS_access
    {SYS_access, "access", CallKind::access, Condition::always, none, 0, none, 1},
#endif
    {SYS_faccessat, "faccessat", CallKind::access, Condition::always, 0, 1, none, 2},
    {SYS_faccessat2, "faccessat2", CallKind::access, Condition::always, 0, 1, 3, 2},
#ifdef SYS_readlink
    {SYS_readlink, "readlink", CallKind::read_link, Condition::always, none, 0, none, none, 1},
#endif
    {SYS_readlinkat, "readlinkat", CallKind::read_link, Condition::always, 0, 1, none, none, 2},
#ifdef SYS_mknod
    {SYS_mknod, "mknod", CallKind::make_node, Condition::always, none, 0, none, 1},
#endif
    {SYS_mknodat, "mknodat", CallKind::make_node, Condition::always, 0, 1, none, 2},
    {SYS_read, "read", CallKind::read, Condition::watching_only},
    {SYS_pread64, "pread64", CallKind::read, Condition::watching_only},
    {SYS_getdents64, "getdents64", CallKind::read, Condition::watching_only},
    {SYS_seccomp, "seccomp", CallKind::protect_self},
    {SYS_prctl, "prctl", CallKind::protect_self, Condition::sets_filter},
    {SYS_io_uring_setup, "io_uring_setup", CallKind::ring},
    {SYS_restart_syscall, "restart_syscall", CallKind::restart},
    {SYS_exit_group, "exit_group", CallKind::leave, Condition::memory_only},
};

/// By number, since this is asked at every stop.
std::vector<const SystemCall*> by_number() {
    std::vector<const SystemCall*> table;
    for (const SystemCall& one : calls) {
        if (table.size() <= one.number) {
            table.resize(one.number + 1, nullptr);
        }
        table[one.number] = &one;
    }
    return table;
}

} // namespace

std::span<const SystemCall> system_calls() noexcept {
    return calls;
}

const SystemCall* find_system_call(std::uint64_t number) noexcept {
    static const std::vector<const SystemCall*> table = by_number();
    return number < table.size() ? table[number] : nullptr;
}

} // namespace upcie::rm
