// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/address_space.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

namespace upcie::iommu {

std::string_view to_string(AddressSpaceKind kind) noexcept {
    switch (kind) {
    case AddressSpaceKind::iommufd:
        return "iommufd";
    case AddressSpaceKind::type1:
        return "type1";
    case AddressSpaceKind::noiommu_ioas:
        return "noiommu_ioas";
    case AddressSpaceKind::hugepage_pagemap:
        return "hugepage_pagemap";
    case AddressSpaceKind::simulated:
        return "simulated";
    }
    return "unknown";
}

DmaMapping& DmaMapping::operator=(DmaMapping&& other) noexcept {
    if (this != &other) {
        static_cast<void>(unmap());
        space_ = std::move(other.space_);
        extents_ = std::move(other.extents_);
        length_ = std::exchange(other.length_, ByteCount{});
        token_ = other.token_;
    }
    return *this;
}

DmaMapping::~DmaMapping() {
    static_cast<void>(unmap());
}

Result<void> DmaMapping::unmap() {
    // Empty first: whatever the kernel says, a second attempt could hit a mapping that somebody else made since.
    const auto space = std::exchange(space_, nullptr);
    const ByteCount length = std::exchange(length_, ByteCount{});
    extents_.clear();
    if (!space || token_ == AddressSpace::nothing_to_unmap) {
        return {};
    }
    return space->do_unmap(token_, length);
}

Result<void> AddressSpace::check_range(const char* operation, std::uint64_t start, ByteCount length,
                                       std::uint64_t unit) const {
    const auto refuse = [&](const char* why) {
        return fail(EINVAL, operation, fmt::format("0x{:x} + 0x{:x} bytes in {}", start, length.value(), describe()),
                    fmt::format("{} (granule 0x{:x}).", why, unit));
    };
    if (length.value() == 0) {
        return refuse("The length is 0");
    }
    if (start % unit != 0) {
        return refuse("The start is no multiple of the granule");
    }
    if (length.value() % unit != 0) {
        return refuse("The length is no multiple of the granule");
    }
    // The last byte, not one past it: a range may end at 2^64-1.
    if (length.value() - 1 > std::numeric_limits<std::uint64_t>::max() - start) {
        return refuse("Start plus length is beyond 2^64");
    }
    return {};
}

Result<DmaMapping> AddressSpace::adopt(Result<Mapped> mapped, ByteCount length) {
    if (!mapped) {
        return tl::unexpected{std::move(mapped.error())};
    }
    // Merged in their place: a list may have a million of them.
    std::vector<Extent>& runs = mapped->extents;
    std::size_t kept = 0;
    std::uint64_t total = 0;
    const char* fault = nullptr;
    for (const Extent extent : runs) {
        const std::uint64_t bytes = extent.length.value();
        if (bytes == 0 || bytes > length.value() - total) {
            fault = "The runs do not add up to the length that was mapped";
            break;
        }
        if (bytes - 1 > std::numeric_limits<std::uint64_t>::max() - extent.address.value()) {
            fault = "A run wraps around the end of the address space";
            break;
        }
        total += bytes;
        // A run that ends at 2^64 has address + length 0, which must not be taken for a neighbour of address 0.
        if (kept != 0) {
            Extent& last = runs[kept - 1];
            const std::uint64_t end = last.address.value() + last.length.value();
            if (end != 0 && end == extent.address.value()) {
                last.length += extent.length;
                continue;
            }
        }
        runs[kept++] = extent;
    }
    runs.resize(kept);
    if (fault == nullptr && total != length.value()) {
        fault = "The runs do not add up to the length that was mapped";
    }
    if (fault != nullptr) {
        if (mapped->token != nothing_to_unmap) {
            static_cast<void>(do_unmap(mapped->token, length));
        }
        return fail(
            EPROTO, "map", describe(),
            fmt::format("{} ({} of {} bytes): a wrong address would be a wrong transfer, so that the mapping was "
                        "undone.",
                        fault, total, length.value()));
    }
    DmaMapping mapping;
    mapping.space_ = shared_from_this();
    mapping.extents_ = std::move(runs);
    mapping.length_ = length;
    mapping.token_ = mapped->token;
    return mapping;
}

Result<DmaMapping> AddressSpace::map_memory(void* start, ByteCount length, Access access) {
    const auto checked = check_range("map memory", reinterpret_cast<std::uintptr_t>(start), length, granule().value());
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    return adopt(do_map_memory(start, length, access), length);
}

Result<DmaMapping> AddressSpace::map_file(int fd, ByteCount offset, ByteCount length, Access access) {
    const auto checked = check_range("map file", offset.value(), length, granule().value());
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    return adopt(do_map_file(fd, offset, length, access), length);
}

Result<DmaMapping> AddressSpace::map_dmabuf(int fd, ByteCount offset, ByteCount length, const dmabuf::ScatterList& bus,
                                            Access access) {
    if (translating() || bus.empty()) {
        return map_file(fd, offset, length, access);
    }
    // The granule is that of the host memory's pages, huge ones perhaps. A dma-buf's pages are its exporter's, and what
    // the importer told are addresses of bytes: pages of 4 KiB are what every exporter counts in.
    constexpr std::uint64_t exporter_page = 4096;
    const auto checked = check_range("map dma-buf", offset.value(), length, std::min(exporter_page, granule().value()));
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    auto extents = bus.extents(ByteCount{}, length);
    if (!extents) {
        return tl::unexpected{std::move(extents.error())};
    }
    return adopt(do_map_bus(fd, offset, std::move(*extents), access), length);
}

Result<AddressSpace::Mapped> AddressSpace::do_map_bus(int, ByteCount, std::vector<Extent> extents, Access) {
    // The bus takes them as they are.
    return Mapped{nothing_to_unmap, std::move(extents)};
}

} // namespace upcie::iommu
