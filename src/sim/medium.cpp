// SPDX-License-Identifier: BSD-3-Clause
#include "sim/medium.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <upcie/os/fd.hpp>

namespace upcie::sim {

namespace {

constexpr std::size_t medium_page = 4096;

Result<os::Fd> open_backing(os::System& system, const Options& options) {
    os::Fd fd{system, system.open(options.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
    if (!fd) {
        return fail(errno, "open", options.file, "file= names a file that can be read and written, or made.");
    }
    struct stat status {};
    if (system.fstat(fd.get(), &status) != 0) {
        return fail(errno, "fstat", options.file, "file= names an ordinary file.");
    }
    const std::uint64_t wanted = options.size.value() * options.namespaces;
    if (!S_ISREG(status.st_mode) || wanted > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
        return fail(EINVAL, "open", options.file, "file= names an ordinary file, and size * ns fits into one.");
    }
    if (status.st_size == 0) {
        if (system.ftruncate(fd.get(), static_cast<off_t>(wanted)) != 0) {
            return fail(errno, "ftruncate", options.file, "The file system takes no file of that size.");
        }
    } else if (static_cast<std::uint64_t>(status.st_size) != wanted) {
        return fail(EINVAL, "open", options.file,
                    fmt::format("The file has {} bytes, but size * ns is {}: give the size that it was made with, or "
                                "another file.",
                                status.st_size, wanted));
    }
    return fd;
}

} // namespace

Result<std::vector<Medium>> Medium::create(os::System& system, const Options& options) {
    std::vector<Medium> media;
    os::Fd fd;
    if (!options.file.empty()) {
        auto opened = open_backing(system, options);
        if (!opened) {
            return tl::unexpected{std::move(opened.error())};
        }
        fd = std::move(*opened);
    }
    for (std::uint32_t i = 0; i < options.namespaces; ++i) {
        if (fd) {
            auto memory =
                os::Mapping::map(system, fd.get(), static_cast<off_t>(options.size.value() * i), options.size);
            if (!memory) {
                return tl::unexpected{std::move(memory.error())};
            }
            media.push_back(Medium{system, std::move(*memory), options.block_size, false});
            continue;
        }
        void* const memory = system.mmap(nullptr, static_cast<std::size_t>(options.size.value()),
                                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) { // NOLINT: the macro holds a C cast
            return fail(errno, "mmap", fmt::format("simulated namespace {} of {} bytes", i + 1, options.size.value()),
                        "There is no address space for it: take a smaller size= or fewer ns=.");
        }
        media.push_back(Medium{system, os::Mapping{system, memory, options.size}, options.block_size, true});
    }
    return media;
}

void Medium::zero(std::uint64_t lba, std::uint64_t count) noexcept {
    std::span<std::byte> range = bytes(lba, count);
    const auto offset = static_cast<std::size_t>(range.data() - memory_.data());
    const std::size_t first = (offset + medium_page - 1) / medium_page * medium_page;
    const std::size_t last = (offset + range.size()) / medium_page * medium_page;
    // Fresh pages in place of large zeroed ones: a sparse terabyte stays sparse when it is formatted.
    if (anonymous_ && first < last && last - first >= 64 * medium_page) {
        void* const renewed = system_->mmap(memory_.data() + first, last - first, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (renewed != MAP_FAILED) { // NOLINT: the macro holds a C cast
            std::memset(range.data(), 0, first - offset);
            std::memset(memory_.data() + last, 0, offset + range.size() - last);
            return;
        }
    }
    // A file's holes stay holes: only what is not zero is written.
    static const std::array<std::byte, medium_page> zeroes{};
    while (!range.empty()) {
        const std::size_t here = std::min(range.size(), medium_page);
        if (std::memcmp(range.data(), zeroes.data(), here) != 0) {
            std::memset(range.data(), 0, here);
        }
        range = range.subspan(here);
    }
}

void Medium::format(std::uint32_t block_size) noexcept {
    zero(0, blocks());
    block_size_ = block_size;
}

} // namespace upcie::sim
