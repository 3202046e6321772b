// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

/// Hands out IOVAs from the ranges that the kernel reports, holes and small apertures (39 bits, AMD's hole below 1 TiB,
/// the MSI windows) respected.
///
/// First fit, from low addresses on. IOVA 0 is legal, but goes out last, since devices with a fault in their firmware
/// take it for "none". A value type without a kernel object behind it. Threads: one at a time; its owner locks.
class IovaAllocator {
  public:
    /// `granule` is a power of two: everything handed out starts and ends at a multiple of it. Ranges may come in any
    /// order, may abut, and lose what does not fill a granule.
    /// Errors: EINVAL (granule is no power of two, a range ends before it starts, two overlap), ENOSPC (nothing is
    /// left).
    [[nodiscard]] static Result<IovaAllocator> create(std::span<const IovaRange> ranges, ByteCount granule);

    /// `length` is a multiple of the granule, `alignment` a power of two that applies to the IOVA itself; an alignment
    /// below the granule is met by the granule. Errors: EINVAL (length 0 or no multiple, alignment 0 or no power of
    /// two), ENOSPC (no free stretch is long enough; the hint says how long the longest is).
    [[nodiscard]] Result<Iova> allocate(ByteCount length, ByteCount alignment = ByteCount{1});

    /// Takes just this range. Errors: EINVAL (length 0, unaligned, beyond 2^64, outside what was reported),
    /// EEXIST (part of it is in use).
    Result<void> reserve(Iova first, ByteCount length);

    /// Gives back just what allocate() or reserve() gave. Error: ENOENT when no such allocation exists (freed twice,
    /// another length, an address inside an allocation).
    Result<void> free(Iova first, ByteCount length);

    /// Takes `length` bytes out of this allocator and makes an allocator of them, for another process or another user
    /// of one address space. free() of its range here ends it. Errors: as allocate().
    [[nodiscard]] Result<IovaAllocator> subset(ByteCount length, ByteCount alignment = ByteCount{1});

    [[nodiscard]] ByteCount granule() const noexcept { return ByteCount{granule_}; }
    /// What was reported, ascending, merged and cut to granules.
    [[nodiscard]] const std::vector<IovaRange>& ranges() const noexcept { return ranges_; }
    /// Free stretches, ascending, maximal.
    [[nodiscard]] std::vector<IovaRange> free_ranges() const;
    /// Longest free stretch; saturates at 2^64-1.
    [[nodiscard]] ByteCount largest_free() const noexcept;
    [[nodiscard]] std::size_t allocation_count() const noexcept { return used_.size(); }

  private:
    using Intervals = std::map<std::uint64_t, std::uint64_t>; // first -> last, both included

    IovaAllocator(std::uint64_t granule, std::vector<IovaRange> ranges);
    void take(Intervals::iterator from, std::uint64_t first, std::uint64_t last);

    std::uint64_t granule_;
    std::vector<IovaRange> ranges_;
    Intervals free_;
    Intervals used_;
};

} // namespace upcie::iommu
