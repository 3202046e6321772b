// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/dma_buf.hpp>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::dmabuf {

namespace {

/// The text behind "KEY:" at the start of a line.
std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const auto end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
        if (line.substr(0, key.size()) == key && line.size() > key.size() && line[key.size()] == ':') {
            line.remove_prefix(key.size() + 1);
            const auto begin = line.find_first_not_of(" \t");
            return begin == std::string_view::npos ? std::string_view{} : line.substr(begin);
        }
    }
    return std::nullopt;
}

} // namespace

Result<DmaBuf> DmaBuf::adopt(os::System& system, os::Fd fd) {
    const std::string place = fmt::format("/proc/self/fdinfo/{}", fd.get());
    if (!fd) {
        return fail(EBADF, "open dma-buf", place, "There is no descriptor.");
    }
    const auto text = os::read_text(system, place);
    if (!text) {
        return tl::unexpected{text.error()};
    }
    // Only dma-bufs have exp_name; "size" alone others have too.
    const auto exporter = value_of(*text, "exp_name");
    const auto size = value_of(*text, "size");
    std::uint64_t bytes = 0;
    if (!exporter || !size || std::from_chars(size->data(), size->data() + size->size(), bytes).ec != std::errc{}) {
        return fail(EINVAL, "open dma-buf", place,
                    "The descriptor is not a dma-buf: the kernel tells no exporter of it. A memfd becomes one by "
                    "create_udmabuf().");
    }
    DmaBuf made;
    made.system_ = &system;
    made.fd_ = std::move(fd);
    made.facts_ = {ByteCount{bytes}, std::string{*exporter}, std::string{value_of(*text, "name").value_or("")}};
    return made;
}

Result<void> DmaBuf::begin_cpu_access(CpuAccess access) {
    return sync(DMA_BUF_SYNC_START | static_cast<std::uint64_t>(access), "DMA_BUF_IOCTL_SYNC (start)");
}

Result<void> DmaBuf::end_cpu_access(CpuAccess access) {
    return sync(DMA_BUF_SYNC_END | static_cast<std::uint64_t>(access), "DMA_BUF_IOCTL_SYNC (end)");
}

Result<void> DmaBuf::sync(std::uint64_t flags, const char* operation) {
    if (!fd_) {
        return fail(EBADF, operation, "dma-buf", "This object holds none.");
    }
    dma_buf_sync request{};
    request.flags = flags;
    while (system_->ioctl(fd_.get(), DMA_BUF_IOCTL_SYNC, &request) < 0) {
        const int code = errno;
        // dma-buf.rst: to be repeated on both.
        if (code != EINTR && code != EAGAIN) {
            return fail(code, operation, fmt::format("dma-buf of {}", facts_.exporter),
                        "The exporter refuses; a revoked buffer (ENODEV) has to be exported again.");
        }
    }
    return {};
}

} // namespace upcie::dmabuf
