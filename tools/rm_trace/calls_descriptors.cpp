// SPDX-License-Identifier: BSD-3-Clause
// Descriptors on their way: duplicated, passed over sockets, waited on.
#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "calls.hpp"

namespace upcie::rm {

namespace {

constexpr std::size_t most_control_bytes = 65536;
/// Of one poll: looked at one by one.
constexpr std::size_t most_polled = 1024;

/// The descriptors that a message's control data carries (cmsg(3); what is cut off is not looked at).
std::vector<int> descriptors_in(const std::vector<std::byte>& control) {
    std::vector<int> found;
    std::size_t at = 0;
    while (at + sizeof(cmsghdr) <= control.size()) {
        cmsghdr head{};
        std::memcpy(&head, control.data() + at, sizeof head);
        if (head.cmsg_len < sizeof head || head.cmsg_len > control.size() - at) {
            break;
        }
        if (head.cmsg_level == SOL_SOCKET && head.cmsg_type == SCM_RIGHTS) {
            for (std::size_t i = CMSG_LEN(0); i + sizeof(int) <= head.cmsg_len; i += sizeof(int)) {
                int fd = -1;
                std::memcpy(&fd, control.data() + at + i, sizeof fd);
                found.push_back(fd);
            }
        }
        at += CMSG_ALIGN(head.cmsg_len);
    }
    return found;
}

std::vector<int> descriptors_of_message(const ProcessMemory& memory, std::uint64_t message) {
    const auto head = memory.value<msghdr>(message);
    if (!head || head->msg_control == nullptr || head->msg_controllen < sizeof(cmsghdr)) {
        return {};
    }
    const auto control = memory.read(reinterpret_cast<std::uint64_t>(head->msg_control),
                                     std::min<std::size_t>(head->msg_controllen, most_control_bytes));
    return descriptors_in(control.bytes);
}

} // namespace

bool Calls::enter_duplicate(Task& task, PendingCall& call) {
    const int fd = static_cast<int>(call.arguments[0]);
    bool close_on_exec = false;
    if (call.call->kind == CallKind::fcntl) {
        const auto operation = static_cast<int>(call.arguments[1]);
        if (operation != F_DUPFD && operation != F_DUPFD_CLOEXEC) {
            return false;
        }
        close_on_exec = operation == F_DUPFD_CLOEXEC;
    } else if (call.call->number != SYS_dup) {
        const int target = static_cast<int>(call.arguments[1]);
        if (target != fd) {
            end_descriptor(task, call, target);
        }
        close_on_exec = call.call->number == SYS_dup3 && (call.arguments[2] & O_CLOEXEC) != 0;
    }
    if (auto node = nodes_.of_descriptor(task.tid, fd)) {
        DuplicateRecord record;
        record.node = std::move(*node);
        record.fd = fd;
        record.close_on_exec = close_on_exec;
        call.bodies.emplace_back(std::move(record));
    }
    return !call.bodies.empty();
}

bool Calls::enter_message(const Task& task, PendingCall& call) {
    const ProcessMemory memory{task.tid};
    const int socket = static_cast<int>(call.arguments[0]);
    if (call.call->kind == CallKind::receive_message) {
        const auto head = memory.value<msghdr>(call.arguments[1]);
        return head && head->msg_control != nullptr && head->msg_controllen >= sizeof(cmsghdr);
    }
    for (const int fd : descriptors_of_message(memory, call.arguments[1])) {
        if (auto node = nodes_.of_descriptor(task.tid, fd)) {
            call.bodies.emplace_back(PassRecord{false, socket, fd, std::move(*node), {}});
        }
    }
    return !call.bodies.empty();
}

void Calls::leave_message(const Task& task, PendingCall& call) {
    if (!call.outcome.succeeded()) {
        return;
    }
    const ProcessMemory memory{task.tid};
    for (const int fd : descriptors_of_message(memory, call.arguments[1])) {
        if (auto node = nodes_.of_descriptor(task.tid, fd)) {
            call.bodies.emplace_back(PassRecord{true, static_cast<int>(call.arguments[0]), fd, std::move(*node), {}});
        }
    }
}

void Calls::leave_taken(const Task& task, PendingCall& call) {
    if (!call.outcome.succeeded()) {
        return;
    }
    const int fd = static_cast<int>(call.outcome.value);
    if (auto node = nodes_.of_descriptor(task.tid, fd)) {
        call.bodies.emplace_back(PassRecord{true, -1, fd, std::move(*node), {}});
    }
}

bool Calls::enter_poll(const Task& task, PendingCall& call) {
    PollRecord record;
    record.call = call.call->name;
    record.entries = static_cast<std::uint32_t>(call.arguments[1]);
    const ProcessMemory memory{task.tid};
    std::vector<pollfd> polled(std::min<std::size_t>(record.entries, most_polled));
    if (polled.empty() || !memory.read_exactly(call.arguments[0], polled.data(), polled.size() * sizeof(pollfd))) {
        return false;
    }
    for (const pollfd& one : polled) {
        if (auto node = nodes_.of_descriptor(task.tid, one.fd)) {
            record.nodes.push_back({one.fd, std::move(*node), static_cast<std::uint16_t>(one.events), 0});
        }
    }
    if (record.nodes.empty()) {
        return false;
    }
    if (call.call->number == SYS_ppoll) {
        if (const auto timeout = memory.value<timespec>(call.arguments[2])) {
            record.timeout_ns = timeout->tv_sec * 1'000'000'000 + timeout->tv_nsec;
        }
    } else if (const auto milliseconds = static_cast<int>(call.arguments[2]); milliseconds >= 0) {
        record.timeout_ns = std::int64_t{milliseconds} * 1'000'000;
    }
    call.bodies.emplace_back(std::move(record));
    return true;
}

void Calls::leave_poll(const Task& task, PendingCall& call) {
    auto& record = std::get<PollRecord>(call.bodies.front());
    if (!call.outcome.succeeded()) {
        return;
    }
    std::vector<pollfd> polled(std::min<std::size_t>(record.entries, most_polled));
    if (!ProcessMemory{task.tid}.read_exactly(call.arguments[0], polled.data(), polled.size() * sizeof(pollfd))) {
        return;
    }
    auto entry = record.nodes.begin();
    for (const pollfd& one : polled) {
        if (entry != record.nodes.end() && entry->fd == one.fd) {
            entry->answered = static_cast<std::uint16_t>(one.revents);
            ++entry;
        }
    }
}

bool Calls::enter_epoll(const Task& task, PendingCall& call) {
    const int fd = static_cast<int>(call.arguments[2]);
    auto node = nodes_.of_descriptor(task.tid, fd);
    if (!node) {
        return false;
    }
    PollRecord record;
    record.call = call.call->name;
    record.entries = 1;
    record.epoll = static_cast<int>(call.arguments[0]);
    record.operation = static_cast<int>(call.arguments[1]);
    const auto event = ProcessMemory{task.tid}.value<epoll_event>(call.arguments[3]);
    record.nodes.push_back({fd, std::move(*node), event ? event->events : 0, 0});
    call.bodies.emplace_back(std::move(record));
    return true;
}

} // namespace upcie::rm
