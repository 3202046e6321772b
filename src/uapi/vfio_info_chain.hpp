// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <uapi/vfio.hpp>

namespace upcie::uapi {

/// Reads a structure out of a kernel's answer without assuming alignment. False when it does not fit.
template <class T>
[[nodiscard]] bool read_at(std::span<const std::byte> answer, std::size_t offset, T& value) noexcept {
    if (offset > answer.size() || answer.size() - offset < sizeof(T)) {
        return false;
    }
    std::memcpy(&value, answer.data() + offset, sizeof(T));
    return true;
}

/// Walks the capability chain of a vfio INFO answer ("struct vfio_info_cap_header" in linux/vfio.h) and calls
/// `visit(header, offset)` for each; `offset` is the header's place in `answer`.
///
/// `answer` is the whole buffer, cut to what the kernel said it filled; `first` the cap_offset of the fixed structure
/// of `fixed_size` bytes. The chain is the kernel's word and is not trusted: false for a header outside the buffer, one
/// inside the fixed structure, or a chain with more members than the buffer has room for (a loop).
template <class Visitor>
[[nodiscard]] bool walk_info_chain(std::span<const std::byte> answer, std::size_t fixed_size, std::uint32_t first,
                                   Visitor&& visit) {
    std::size_t left = answer.size() / sizeof(VfioInfoCapHeader);
    for (std::uint32_t offset = first; offset != 0;) {
        VfioInfoCapHeader header{};
        if (left == 0 || offset < fixed_size || !read_at(answer, offset, header)) {
            return false;
        }
        --left;
        visit(header, std::size_t{offset});
        offset = header.next;
    }
    return true;
}

/// The `count` array members that follow a capability's fixed part, at `offset`. False when they do not all fit.
template <class T>
[[nodiscard]] bool read_array(std::span<const std::byte> answer, std::size_t offset, std::uint32_t count,
                              std::vector<T>& members) {
    if (offset > answer.size() || (answer.size() - offset) / sizeof(T) < count) {
        return false;
    }
    members.resize(count);
    if (count > 0) {
        std::memcpy(members.data(), answer.data() + offset, count * sizeof(T));
    }
    return true;
}

} // namespace upcie::uapi
