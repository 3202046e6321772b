// SPDX-License-Identifier: BSD-3-Clause
// Where user pointers lie. What follows from an escape's own argument stands here in words; pointers inside the
// parameters of controls, allocations and a few escapes are data, in embedded_pointers.cpp.
#include <upcie/rm/nested.hpp>

#include <algorithm>
#include <limits>

#include <rm/little_endian.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

// Flags of NVOS54 and NVOS64: the parameters are a serialised message, not the structure of the headers.
constexpr std::uint32_t control_flag_serialised = 4;
constexpr std::uint32_t alloc_flag_serialised = 1;
constexpr std::size_t nvos21_bytes = 32;
constexpr std::size_t nvos64_bytes = 48;

void add(std::vector<NestedBlock>& found, std::string_view name, std::size_t offset, std::uint64_t address,
         std::uint64_t bytes, BlockKind kind) {
    if (address == 0 || bytes == 0) {
        return;
    }
    NestedBlock block;
    block.name = name;
    block.pointer_offset = static_cast<std::uint32_t>(offset);
    block.address = address;
    block.truncated = bytes > most_nested_bytes;
    block.bytes = block.truncated ? most_nested_bytes : static_cast<std::uint32_t>(bytes);
    block.kind = kind;
    found.push_back(std::move(block));
}

void add_xfer(std::vector<NestedBlock>& found, std::span<const std::byte> block) {
    const auto command = load_u32(block, 0);
    const auto bytes = load_u32(block, 4);
    const auto address = load_u64(block, 8);
    if (command && bytes && address) {
        // Not again an XFER: the kernel refuses that, and a loop would be none of ours.
        const bool again = *command == escape_xfer;
        add(found, "xfer", 8, *address, *bytes,
            {again ? BlockKind::Type::opaque : BlockKind::Type::xfer_escape, *command});
    }
}

void add_control(std::vector<NestedBlock>& found, std::span<const std::byte> block) {
    const auto command = load_u32(block, 8);
    const auto flags = load_u32(block, 12);
    const auto address = load_u64(block, 16);
    const auto bytes = load_u32(block, 24);
    if (command && flags && address && bytes) {
        const bool serialised = (*flags & control_flag_serialised) != 0;
        add(found, "params", 16, *address, *bytes,
            serialised ? BlockKind{} : BlockKind{BlockKind::Type::control, *command});
    }
}

void add_allocation(std::vector<NestedBlock>& found, std::span<const std::byte> block, DriverVersion version) {
    // NVOS21 and NVOS64 share the number and are told apart by their size, as the kernel does it.
    const bool with_rights = block.size() >= nvos64_bytes;
    if (!with_rights && block.size() < nvos21_bytes) {
        return;
    }
    const std::uint32_t class_id = load_u32(block, 12).value_or(0);
    const std::uint64_t parameters = load_u64(block, 16).value_or(0);
    const std::uint32_t flags = with_rights ? load_u32(block, 36).value_or(0) : 0;
    std::uint32_t bytes = load_u32(block, with_rights ? 32 : 24).value_or(0);
    if (bytes == 0) {
        // libcuda passes 0: the size follows from the class.
        const Class* known = find_class(class_id);
        const auto size = known != nullptr ? known->allocation.at(version) : std::nullopt;
        bytes = size ? size->bytes : 0;
    }
    const bool serialised = (flags & alloc_flag_serialised) != 0;
    add(found, "params", 16, parameters, bytes,
        serialised ? BlockKind{} : BlockKind{BlockKind::Type::allocation, class_id});
    if (with_rights) {
        constexpr std::uint32_t access_mask_bytes = 4;
        add(found, "rights", 24, load_u64(block, 24).value_or(0), access_mask_bytes, {});
    }
}

std::optional<std::uint64_t> load_count(std::span<const std::byte> block, const EmbeddedPointer& pointer) {
    switch (pointer.count_bytes) {
    case 1:
        return load_u8(block, pointer.count_offset);
    case 2:
        return load_u16(block, pointer.count_offset);
    case 4:
        return load_u32(block, pointer.count_offset);
    case 8:
        return load_u64(block, pointer.count_offset);
    default:
        return std::nullopt;
    }
}

bool holds_at(const EmbeddedPointer& pointer, DriverVersion version) {
    const std::uint16_t branch = version.known() ? version.branch : std::numeric_limits<std::uint16_t>::max();
    return pointer.since <= branch && branch <= pointer.until;
}

