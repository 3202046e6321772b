// SPDX-License-Identifier: BSD-3-Clause
// Files by their path: opens, stats, and reads of what the driver's libraries consult.
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "calls.hpp"

namespace upcie::rm {

namespace {

/// Of one read: the files in question are texts of a few KiB.
constexpr std::size_t most_of_a_read = 65536;
/// How long a thread may be stopped at every call for the sake of one file. Whoever keeps it open longer would be
/// slowed down for good.
constexpr unsigned most_watched_calls = 4096;

std::uint64_t argument_at(const PendingCall& call, std::uint8_t index) {
    return index < call.arguments.size() ? call.arguments[index] : 0;
}

} // namespace

std::string Calls::whole_path(const Task& task, const PendingCall& call, const std::string& path) const {
    if (path.empty() || path.front() == '/') {
        return path;
    }
    const int directory =
        call.call->directory != no_argument ? static_cast<int>(argument_at(call, call.call->directory)) : AT_FDCWD;
    std::string folder;
    if (directory == AT_FDCWD) {
        std::string target(PATH_MAX, '\0');
        const ssize_t bytes = ::readlink(fmt::format("/proc/{}/cwd", task.tid).c_str(), target.data(), target.size());
        folder = target.substr(0, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    } else {
        folder = descriptor_target(task.tid, directory);
    }
    return folder + "/" + path;
}

bool Calls::enter_open(Task& task, PendingCall& call) {
    const ProcessMemory memory{task.tid};
    OpenRecord record;
    record.call = call.call->name;
    record.path = memory.text(argument_at(call, call.call->path)).value_or(std::string{});
    record.flags = static_cast<std::uint32_t>(argument_at(call, call.call->flags));
    record.mode = static_cast<std::uint32_t>(argument_at(call, call.call->mode));
    if (call.call->number == SYS_openat2) {
        if (const auto how = memory.value<open_how>(call.arguments[2])) {
            record.flags = how->flags;
            record.mode = static_cast<std::uint32_t>(how->mode);
        }
    } else if (call.call->flags == no_argument) {
        record.flags = O_CREAT | O_WRONLY | O_TRUNC; // creat
    }
    // Mode means something only where a file may be made.
    record.mode = (record.flags & (O_CREAT | __O_TMPFILE)) != 0 ? record.mode : 0;
    call.bodies.emplace_back(std::move(record));
    return true;
}

void Calls::leave_open(Task& task, PendingCall& call) {
    if (call.outcome.kind == Outcome::Kind::interrupted) {
        return; // it may start again
    }
    auto& record = std::get<OpenRecord>(call.bodies.front());
    const std::string path = whole_path(task, call, record.path);
    Interest interest = nodes_.is_pretended(path) ? Interest::named : interest_in(path);
    if (call.outcome.succeeded()) {
        const int fd = static_cast<int>(call.outcome.value);
        nodes_.look_again();
        struct stat status {};
        if (auto node = nodes_.of_descriptor(task.tid, fd, status)) {
            record.is_node = true;
            record.node = std::move(*node);
            interest = Interest::named;
        }
        if (S_ISCHR(status.st_mode)) {
            record.device_major = major(status.st_rdev);
            record.device_minor = minor(status.st_rdev);
        }
        if (interest != Interest::none) {
            record.resolved = descriptor_target(task.tid, fd);
        }
        const bool readable = (record.flags & O_ACCMODE) != O_WRONLY && (record.flags & O_PATH) == 0;
        if (interest == Interest::content && readable && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) {
            watch(task, fd, record.resolved);
        }
    }
    if (interest == Interest::none) {
        call.bodies.clear();
        return;
    }
    if (!record.resolved.empty()) {
        if (auto version = library_version(record.resolved)) {
            std::string resolved = record.resolved; // `record` moves when the list grows
            call.bodies.emplace_back(LibraryRecord{std::move(resolved), std::move(*version)});
        }
    }
}

void Calls::watch(Task& task, int fd, std::string path) {
    std::erase_if(task.process->watched, [&](const WatchedFile& one) { return one.fd == fd; });
    task.process->watched.push_back({fd, task.tid, std::move(path), most_watched_calls});
}

void Calls::count_watched(Task& task) {
    for (WatchedFile& one : task.process->watched) {
        if (one.tid == task.tid && --one.calls_left == 0) {
            note(task, "read-unwatched",
                 fmt::format("{} stays open: what is read from it from here on is not recorded", one.path));
        }
    }
    std::erase_if(task.process->watched, [](const WatchedFile& one) { return one.calls_left == 0; });
}

bool Calls::enter_stat(Task& task, PendingCall& call) {
    StatRecord record;
    record.call = call.call->name;
    record.flags = static_cast<std::uint32_t>(argument_at(call, call.call->flags));
    bool wanted = false;
    if (call.call->kind == CallKind::stat_descriptor) {
        record.fd = static_cast<int>(call.arguments[0]);
        wanted = nodes_.of_descriptor(task.tid, record.fd).has_value();
    } else {
        record.path = ProcessMemory{task.tid}.text(argument_at(call, call.call->path)).value_or(std::string{});
        if (call.call->directory != no_argument) {
            record.fd = static_cast<int>(argument_at(call, call.call->directory));
            record.fd = record.fd == AT_FDCWD ? -1 : record.fd;
        }
        if (record.path.empty()) {
            wanted = record.fd >= 0 && nodes_.of_descriptor(task.tid, record.fd).has_value();
        } else {
            const std::string path = whole_path(task, call, record.path);
            wanted = interest_in(path) != Interest::none || nodes_.is_pretended(path);
        }
    }
    if (!wanted) {
        return false;
    }
    if (call.call->mode != no_argument) { // access, mknod
        record.mode = static_cast<std::uint32_t>(argument_at(call, call.call->mode));
        if (call.call->kind == CallKind::make_node) {
            const auto device = static_cast<dev_t>(argument_at(call, static_cast<std::uint8_t>(call.call->mode + 1)));
            record.device_major = major(device);
            record.device_minor = minor(device);
        }
    }
    call.bodies.emplace_back(std::move(record));
    return true;
}

void Calls::leave_stat(const Task& task, PendingCall& call) {
    auto& record = std::get<StatRecord>(call.bodies.front());
    if (!call.outcome.succeeded()) {
        return;
    }
    const ProcessMemory memory{task.tid};
    const std::uint64_t place = argument_at(call, call.call->result);
    if (call.call->kind == CallKind::read_link) {
        const Capture target = memory.read(place, static_cast<std::size_t>(call.outcome.value));
        for (const std::byte letter : target.bytes) {
            record.target += static_cast<char>(letter);
        }
    } else if (call.call->number == SYS_statx) {
        if (const auto status = memory.value<struct statx>(place)) {
            record.mode = status->stx_mode;
            record.device_major = status->stx_rdev_major;
            record.device_minor = status->stx_rdev_minor;
        }
    } else if (const auto status = memory.value<struct stat>(place)) {
        record.mode = status->st_mode;
        record.device_major = major(status->st_rdev);
        record.device_minor = minor(status->st_rdev);
    }
}

bool Calls::enter_read(const Task& task, PendingCall& call) {
    const int fd = static_cast<int>(call.arguments[0]);
    const auto& watched = task.process->watched;
    const auto found = std::find_if(watched.begin(), watched.end(), [&](const auto& one) { return one.fd == fd; });
    if (found == watched.end()) {
        return false;
    }
    ReadRecord record;
    record.call = call.call->name;
    record.fd = fd;
    record.path = found->path;
    record.size = call.arguments[2];
    record.offset = call.call->number == SYS_pread64 ? call.arguments[3] : 0;
    record.content.path = "content";
    record.content.address = call.arguments[1];
    call.bodies.emplace_back(std::move(record));
    return true;
}

void Calls::leave_read(const Task& task, PendingCall& call) {
    auto& content = std::get<ReadRecord>(call.bodies.front()).content;
    content.size = call.outcome.succeeded() ? static_cast<std::uint64_t>(call.outcome.value) : 0;
    content.cut = content.size > most_of_a_read;
    content.after = ProcessMemory{task.tid}.read(content.address, std::min<std::size_t>(content.size, most_of_a_read));
}

void Calls::end_descriptor(Task& task, PendingCall& call, int fd) {
    const bool was_watched =
        std::erase_if(task.process->watched, [&](const WatchedFile& one) { return one.fd == fd; }) != 0;
    auto node = nodes_.of_descriptor(task.tid, fd);
    if (node || was_watched) {
        nodes_.forget();
        CloseRecord record;
        record.fd = fd;
        record.is_node = node.has_value();
        record.node = node ? std::move(*node) : NodeName{};
        call.bodies.emplace_back(std::move(record));
    }
}

bool Calls::enter_close(Task& task, PendingCall& call) {
    end_descriptor(task, call, static_cast<int>(call.arguments[0]));
    return !call.bodies.empty();
}

bool Calls::enter_close_range(Task& task, PendingCall& call) {
    constexpr std::uint64_t close_on_exec = 4; // CLOSE_RANGE_CLOEXEC: nothing is closed now
    if ((call.arguments[2] & close_on_exec) != 0) {
        return false;
    }
    const auto inside = [&](int fd) {
        return static_cast<std::uint32_t>(fd) >= static_cast<std::uint32_t>(call.arguments[0]) &&
               static_cast<std::uint32_t>(fd) <= static_cast<std::uint32_t>(call.arguments[1]);
    };
    std::vector<int> ended;
    for (const HeldNode& one : nodes_.held(task.tid)) {
        ended.push_back(one.fd);
    }
    for (const WatchedFile& one : task.process->watched) {
        ended.push_back(one.fd);
    }
    std::ranges::sort(ended);
    for (const int fd : ended) {
        if (inside(fd)) {
            end_descriptor(task, call, fd);
        }
    }
    return !call.bodies.empty();
}

} // namespace upcie::rm
