// SPDX-License-Identifier: BSD-3-Clause
#include "process_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

namespace upcie::rm {

namespace {

constexpr std::size_t page = 4096; // a step that never crosses more than it must; larger pages are multiples of it

void* remote(std::uint64_t address) {
    return reinterpret_cast<void*>(address); // never followed here
}

/// Reaches what process_vm_readv does not: mappings of device memory whose driver allows it, and all where that call
/// is forbidden.
std::size_t read_by_file(pid_t tid, std::uint64_t address, std::byte* to, std::size_t bytes, int& error) {
    const int file = ::open(fmt::format("/proc/{}/mem", tid).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        error = errno;
        return 0;
    }
    std::size_t done = 0;
    error = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(file, to + done, bytes - done, static_cast<off_t>(address + done));
        if (got <= 0) {
            error = got < 0 ? errno : EFAULT;
            break;
        }
        done += static_cast<std::size_t>(got);
    }
    ::close(file);
    // The file says EIO for what a system call would call EFAULT.
    error = error == EIO ? EFAULT : error;
    return done;
}

} // namespace

std::size_t ProcessMemory::read_some(std::uint64_t address, std::byte* to, std::size_t bytes, int& error) const {
    std::size_t done = 0;
    error = 0;
    while (done < bytes) {
        const iovec local{to + done, bytes - done};
        const iovec there{remote(address + done), bytes - done};
        const ssize_t got = ::process_vm_readv(tid_, &local, 1, &there, 1, 0);
        if (got > 0) {
            done += static_cast<std::size_t>(got);
            continue;
        }
        // What the thread itself could not read stays unread: the file would show it, as to a debugger.
        error = got < 0 ? errno : EFAULT;
        if (error == EFAULT) {
            return done;
        }
        return done + read_by_file(tid_, address + done, to + done, bytes - done, error);
    }
    return done;
}

Capture ProcessMemory::read_mapping(std::uint64_t address, std::size_t bytes) const {
    Capture capture = read(address, bytes);
    if (capture.error != 0) {
        capture.bytes.resize(bytes);
        capture.bytes.resize(read_by_file(tid_, address, capture.bytes.data(), bytes, capture.error));
    }
    return capture;
}

Capture ProcessMemory::read(std::uint64_t address, std::size_t bytes) const {
    Capture capture;
    if (bytes == 0) {
        return capture;
    }
    if (address + bytes < address) {
        capture.error = EFAULT;
        return capture;
    }
    capture.bytes.resize(bytes);
    capture.bytes.resize(read_some(address, capture.bytes.data(), bytes, capture.error));
    return capture;
}

void ProcessMemory::read_all(std::span<const Wanted> wanted) const {
    constexpr std::size_t most = 16;
    std::array<iovec, most> local{};
    std::array<iovec, most> there{};
    std::size_t total = 0;
    const bool together = wanted.size() > 1 && wanted.size() <= most;
    for (std::size_t i = 0; together && i < wanted.size(); ++i) {
        wanted[i].capture->bytes.resize(wanted[i].bytes);
        local[i] = {wanted[i].capture->bytes.data(), wanted[i].bytes};
        there[i] = {remote(wanted[i].address), wanted[i].bytes};
        total += wanted[i].bytes;
    }
    if (together && ::process_vm_readv(tid_, local.data(), wanted.size(), there.data(), wanted.size(), 0) ==
                        static_cast<ssize_t>(total)) {
        return;
    }
    for (const Wanted& one : wanted) {
        *one.capture = read(one.address, one.bytes);
    }
}

bool ProcessMemory::read_exactly(std::uint64_t address, void* to, std::size_t bytes) const {
    int error = 0;
    return address + bytes >= address && read_some(address, static_cast<std::byte*>(to), bytes, error) == bytes;
}

std::optional<std::string> ProcessMemory::text(std::uint64_t address) const {
    std::string all;
    std::array<char, 256> part{};
    while (all.size() < PATH_MAX) {
        // Not beyond the page: what follows it may not be there.
        const std::uint64_t at = address + all.size();
        const std::size_t bytes = std::min(part.size(), static_cast<std::size_t>(page - at % page));
        if (at < address || !read_exactly(at, part.data(), bytes)) {
            return std::nullopt;
        }
        if (const void* end = std::memchr(part.data(), 0, bytes)) {
            all.append(part.data(), static_cast<std::size_t>(static_cast<const char*>(end) - part.data()));
            return all;
        }
        all.append(part.data(), bytes);
    }
    return std::nullopt;
}

} // namespace upcie::rm
