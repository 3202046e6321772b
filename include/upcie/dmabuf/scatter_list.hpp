// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/extent.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::dmabuf {

/// What is behind an address, as far as whoever made the list could tell.
enum class SegmentKind : std::uint8_t {
    unknown,
    ram, ///< system memory
    bar, ///< inside a PCI resource: device memory, reached peer to peer
};
/// "unknown", "RAM", "BAR"
[[nodiscard]] std::string_view to_string(SegmentKind kind) noexcept;

/// One entry of a dma-buf's scatter list, as its importer saw it.
struct Segment {
    DmaAddress address;
    ByteCount length;
    SegmentKind kind = SegmentKind::unknown;
    friend constexpr bool operator==(const Segment&, const Segment&) noexcept = default;
};

/// Where the bytes of a dma-buf are: its scatter list, walked and merged into maximal runs, so that memory goes with
/// fragmentation and not with size. What it answers for is contiguity: two segments are one run only where the second
/// really begins at the end of the first and is of the same kind.
///
/// A value. Threads: any may read.
class ScatterList {
  public:
    /// A run: `extent` begins `offset` bytes into the buffer.
    struct Run {
        ByteCount offset;
        Extent extent;
        SegmentKind kind = SegmentKind::unknown;
        friend constexpr bool operator==(const Run&, const Run&) noexcept = default;
    };

    ScatterList() noexcept = default;
    /// Walks the segments in the order of the buffer's bytes. `subject` names the buffer in errors. Errors: EINVAL (no
    /// segments, or one of no length: the message has its number), EOVERFLOW (a segment or the sum passes 2^64).
    [[nodiscard]] static Result<ScatterList> from_segments(std::span<const Segment> segments, std::string_view subject);

    [[nodiscard]] std::span<const Run> runs() const noexcept { return runs_; }
    /// Bytes that the list describes. May be more than was asked of the exporter (ROCm describes the whole buffer
    /// object), which check_describes() judges.
    [[nodiscard]] ByteCount total() const noexcept { return total_; }
    [[nodiscard]] std::size_t segment_count() const noexcept { return segments_; }
    [[nodiscard]] ByteCount shortest_segment() const noexcept { return shortest_; }
    /// The largest power of two that divides the address and the length of every run: a property found, which nobody's
    /// pointers have to have. 0 for an empty list.
    [[nodiscard]] ByteCount granule() const noexcept;
    /// The kind of all runs, or unknown where they differ.
    [[nodiscard]] SegmentKind kind() const noexcept;
    [[nodiscard]] bool empty() const noexcept { return runs_.empty(); }

    /// That the list holds `asked` bytes from `offset` on. Error: ERANGE, saying what was asked, what is described and
    /// where they part.
    [[nodiscard]] Result<void> check_describes(ByteCount offset, ByteCount asked, std::string_view subject) const;

    /// The contiguous piece from `offset` on, `bytes` at most. Bounds-checked: an extent of no length where the list
    /// does not hold [offset, offset + bytes), or `bytes` is 0. By binary search.
    [[nodiscard]] Extent first(ByteCount offset, ByteCount bytes) const noexcept;
    /// All pieces of a range. Errors: EINVAL (no bytes), ERANGE (as check_describes).
    [[nodiscard]] Result<std::vector<Extent>> extents(ByteCount offset, ByteCount bytes) const;
    /// True where the whole range lies in one run.
    [[nodiscard]] bool contiguous(ByteCount offset, ByteCount bytes) const noexcept;

  private:
    [[nodiscard]] bool holds(ByteCount offset, ByteCount bytes) const noexcept;
    [[nodiscard]] std::size_t index_of(ByteCount offset) const noexcept;

    std::vector<Run> runs_;
    ByteCount total_;
    ByteCount shortest_;
    std::size_t segments_ = 0;
};

} // namespace upcie::dmabuf
