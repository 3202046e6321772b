// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/iommu/iova_allocator.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace upcie::iommu {

namespace {

constexpr std::uint64_t highest = std::numeric_limits<std::uint64_t>::max();

// Every interval in this file is first to last, both included, so that a range which ends at 2^64-1 is not special.

/// `value` rounded up to a multiple of `unit`, a power of two; nothing when that is beyond 2^64-1.
std::optional<std::uint64_t> round_up(std::uint64_t value, std::uint64_t unit) noexcept {
    if (value > highest - (unit - 1)) {
        return std::nullopt;
    }
    return (value + unit - 1) & ~(unit - 1);
}

std::string as_text(std::uint64_t first, ByteCount length) {
    return fmt::format("IOVA 0x{:x}, 0x{:x} bytes", first, length.value());
}

} // namespace

IovaAllocator::IovaAllocator(std::uint64_t granule, std::vector<IovaRange> ranges)
    : granule_{granule}, ranges_{std::move(ranges)} {
    for (const IovaRange& range : ranges_) {
        free_.emplace(range.first.value(), range.last.value());
    }
}

Result<IovaAllocator> IovaAllocator::create(std::span<const IovaRange> ranges, ByteCount granule) {
    const std::uint64_t unit = granule.value();
    if (!std::has_single_bit(unit)) {
        return fail(EINVAL, "make IOVA allocator", fmt::format("granule 0x{:x}", unit),
                    "The granule must be a power of two.");
    }
    std::vector<IovaRange> sorted{ranges.begin(), ranges.end()};
    std::sort(sorted.begin(), sorted.end(), [](const IovaRange& a, const IovaRange& b) { return a.first < b.first; });
    std::vector<IovaRange> merged;
    for (const IovaRange& range : sorted) {
        const auto subject = fmt::format("range 0x{:x} to 0x{:x}", range.first.value(), range.last.value());
        if (range.last < range.first) {
            return fail(EINVAL, "make IOVA allocator", subject, "The range ends before it starts.");
        }
        if (!merged.empty() && range.first <= merged.back().last) {
            return fail(EINVAL, "make IOVA allocator", subject, "The range overlaps another one.");
        }
        if (!merged.empty() && merged.back().last.value() + 1 == range.first.value()) {
            merged.back().last = range.last;
        } else {
            merged.push_back(range);
        }
    }
    // Cut to whole granules only after merging: an edge inside a granule may be where two ranges meet.
    std::vector<IovaRange> whole;
    for (const IovaRange& range : merged) {
        const auto first = round_up(range.first.value(), unit);
        const std::uint64_t mask = unit - 1;
        const bool ends_whole = (range.last.value() & mask) == mask;
        if (!first || (!ends_whole && range.last.value() < mask)) {
            continue;
        }
        const std::uint64_t last = ends_whole ? range.last.value() : (range.last.value() & ~mask) - 1;
        if (*first <= last) {
            whole.push_back({Iova{*first}, Iova{last}});
        }
    }
    if (whole.empty()) {
        return fail(ENOSPC, "make IOVA allocator", fmt::format("{} ranges", ranges.size()),
                    fmt::format("No range holds a whole granule of 0x{:x} bytes.", unit));
    }
    return IovaAllocator{unit, std::move(whole)};
}

void IovaAllocator::take(Intervals::iterator from, std::uint64_t first, std::uint64_t last) {
    const std::uint64_t free_first = from->first;
    const std::uint64_t free_last = from->second;
    free_.erase(from);
    if (free_first < first) {
        free_.emplace(free_first, first - 1);
    }
    if (last < free_last) {
        free_.emplace(last + 1, free_last);
    }
    used_.emplace(first, last);
}

