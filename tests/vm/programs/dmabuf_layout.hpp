// SPDX-License-Identifier: BSD-3-Clause
// Dma-bufs with a layout made on purpose, and the module that is asked about them.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <uapi/dmabuf_import.hpp>
#include <upcie/dmabuf/importer.hpp>
#include <upcie/dmabuf/udmabuf.hpp>
#include <upcie/pci/bdf.hpp>

#include "expect.hpp"

namespace upcie::test {

constexpr std::uint64_t page = 4096;
using Addresses = std::vector<std::uint64_t>; // of every page

inline os::System& host() {
    return os::real_system();
}

inline dmabuf::PciFunction function(const std::string& bdf) {
    const auto parsed = need(pci::Bdf::parse(bdf), bdf);
    return {parsed.domain, parsed.bus, parsed.device, parsed.function};
}

inline dmabuf::Importer importer() {
    return need(dmabuf::Importer::open(host()), "the module's node opens");
}

/// A memfd with every page written, and pagemap's word for where they are.
struct Memory {
    explicit Memory(std::uint64_t pages, unsigned flags = 0)
        : fd{host(), host().memfd_create("dmabuf_import_check", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags)} {
        const std::size_t bytes = pages * page;
        void* start = MAP_FAILED;
        if (fd && host().ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
            host().fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
            start = host().mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        }
        if (start == MAP_FAILED) {
            need<int>(fail(errno, "make", "memfd", ""), "memory");
        }
        std::memset(start, 0x5a, bytes);
        const auto pagemap = need(os::open_file(host(), "/proc/self/pagemap", O_RDONLY), "pagemap");
        std::vector<std::uint64_t> entries(pages);
        const auto from = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(start) / page * 8);
        if (host().pread(pagemap.get(), entries.data(), pages * 8, from) != static_cast<ssize_t>(pages * 8)) {
            need<int>(fail(errno, "read", "/proc/self/pagemap", ""), "the witness");
        }
        for (const std::uint64_t entry : entries) {
            const std::uint64_t frame = entry & ((std::uint64_t{1} << 55) - 1); // pagemap.rst
            if ((entry >> 63) == 0 || frame == 0) {
                need<int>(fail(EPERM, "read", "/proc/self/pagemap", ""), "the witness");
            }
            address.push_back(frame * page);
        }
        host().munmap(start, bytes);
    }
    os::Fd fd;
    Addresses address;
};

/// A dma-buf of pieces, and where its pages should be.
struct Layout {
    dmabuf::DmaBuf buffer;
    Addresses wanted;

    /// Pieces are {first page, pages}.
    Layout(const Memory& memory, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pieces) {
        std::vector<dmabuf::MemfdRange> ranges;
        for (const auto& [first, pages] : pieces) {
            ranges.push_back({memory.fd.get(), ByteCount{first * page}, ByteCount{pages * page}});
            wanted.insert(wanted.end(), memory.address.begin() + static_cast<std::ptrdiff_t>(first),
                          memory.address.begin() + static_cast<std::ptrdiff_t>(first + pages));
        }
        buffer = need(dmabuf::create_udmabuf(host(), ranges), "udmabuf");
    }
};

// ---- the module's requests by themselves

constexpr const char* node_name = dmabuf::Importer::default_node;

using Import = uapi::DmabufImport;
using Segment = uapi::DmabufImportSegment;
using Segments = uapi::DmabufImportSegments;
using Release = uapi::DmabufImportRelease;

/// 0, or the errno.
template <class T>
int ask(int fd, unsigned long request, T* argument) {
    return ::ioctl(fd, request, argument) < 0 ? errno : 0;
}

inline int open_node() {
    const int fd = ::open(node_name, O_RDWR | O_CLOEXEC);
    expect(fd >= 0, "the node opens");
    return fd;
}

inline Import request_for(int buffer, const std::string& bdf) {
    const auto target = function(bdf);
    Import request{};
    request.fd = buffer;
    request.domain = target.domain;
    request.bus = target.bus;
    request.device = target.device;
    request.function = target.function;
    return request;
}

} // namespace upcie::test
