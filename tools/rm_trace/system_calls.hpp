// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace upcie::rm {

/// What the tracer does at a system call. Calls that differ only in where their arguments lie share a kind.
enum class CallKind : std::uint8_t {
    none, ///< not looked at
    ioctl,
    open,
    close,
    close_range,
    duplicate,
    fcntl,
    map,
    unmap,
    remap,
    send_message,
    receive_message,
    take_descriptor, ///< pidfd_getfd
    poll,
    epoll_control,
    stat_path,       ///< a file by its path
    stat_descriptor, ///< fstat
    access,
    read_link,
    make_node,
    read,
    protect_self, ///< seccomp or prctl(PR_SET_SECCOMP): the program brings its own filter
    ring,         ///< io_uring_setup
    restart,      ///< restart_syscall
    leave,        ///< exit_group
};

/// Where a filter has to look besides the number.
enum class Condition : std::uint8_t {
    always,
    file_or_fixed_mapping, ///< mmap of a file, or with MAP_FIXED
    duplicating,           ///< fcntl with F_DUPFD or F_DUPFD_CLOEXEC
    sets_filter,           ///< prctl(PR_SET_SECCOMP)
    memory_only,           ///< only where memory is recorded
    watching_only,         ///< not by the filter: seen while a thread is stopped at every call
};

inline constexpr std::uint8_t no_argument = 0xff;

struct SystemCall {
    std::uint32_t number = 0;
    std::string_view name;
    CallKind kind = CallKind::none;
    Condition condition = Condition::always;
    std::uint8_t directory = no_argument; ///< which argument is the directory's descriptor
    std::uint8_t path = no_argument;
    std::uint8_t flags = no_argument;
    std::uint8_t mode = no_argument;
    std::uint8_t result = no_argument; ///< where an answer is put
};

/// The calls of this machine that are looked at.
[[nodiscard]] std::span<const SystemCall> system_calls() noexcept;
/// nullptr for one that is not.
[[nodiscard]] const SystemCall* find_system_call(std::uint64_t number) noexcept;

} // namespace upcie::rm