Result<Iova> IovaAllocator::allocate(ByteCount length, ByteCount alignment) {
    const auto subject = [&] {
        return fmt::format("0x{:x} bytes aligned to 0x{:x}", length.value(), alignment.value());
    };
    if (length.value() == 0 || length.value() % granule_ != 0) {
        return fail(EINVAL, "allocate IOVA", subject(),
                    fmt::format("The length must be a multiple of the granule 0x{:x}, and not 0.", granule_));
    }
    if (!std::has_single_bit(alignment.value())) {
        return fail(EINVAL, "allocate IOVA", subject(), "The alignment must be a power of two.");
    }
    const std::uint64_t unit = std::max(alignment.value(), granule_);
    const std::uint64_t span = length.value() - 1;
    const auto fits = [span](const Intervals::value_type& interval, std::optional<std::uint64_t> first) {
        return first && *first >= interval.first && *first <= interval.second && span <= interval.second - *first;
    };
    auto zero = free_.end(); // where only address 0 would do
    for (auto interval = free_.begin(); interval != free_.end(); ++interval) {
        auto first = round_up(interval->first, unit);
        if (first && *first == 0) {
            if (fits(*interval, first)) {
                zero = interval;
            }
            first = unit;
        }
        if (fits(*interval, first)) {
            take(interval, *first, *first + span);
            return Iova{*first};
        }
    }
    if (zero != free_.end()) {
        take(zero, 0, span);
        return Iova{0};
    }
    return fail(
        ENOSPC, "allocate IOVA", subject(),
        fmt::format("The longest free stretch is 0x{:x} bytes, {} allocations are live: unmap what is not used, "
                    "or ask for less; the IOMMU's aperture is what the kernel reported.",
                    largest_free().value(), used_.size()));
}

Result<void> IovaAllocator::reserve(Iova first, ByteCount length) {
    const std::uint64_t start = first.value();
    if (length.value() == 0 || length.value() % granule_ != 0 || start % granule_ != 0 ||
        length.value() - 1 > highest - start) {
        return fail(EINVAL, "reserve IOVA", as_text(start, length),
                    fmt::format("Start and length must be multiples of 0x{:x}, the length not 0, the end below 2^64.",
                                granule_));
    }
    const std::uint64_t last = start + (length.value() - 1);
    auto interval = free_.upper_bound(start);
    if (interval != free_.begin() && last <= std::prev(interval)->second) {
        take(std::prev(interval), start, last);
        return {};
    }
    // Ranges are maximal, so that a reservation lies inside one or is not usable at all.
    const bool reported = std::any_of(ranges_.begin(), ranges_.end(), [&](const IovaRange& range) {
        return range.first.value() <= start && last <= range.last.value();
    });
    if (!reported) {
        return fail(EINVAL, "reserve IOVA", as_text(start, length),
                    "It is outside the ranges that the kernel reports.");
    }
    return fail(EEXIST, "reserve IOVA", as_text(start, length), "Part of it is in use already.");
}

Result<void> IovaAllocator::free(Iova first, ByteCount length) {
    const auto found = used_.find(first.value());
    if (length.value() == 0 || found == used_.end() || found->second - found->first != length.value() - 1) {
        return fail(ENOENT, "free IOVA", as_text(first.value(), length),
                    "No allocation has just this start and length: it was freed already, or another was meant.");
    }
    std::uint64_t start = found->first;
    std::uint64_t last = found->second;
    used_.erase(found);
    const auto after = free_.upper_bound(start);
    if (after != free_.end() && last != highest && after->first == last + 1) {
        last = after->second;
        free_.erase(after);
    }
    const auto next = free_.upper_bound(start);
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->second + 1 == start) { // free intervals below `start` end before it: no wrap
            start = before->first;
            free_.erase(before);
        }
    }
    free_.emplace(start, last);
    return {};
}

Result<IovaAllocator> IovaAllocator::subset(ByteCount length, ByteCount alignment) {
    const auto first = allocate(length, alignment);
    if (!first) {
        return tl::unexpected{first.error()};
    }
    return IovaAllocator{granule_, {IovaRange{*first, Iova{first->value() + (length.value() - 1)}}}};
}

std::vector<IovaRange> IovaAllocator::free_ranges() const {
    std::vector<IovaRange> all;
    for (const auto& [first, last] : free_) {
        all.push_back({Iova{first}, Iova{last}});
    }
    return all;
}

ByteCount IovaAllocator::largest_free() const noexcept {
    std::uint64_t longest = 0;
    for (const auto& [first, last] : free_) {
        const std::uint64_t span = last - first;
        longest = std::max(longest, span == highest ? highest : span + 1);
    }
    return ByteCount{longest};
}

} // namespace upcie::iommu
