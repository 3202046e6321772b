// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/rm/driver_version.hpp>
#include <upcie/rm/node.hpp>

namespace upcie::rm {

/// What a block of bytes is, and so where in it further user pointers lie.
struct BlockKind {
    enum class Type : std::uint8_t {
        opaque,      ///< nothing is known: no pointer is looked for
        escape,      ///< the argument of an escape; `number` is the escape's
        xfer_escape, ///< the same, reached through XFER
        control,     ///< the parameters of a control; `number` is its command
        allocation,  ///< the parameters of an allocation; `number` is the class
        uvm,         ///< the argument of a UVM command; `number` is the command
    };
    Type type = Type::opaque;
    std::uint32_t number = 0;
    friend constexpr bool operator==(const BlockKind&, const BlockKind&) noexcept = default;
};

/// A block of the calling process that another block points at.
struct NestedBlock {
    std::string name;                 ///< of the pointer inside its block: "params", "driver_version"
    std::uint32_t pointer_offset = 0; ///< where in the outer block the pointer lies
    std::uint64_t address = 0;        ///< in the calling process; never 0
    std::uint32_t bytes = 0;          ///< how many lie there, never 0; at most most_nested_bytes
    bool truncated = false;           ///< the block claims more than that, and only the first part is meant
    BlockKind kind;                   ///< what to look for in it
    friend bool operator==(const NestedBlock&, const NestedBlock&) = default;
};

/// More than any real block has; keeps a wild length from being believed.
inline constexpr std::uint32_t most_nested_bytes = 1U << 20;
/// XFER, escape, control or allocation parameters, embedded buffer: nothing is deeper.
inline constexpr unsigned most_nested_levels = 4;

/// What the argument of an ioctl on `node` is. Threads: any.
[[nodiscard]] BlockKind argument_kind(Node node, std::uint64_t request) noexcept;

/// Bytes of the argument of an ioctl on `node`: from the request itself for an escape, from the tables for a UVM
/// command (which carries none). Nothing where neither knows: such an argument may also be no pointer. Threads: any.
[[nodiscard]] std::optional<std::uint32_t> argument_bytes(Node node, std::uint64_t request,
                                                          DriverVersion version) noexcept;

/// The blocks that `block` points at, one level, in ascending order of the pointers' offsets. A block too short to hold
/// a pointer and its length has none; null pointers and empty blocks are left out. Reads nothing but `block`. Threads:
/// any.
[[nodiscard]] std::vector<NestedBlock> nested_blocks(BlockKind kind, std::span<const std::byte> block,
                                                     DriverVersion version);
/// The same for the argument itself.
[[nodiscard]] std::vector<NestedBlock> nested_blocks(Node node, std::uint64_t request, std::span<const std::byte> block,
                                                     DriverVersion version);

/// A block together with the way to it.
struct FoundBlock {
    std::string path;                 ///< names of pointers joined by '/': "params", "xfer/params/driver_version"
    std::uint32_t pointer_offset = 0; ///< in the block one level up
    std::uint64_t address = 0;
    std::uint32_t bytes = 0; ///< as asked for; `data` may be shorter when the process could not be read
    bool truncated = false;
    BlockKind kind;
    std::vector<std::byte> data;
};

/// Reads `bytes` at `address` of the process that is looked at; may answer fewer bytes, or none.
using ReadMemory = std::function<std::vector<std::byte>(std::uint64_t address, std::uint32_t bytes)>;

/// All blocks below the argument, outer before inner, read through `read`. A block that cannot be read is in the list
/// with no data, so that a reader of the trace sees what was missed. Throws nothing itself. Threads: any.
[[nodiscard]] std::vector<FoundBlock> collect_nested_blocks(Node node, std::uint64_t request,
                                                            std::span<const std::byte> argument, DriverVersion version,
                                                            const ReadMemory& read);

/// A place where the public headers have a pointer into the calling process inside a block.
struct EmbeddedPointer {
    BlockKind where;
    std::uint16_t offset = 0; ///< of the pointer
    std::string_view name;
    std::uint16_t count_offset = none; ///< of a count or a length in the same block; `none`: `element` bytes in all
    std::uint8_t count_bytes = 4;      ///< width of that count: 1, 2, 4 or 8
    std::uint32_t element = 1;         ///< bytes for each that is counted
    bool squared = false;              ///< a matrix: the count times itself
    std::uint16_t since = 0;           ///< first branch with this layout
    std::uint16_t until = 0xffff;      ///< last branch with this layout
    static constexpr std::uint16_t none = 0xffff;
};

/// All that are known, for people and for tests. Those that follow from an escape itself (the parameters of a control,
/// of an allocation, of XFER) are not in this list.
[[nodiscard]] std::span<const EmbeddedPointer> embedded_pointers() noexcept;

} // namespace upcie::rm
