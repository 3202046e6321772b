// SPDX-License-Identifier: BSD-3-Clause
#include "nvme/queue_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace upcie::nvme {
namespace {

struct Place {
    std::uint64_t offset; ///< in the buffer
    DmaAddress address;
};

std::uint64_t align_up(std::uint64_t value, std::uint64_t unit) noexcept {
    return (value + unit - 1) & ~(unit - 1);
}

/// First fit for each of two pieces in the runs of a buffer.
std::optional<std::pair<Place, Place>> place_two(std::span<const iommu::Extent> extents, std::uint64_t first_bytes,
                                                 std::uint64_t second_bytes, std::uint64_t page) {
    std::optional<Place> first;
    std::optional<Place> second;
    std::uint64_t position = 0;
    for (const iommu::Extent& extent : extents) {
        const std::uint64_t address = extent.address.value();
        const std::uint64_t length = extent.length.value();
        std::uint64_t used = align_up(address, page) - address;
        const auto take = [&](std::optional<Place>& place, std::uint64_t bytes) {
            if (!place && used <= length && bytes <= length - used) {
                place = Place{position + used, DmaAddress{address + used}};
                used += bytes;
            }
        };
        take(first, first_bytes);
        take(second, second_bytes);
        if (first && second) {
            return std::pair{*first, *second};
        }
        position += length;
    }
    return std::nullopt;
}

} // namespace

Result<Rings> allocate_rings(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                             std::uint32_t entries, unsigned page_shift, const std::string& subject) {
    const std::uint64_t page = std::uint64_t{1} << page_shift;
    const std::uint64_t submission_bytes = align_up(std::uint64_t{entries} * sizeof(Command), page);
    const std::uint64_t completion_bytes = align_up(std::uint64_t{entries} * sizeof(CompletionEntry), page);
    const std::uint64_t bytes = submission_bytes + completion_bytes;

    // Scattered pages only happen where addresses are physical. Among 16 times the pages there is nearly always a run.
    const auto attempt = [&](unsigned number) -> Result<memory::DmaBuffer> {
        if (number == 0) {
            return memory::DmaBuffer::allocate(system, space, ByteCount{bytes});
        }
        if (number == 1) {
            auto huge = memory::Buffer::allocate(system, ByteCount{bytes}, memory::Backing::hugepage_2m);
            if (!huge) {
                return tl::unexpected{std::move(huge).error()};
            }
            return memory::DmaBuffer::map(std::move(*huge), space);
        }
        return memory::DmaBuffer::allocate(system, space, ByteCount{std::max(bytes * 16, std::uint64_t{4} << 20)});
    };
    for (unsigned number = 0; number < 3; ++number) {
        auto buffer = attempt(number);
        if (!buffer) {
            if (number == 1) {
                continue; // no hugepages: that is ordinary
            }
            return tl::unexpected{std::move(buffer).error()};
        }
        const auto places = place_two(buffer->extents(), submission_bytes, completion_bytes, page);
        if (places) {
            Rings rings;
            rings.submission = reinterpret_cast<Command*>(buffer->data() + places->first.offset);
            rings.completion = reinterpret_cast<CompletionEntry*>(buffer->data() + places->second.offset);
            rings.submission_address = places->first.address;
            rings.completion_address = places->second.address;
            rings.buffer = std::move(*buffer);
            // A stale phase bit would be a phantom completion.
            std::memset(static_cast<void*>(rings.submission), 0, submission_bytes);
            std::memset(static_cast<void*>(rings.completion), 0, completion_bytes);
            return rings;
        }
    }
    return fail(ENOMEM, "allocate queue rings", subject,
                fmt::format("No {} contiguous bytes of physical memory were found: reserve hugepages of 2 MiB "
                            "(vm.nr_hugepages), ask for a smaller depth, or use an IOMMU",
                            submission_bytes));
}

Result<ListPages> allocate_lists(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                                 std::uint64_t pages, unsigned page_shift, const std::string& subject) {
    ListPages lists;
    if (pages == 0) {
        return lists;
    }
    const std::uint64_t page = std::uint64_t{1} << page_shift;
    auto buffer = memory::DmaBuffer::allocate(system, space, ByteCount{pages << page_shift});
    if (!buffer) {
        return tl::unexpected{std::move(buffer).error()};
    }
    lists.addresses.reserve(static_cast<std::size_t>(pages));
    for (const iommu::Extent& extent : buffer->extents()) {
        if ((extent.address.value() & (page - 1)) != 0 || (extent.length.value() & (page - 1)) != 0) {
            return fail(EINVAL, "allocate PRP lists", subject,
                        fmt::format("{} maps memory in pieces that do not start and end at the controller's pages of "
                                    "{} bytes",
                                    space->describe(), page));
        }
        for (std::uint64_t done = 0; done < extent.length.value() && lists.addresses.size() < pages; done += page) {
            lists.addresses.push_back(extent.address.value() + done);
        }
    }
    lists.buffer = std::move(*buffer);
    return lists;
}

std::vector<iommu::Extent> leading_extents(const memory::DmaBuffer& buffer, ByteCount bytes) {
    std::vector<iommu::Extent> leading;
    for (const iommu::Extent& extent : buffer.extents()) {
        if (bytes == ByteCount{}) {
            break;
        }
        leading.push_back({extent.address, std::min(extent.length, bytes)});
        bytes = bytes - leading.back().length;
    }
    return leading;
}

} // namespace upcie::nvme
