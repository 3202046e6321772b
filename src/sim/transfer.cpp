// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

constexpr nvme::Status prp_offset_invalid = generic(0x13);

} // namespace

// Physical Region Pages (Base Specification 2.0, section 4.1.1): entry 1 may start inside a page, every other begins
// one; entry 2 is unused, the second page, or a list; the last entry of a list page that is not the last leads to the
// next.
nvme::Status Engine::walk_prps(const Command& command, std::uint64_t bytes, Segments& segments) {
    const std::uint64_t page = std::uint64_t{1} << page_shift_;
    const std::uint64_t mask = page - 1;
    const auto misaligned = [&](std::string what, std::uint64_t value) {
        violate(ViolationKind::prp_misaligned,
                fmt::format("command {} (opcode 0x{:02x}), {} bytes: {} is 0x{:x}, pages have 0x{:x} bytes",
                            command.cid, command.opcode, bytes, what, value, page));
        return prp_offset_invalid;
    };
    if ((command.prp1 & 3) != 0) {
        return misaligned("PRP entry 1, no multiple of 4,", command.prp1);
    }
    const std::uint64_t first = std::min(bytes, page - (command.prp1 & mask));
    segments.push_back({command.prp1, first});
    std::uint64_t left = bytes - first;
    if (left == 0) {
        if (command.prp2 != 0) {
            violate(ViolationKind::prp_unused,
                    fmt::format("command {} (opcode 0x{:02x}), {} bytes at 0x{:x}: PRP entry 2 "
                                "is 0x{:x} though entry 1 covers all",
                                command.cid, command.opcode, bytes, command.prp1, command.prp2));
        }
        return {};
    }
    if (left <= page) {
        if ((command.prp2 & mask) != 0) {
            return misaligned("PRP entry 2, the second page,", command.prp2);
        }
        segments.push_back({command.prp2, left});
        return {};
    }
    if ((command.prp2 & 7) != 0) {
        return misaligned("PRP entry 2, a list, no multiple of 8,", command.prp2);
    }
    std::uint64_t list = command.prp2;
    std::vector<std::uint64_t> entries;
    while (left != 0) {
        const std::uint64_t in_page = (page - (list & mask)) / 8;
        const std::uint64_t wanted = (left + page - 1) / page;
        const std::uint64_t count = std::min(in_page, wanted);
        entries.resize(static_cast<std::size_t>(count));
        const auto fault = space_->read(DmaAddress{list}, std::as_writable_bytes(std::span{entries}));
        if (fault) {
            note(*fault, "reading a PRP list");
            return data_transfer_error;
        }
        const std::uint64_t data = wanted > in_page ? count - 1 : count;
        for (std::uint64_t i = 0; i < data; ++i) {
            const std::uint64_t entry = entries[static_cast<std::size_t>(i)];
            if ((entry & mask) != 0) {
                return misaligned(fmt::format("entry {} of the PRP list at 0x{:x}", i, list), entry);
            }
            const std::uint64_t here = std::min(left, page);
            segments.push_back({entry, here});
            left -= here;
        }
        if (data != count) {
            const std::uint64_t next = entries.back();
            if ((next & mask) != 0) {
                return misaligned(fmt::format("the link to the next list at the end of the PRP list at 0x{:x}", list),
                                  next);
            }
            list = next;
        }
    }
    return {};
}

// Nothing moves unless all of it can.
nvme::Status Engine::move(const Command& command, Direction direction, std::span<std::byte> data) {
    Segments segments;
    const bool is_sgl = (command.flags & 0xc0) == nvme::psdt_sgl;
    const nvme::Status status =
        is_sgl ? walk_sgl(command, data.size(), segments) : walk_prps(command, data.size(), segments);
    if (!status.ok()) {
        return status;
    }
    const iommu::Access access = direction == Direction::to_host ? iommu::Access::write : iommu::Access::read;
    for (const Segment& segment : segments) {
        const auto fault = space_->check(DmaAddress{segment.address}, ByteCount{segment.length}, access);
        if (fault) {
            note(*fault, fmt::format("data of command {} (opcode 0x{:02x})", command.cid, command.opcode).c_str());
            return data_transfer_error;
        }
    }
    for (const Segment& segment : segments) {
        const std::span<std::byte> part = data.first(static_cast<std::size_t>(segment.length));
        data = data.subspan(part.size());
        const auto fault = direction == Direction::to_host ? space_->write(DmaAddress{segment.address}, part)
                                                           : space_->read(DmaAddress{segment.address}, part);
        if (fault) { // unmapped between the check and now
            note(*fault, fmt::format("data of command {} (opcode 0x{:02x})", command.cid, command.opcode).c_str());
            return data_transfer_error;
        }
    }
    return {};
}

nvme::Status Engine::send(const Command& command, std::span<const std::byte> data) {
    // move() only reads from the span in this direction.
    return move(command, Direction::to_host, {const_cast<std::byte*>(data.data()), data.size()});
}

} // namespace upcie::sim