void add_embedded(std::vector<NestedBlock>& found, BlockKind kind, std::span<const std::byte> block,
                  DriverVersion version) {
    for (const EmbeddedPointer& pointer : embedded_pointers()) {
        if (pointer.where != kind || !holds_at(pointer, version)) {
            continue;
        }
        const auto address = load_u64(block, pointer.offset);
        std::uint64_t bytes = pointer.element;
        if (pointer.count_offset != EmbeddedPointer::none) {
            const auto count = load_count(block, pointer);
            if (!count) {
                continue;
            }
            // A count that would overflow is as wild as one beyond most_nested_bytes.
            const std::uint64_t wild = std::uint64_t{most_nested_bytes} + 1;
            const std::uint64_t elements = *count > most_nested_bytes ? wild : *count * (pointer.squared ? *count : 1);
            bytes = elements > most_nested_bytes ? wild : elements * pointer.element;
        }
        if (address) {
            add(found, pointer.name, pointer.offset, *address, bytes, {});
        }
    }
}

void collect(std::vector<FoundBlock>& all, const std::string& path, const std::vector<NestedBlock>& level,
             DriverVersion version, const ReadMemory& read, unsigned depth) {
    for (const NestedBlock& block : level) {
        FoundBlock found;
        found.path = path.empty() ? block.name : path + "/" + block.name;
        found.pointer_offset = block.pointer_offset;
        found.address = block.address;
        found.bytes = block.bytes;
        found.truncated = block.truncated;
        found.kind = block.kind;
        found.data = read(block.address, block.bytes);
        const std::string below = found.path;
        std::vector<NestedBlock> next;
        if (depth + 1 < most_nested_levels) {
            next = nested_blocks(block.kind, found.data, version);
        }
        all.push_back(std::move(found));
        collect(all, below, next, version, read, depth + 1);
    }
}

} // namespace

BlockKind argument_kind(Node node, std::uint64_t request) noexcept {
    switch (node) {
    case Node::control:
    case Node::gpu:
        // The kernel looks at the number alone, whatever the type and the direction are.
        return request >> 32 == 0 ? BlockKind{BlockKind::Type::escape, request_number(request)} : BlockKind{};
    case Node::uvm:
    case Node::uvm_tools:
        return request >> 32 == 0 ? BlockKind{BlockKind::Type::uvm, static_cast<std::uint32_t>(request)} : BlockKind{};
    case Node::modeset:
    case Node::capabilities:
    case Node::other:
        break;
    }
    return {};
}

std::optional<std::uint32_t> argument_bytes(Node node, std::uint64_t request, DriverVersion version) noexcept {
    const BlockKind kind = argument_kind(node, request);
    if (kind.type == BlockKind::Type::uvm) {
        const UvmCommand* command = find_uvm_command(kind.number);
        const auto size = command != nullptr ? command->size.at(version) : std::nullopt;
        return size ? std::optional{size->bytes} : std::nullopt;
    }
    // All the other nodes use _IOC requests; one without a direction takes a number or nothing, not a block.
    const bool has_direction = ((request >> 30) & 3) != 0;
    return has_direction && request >> 32 == 0 ? std::optional{request_size(request)} : std::nullopt;
}

std::vector<NestedBlock> nested_blocks(BlockKind kind, std::span<const std::byte> block, DriverVersion version) {
    std::vector<NestedBlock> found;
    BlockKind table = kind;
    switch (kind.type) {
    case BlockKind::Type::opaque:
        return found;
    case BlockKind::Type::xfer_escape:
        table.type = BlockKind::Type::escape;
        [[fallthrough]];
    case BlockKind::Type::escape:
        if (kind.number == escape_xfer) {
            add_xfer(found, block);
        } else if (kind.number == escape_control) {
            add_control(found, block);
        } else if (kind.number == escape_alloc) {
            add_allocation(found, block, version);
        }
        break;
    case BlockKind::Type::control:
    case BlockKind::Type::allocation:
    case BlockKind::Type::uvm:
        break;
    }
    add_embedded(found, table, block, version);
    std::ranges::stable_sort(found, {}, &NestedBlock::pointer_offset);
    return found;
}

std::vector<NestedBlock> nested_blocks(Node node, std::uint64_t request, std::span<const std::byte> block,
                                       DriverVersion version) {
    return nested_blocks(argument_kind(node, request), block, version);
}

std::vector<FoundBlock> collect_nested_blocks(Node node, std::uint64_t request, std::span<const std::byte> argument,
                                              DriverVersion version, const ReadMemory& read) {
    std::vector<FoundBlock> all;
    collect(all, {}, nested_blocks(node, request, argument, version), version, read, 0);
    return all;
}

} // namespace upcie::rm
