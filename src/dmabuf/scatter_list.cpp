// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/scatter_list.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

namespace upcie::dmabuf {

namespace {

constexpr std::uint64_t last_address = std::numeric_limits<std::uint64_t>::max();
constexpr const char* operation = "read the scatter list";

/// Why a list with this segment is none.
tl::unexpected<Error> refuse(const Segment& segment, std::size_t index, std::string_view subject) {
    if (segment.length.value() == 0) {
        return fail(EINVAL, operation, std::string{subject},
                    fmt::format("Segment {} has no bytes: the list is not what a kernel gives.", index));
    }
    return fail(EOVERFLOW, operation, std::string{subject},
                fmt::format("Segment {} ({} bytes at {:#x}) passes the end of the addresses or of what can be counted.",
                            index, segment.length.value(), segment.address.value()));
}

} // namespace

std::string_view to_string(SegmentKind kind) noexcept {
    switch (kind) {
    case SegmentKind::ram:
        return "RAM";
    case SegmentKind::bar:
        return "BAR";
    case SegmentKind::unknown:
        break;
    }
    return "unknown";
}

Result<ScatterList> ScatterList::from_segments(std::span<const Segment> segments, std::string_view subject) {
    if (segments.empty()) {
        return fail(EINVAL, operation, std::string{subject}, "It has no segments: the exporter described nothing.");
    }
    ScatterList list;
    list.segments_ = segments.size();
    std::uint64_t total = 0;
    std::uint64_t shortest = last_address;
    Run run{};
    std::uint64_t end = 0; // of `run`; 0 where it ends with the last address, and nothing goes on behind that
    for (const Segment& segment : segments) {
        const std::uint64_t address = segment.address.value();
        const std::uint64_t length = segment.length.value();
        // The last byte may be the last address there is.
        if (length == 0 || length - 1 > last_address - address || length > last_address - total) [[unlikely]] {
            return refuse(segment, static_cast<std::size_t>(&segment - segments.data()), subject);
        }
        shortest = std::min(shortest, length);
        total += length;
        if (address == end && end != 0 && segment.kind == run.kind) {
            run.extent.length += segment.length;
        } else {
            if (run.extent.length.value() != 0) {
                list.runs_.push_back(run);
            }
            run = {ByteCount{total - length}, {segment.address, segment.length}, segment.kind};
        }
        end = address + length;
    }
    list.runs_.push_back(run);
    list.total_ = ByteCount{total};
    list.shortest_ = ByteCount{shortest};
    list.runs_.shrink_to_fit();
    return list;
}

ByteCount ScatterList::granule() const noexcept {
    std::uint64_t bits = 0;
    for (const Run& run : runs_) {
        bits |= run.extent.address.value() | run.extent.length.value();
    }
    return ByteCount{bits & (~bits + 1)};
}

SegmentKind ScatterList::kind() const noexcept {
    if (runs_.empty()) {
        return SegmentKind::unknown;
    }
    const SegmentKind first = runs_.front().kind;
    const bool same = std::all_of(runs_.begin(), runs_.end(), [&](const Run& run) { return run.kind == first; });
    return same ? first : SegmentKind::unknown;
}

bool ScatterList::holds(ByteCount offset, ByteCount bytes) const noexcept {
    return offset <= total_ && bytes <= total_ - offset;
}

Result<void> ScatterList::check_describes(ByteCount offset, ByteCount asked, std::string_view subject) const {
    if (holds(offset, asked)) {
        return {};
    }
    return fail(
        ERANGE, "check the scatter list", std::string{subject},
        fmt::format("{} bytes from offset {} were asked, and the list describes {} bytes in {} segments: behind "
                    "those there is no address. Ask the exporter for whole allocations.",
                    asked.value(), offset.value(), total_.value(), segments_));
}

std::size_t ScatterList::index_of(ByteCount offset) const noexcept {
    const auto after = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                        [](ByteCount value, const Run& run) { return value < run.offset; });
    return static_cast<std::size_t>(after - runs_.begin()) - 1;
}

Extent ScatterList::first(ByteCount offset, ByteCount bytes) const noexcept {
    if (bytes.value() == 0 || !holds(offset, bytes)) {
        return {};
    }
    const Run& run = runs_[index_of(offset)];
    const ByteCount inside = offset - run.offset;
    return {run.extent.address + inside, std::min(bytes, run.extent.length - inside)};
}

Result<std::vector<Extent>> ScatterList::extents(ByteCount offset, ByteCount bytes) const {
    if (bytes.value() == 0) {
        return fail(EINVAL, "look up a range", "a scatter list", "The range has no bytes.");
    }
    if (auto held = check_describes(offset, bytes, "a scatter list"); !held) {
        return tl::unexpected{std::move(held.error())};
    }
    std::vector<Extent> pieces;
    pieces.reserve(index_of(offset + bytes - ByteCount{1}) - index_of(offset) + 1);
    for (std::size_t index = index_of(offset); bytes.value() != 0; ++index) {
        const Run& run = runs_[index];
        const ByteCount inside = offset - run.offset;
        const ByteCount here = std::min(bytes, run.extent.length - inside);
        pieces.push_back({run.extent.address + inside, here});
        offset += here;
        bytes = bytes - here;
    }
    return pieces;
}

bool ScatterList::contiguous(ByteCount offset, ByteCount bytes) const noexcept {
    return bytes.value() != 0 && first(offset, bytes).length == bytes;
}

} // namespace upcie::dmabuf
