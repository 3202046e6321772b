// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/udmabuf.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>

namespace upcie::dmabuf {

namespace {

// The kernel's smallest: what it refuses beyond that, it says itself.
constexpr std::uint64_t page = 4096;
// The module's default limit is 1024, and its parameter may raise it: an allocation's bound, no judgement.
constexpr std::size_t most_pieces = std::size_t{1} << 20;

/// struct udmabuf_create_list without its list: an array of no length is none in C++.
struct Head {
    std::uint32_t flags = 0;
    std::uint32_t count = 0;
};
static_assert(sizeof(Head) == offsetof(udmabuf_create_list, list));

const char* open_hint(int code) {
    switch (code) {
    case ENOENT:
        return "modprobe udmabuf (the kernel needs CONFIG_UDMABUF).";
    case EACCES:
        return "You may not open it: change its owner or mode (docs/permissions.md), or run as root.";
    default:
        return "";
    }
}

const char* create_hint(int code) {
    switch (code) {
    case EINVAL:
        return "A piece lies outside its memfd or is not page-aligned, a memfd lacks F_SEAL_SHRINK or has "
               "F_SEAL_WRITE, "
               "or there are more pieces or bytes than udmabuf's parameters list_limit and size_limit_mb allow.";
    case EBADF:
        return "A descriptor is not a memfd.";
    case ENOMEM:
        return "The kernel has no memory for the page list.";
    default:
        return "";
    }
}

Result<void> check(std::span<const MemfdRange> pieces) {
    const auto refuse = [](std::string hint) {
        return fail(EINVAL, "UDMABUF_CREATE_LIST", "udmabuf", std::move(hint));
    };
    if (pieces.empty() || pieces.size() > most_pieces) {
        return refuse(fmt::format("{} pieces were given, 1 to {} make a dma-buf.", pieces.size(), most_pieces));
    }
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        const MemfdRange& piece = pieces[index];
        if (piece.length.value() == 0 || piece.length.value() % page != 0 || piece.offset.value() % page != 0) {
            return refuse(fmt::format("Piece {} ({} bytes from {}) is not whole pages of {} bytes.", index,
                                      piece.length.value(), piece.offset.value(), page));
        }
    }
    return {};
}

} // namespace

Result<DmaBuf> create_udmabuf(os::System& system, std::span<const MemfdRange> pieces, const char* node) {
    if (auto sound = check(pieces); !sound) {
        return tl::unexpected{std::move(sound.error())};
    }
    const int opened = system.open(node, O_RDWR | O_CLOEXEC);
    if (opened < 0) {
        const int code = errno;
        return fail(code, "open", node, open_hint(code));
    }
    const os::Fd device{system, opened};
    // The structure ends in its list.
    std::vector<std::byte> request(sizeof(Head) + pieces.size() * sizeof(udmabuf_create_item));
    Head head;
    head.flags = UDMABUF_FLAGS_CLOEXEC;
    head.count = static_cast<std::uint32_t>(pieces.size());
    std::memcpy(request.data(), &head, sizeof head);
    for (std::size_t index = 0; index < pieces.size(); ++index) {
        udmabuf_create_item item{};
        item.memfd = static_cast<std::uint32_t>(pieces[index].memfd);
        item.offset = pieces[index].offset.value();
        item.size = pieces[index].length.value();
        std::memcpy(request.data() + sizeof head + index * sizeof item, &item, sizeof item);
    }
    const int made = system.ioctl(device.get(), UDMABUF_CREATE_LIST, request.data());
    if (made < 0) {
        const int code = errno;
        return fail(code, "UDMABUF_CREATE_LIST", node, create_hint(code));
    }
    return DmaBuf::adopt(system, os::Fd{system, made});
}

} // namespace upcie::dmabuf
