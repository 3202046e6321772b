// SPDX-License-Identifier: BSD-3-Clause
#include "task.hpp"

#include <limits>

namespace upcie::rm {

namespace {

/// Where a range ends, without wrapping round.
std::uint64_t end_of(std::uint64_t address, std::uint64_t length) noexcept {
    return length > std::numeric_limits<std::uint64_t>::max() - address ? std::numeric_limits<std::uint64_t>::max()
                                                                        : address + length;
}

/// Mappings end at page borders, whatever length was asked for.
std::uint64_t whole_pages(std::uint64_t length) noexcept {
    constexpr std::uint64_t page = 4096;
    return length > std::numeric_limits<std::uint64_t>::max() - page ? length : (length + page - 1) / page * page;
}

} // namespace

bool AddressSpace::touches(std::uint64_t address, std::uint64_t length) const noexcept {
    if (mappings.empty()) {
        return false;
    }
    auto after = mappings.lower_bound(end_of(address, whole_pages(length)));
    if (after == mappings.begin()) {
        return false;
    }
    --after;
    return end_of(after->first, after->second.length) > address;
}

void AddressSpace::remove(std::uint64_t address, std::uint64_t length) {
    const std::uint64_t end = end_of(address, whole_pages(length));
    auto at = mappings.lower_bound(address);
    if (at != mappings.begin() && end_of(std::prev(at)->first, std::prev(at)->second.length) > address) {
        --at;
    }
    while (at != mappings.end() && at->first < end) {
        const std::uint64_t start = at->first;
        const NodeMapping old = std::move(at->second);
        at = mappings.erase(at);
        const auto piece = [&](std::uint64_t from, std::uint64_t to) {
            NodeMapping part{to - from, old.node, old.offset + (from - start), old.protection, {}, old.not_readable};
            if (old.last.size() == old.length) {
                part.last.assign(old.last.begin() + static_cast<std::ptrdiff_t>(from - start),
                                 old.last.begin() + static_cast<std::ptrdiff_t>(to - start));
            }
            mappings.insert_or_assign(from, std::move(part));
        };
        if (start < address) {
            piece(start, address);
        }
        if (end_of(start, old.length) > end) {
            piece(end, end_of(start, old.length));
            break;
        }
    }
}

void AddressSpace::add(std::uint64_t address, NodeMapping mapping) {
    mapping.length = whole_pages(mapping.length);
    remove(address, mapping.length);
    if (mapping.length != 0) {
        mappings.insert_or_assign(address, std::move(mapping));
    }
}

} // namespace upcie::rm
