// SPDX-License-Identifier: BSD-3-Clause
#include "fill.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::cli {

Result<Fill> Fill::pattern(const std::string& text, std::uint64_t seed, const Target& target) {
    Fill fill;
    fill.block_size_ = target.block_size();
    std::uint64_t byte = 0;
    if (text == "stamp") {
        fill.stamp_ = Stamp{seed, target.info.nsid.value(), target.block_size(), 0, 1};
    } else if (text == "ones") {
        fill.byte_ = 0xff;
    } else if (text.substr(0, 2) == "0x" && os::parse_hex(text, byte) && byte <= 0xff) {
        fill.byte_ = static_cast<std::uint8_t>(byte);
    } else if (text != "zero") {
        return fail(EINVAL, "choose pattern", text, "There are zero, ones, a byte such as 0xa5, and stamp.");
    }
    return fill;
}

Result<Fill> Fill::file(os::System& system, const std::string& path, std::uint64_t lba, std::uint32_t block_size) {
    Fill fill;
    auto opened = os::open_file(system, path.c_str(), O_RDONLY);
    if (!opened) {
        return tl::unexpected{std::move(opened.error())};
    }
    struct stat status {};
    if (system.fstat(opened->get(), &status) != 0) {
        const int code = errno;
        return fail(code, "fstat", path, {});
    }
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        return fail(EINVAL, "read input", path, "It has to be a regular file with something in it.");
    }
    fill.system_ = &system;
    fill.file_ = std::move(*opened);
    fill.path_ = path;
    fill.file_lba_ = lba;
    fill.block_size_ = block_size;
    fill.file_blocks_ = (static_cast<std::uint64_t>(status.st_size) + block_size - 1) / block_size;
    return fill;
}

Result<void> Fill::fill(std::span<std::byte> memory, std::uint64_t lba) {
    if (stamp_) {
        for (std::size_t offset = 0; offset < memory.size(); offset += block_size_) {
            Stamp stamp = *stamp_;
            stamp.lba = lba++;
            write_stamp(memory.subspan(offset, block_size_), stamp);
        }
        return {};
    }
    std::memset(memory.data(), byte_, memory.size());
    if (!file_blocks_) {
        return {};
    }
    std::uint64_t offset = (lba - file_lba_) * block_size_;
    while (!memory.empty()) {
        const ssize_t got = system_->pread(file_.get(), memory.data(), memory.size(), static_cast<off_t>(offset));
        if (got < 0) {
            const int code = errno;
            return fail(code, "read", path_, {});
        }
        if (got == 0) {
            break; // the rest of the last block stays zero
        }
        memory = memory.subspan(static_cast<std::size_t>(got));
        offset += static_cast<std::uint64_t>(got);
    }
    return {};
}

} // namespace upcie::cli
