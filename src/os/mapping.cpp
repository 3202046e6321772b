// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/mapping.hpp>

#include <cerrno>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <sys/mman.h>

namespace upcie::os {

namespace {

std::string mmap_hint(int code) {
    switch (code) {
    case EINVAL:
        return "Offset and length must be multiples of the page size and lie where the file lets itself be mapped.";
    case EACCES:
    case EPERM:
        return "The descriptor was not opened for that kind of access, or a seal forbids writing.";
    case ENOMEM:
        return "No address space or memory left; for hugepages none is free: see HugePages_Free in /proc/meminfo.";
    case ENODEV:
        return "This file cannot be mapped.";
    case EAGAIN:
        return "Too much memory is locked: see RLIMIT_MEMLOCK (ulimit -l).";
    default:
        return {};
    }
}

} // namespace

void Mapping::reset() noexcept {
    if (address_ != nullptr) {
        if (keep_) {
            keep_.reset();
        } else {
            system_->munmap(address_, static_cast<std::size_t>(length_.value()));
        }
        address_ = nullptr;
        length_ = ByteCount{};
    }
}

Result<Mapping> Mapping::map(System& system, int fd, off_t offset, ByteCount length, bool writable) {
    const auto subject = [&] {
        return fmt::format("descriptor {}, offset 0x{:x}, {} bytes", fd, static_cast<std::uint64_t>(offset),
                           length.value());
    };
    // mmap rounds a length up silently, so that only 0 and what does not fit a size_t are for us to refuse.
    if (length.value() == 0 || length.value() > std::numeric_limits<std::size_t>::max() / 2) {
        return fail(EINVAL, "mmap", subject(), "The length must be at least 1 and fit the address space.");
    }
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const address =
        system.mmap(nullptr, static_cast<std::size_t>(length.value()), protection, MAP_SHARED, fd, offset);
    if (address == MAP_FAILED) { // NOLINT: the macro holds a C cast
        const int code = errno;
        return fail(code, "mmap", subject(), mmap_hint(code));
    }
    return Mapping{system, address, length};
}

} // namespace upcie::os
