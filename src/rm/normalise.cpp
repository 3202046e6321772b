// SPDX-License-Identifier: BSD-3-Clause
#include <rm/normalise.hpp>

#include <algorithm>

#include <rm/block_kinds.hpp>
#include <rm/little_endian.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

template <class Number>
void store(std::span<std::byte> bytes, std::size_t offset, Number number) {
    for (std::size_t i = 0; i < sizeof number && offset + i < bytes.size(); ++i) {
        bytes[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff);
    }
}

/// Where a descriptor lies in a block: behind its beginning, or so many bytes before its end.
struct DescriptorPlace {
    BlockKind where;
    std::uint16_t offset;
    bool from_end;
};
constexpr DescriptorPlace descriptor_places[] = {
    {escape_block(escape_register_fd), 0, false},
    {escape_block(escape_alloc_memory), 48, false},
    {escape_block(escape_map_memory), 48, false},
    {escape_block(escape_alloc_os_event), 8, false},
    {escape_block(escape_free_os_event), 8, false},
    {escape_block(escape_export_to_dmabuf_fd), 0, false},
    {control_block(0x3d05), 16, false},
    {control_block(0x3d06), 0, false},
    {allocation_block(class_event), 16, false},
    {allocation_block(class_event_os_event), 16, false},
    {uvm_block(uvm_register_gpu_vaspace), 16, false},
    {uvm_block(uvm_register_channel), 16, false},
    {uvm_block(uvm_register_gpu), 24, false},
    {uvm_block(uvm_map_external_allocation), 16, true},
    {uvm_block(75), 0, false}, // MM_INITIALIZE
};

/// What a block of a call is, by its path.
BlockKind kind_of(const Call& call, const Block& block) {
    if (block.path == "argument") {
        return call.through_xfer ? BlockKind{BlockKind::Type::escape, escape_xfer} : call.what;
    }
    if (block.path == "xfer") {
        return call.what;
    }
    if (block.path == "params" || block.path == "xfer/params") {
        return call.control    ? BlockKind{BlockKind::Type::control, *call.control}
               : call.class_id ? BlockKind{BlockKind::Type::allocation, *call.class_id}
                               : BlockKind{};
    }
    return {};
}

/// Whether the pointer to `inner` lies in `outer`: its path is one name longer.
bool leads_to(const Block& outer, const Block& inner) {
    const std::string_view path = inner.path;
    if (outer.path == "argument") {
        return path != "argument" && path.find('/') == std::string_view::npos;
    }
    return path.size() > outer.path.size() + 1 && path.starts_with(outer.path) && path[outer.path.size()] == '/' &&
           path.find('/', outer.path.size() + 1) == std::string_view::npos;
}

/// A number that says which object, the same in every run that makes its objects in the same order.
std::uint32_t object_number(const ObjectTree& tree, const Object* object) {
    constexpr std::uint32_t mark = 0xf0000000;
    return mark | static_cast<std::uint32_t>(object - tree.objects().data());
}

void replace_words(std::span<std::byte> bytes, const Call& call, const ObjectTree& tree,
                   const AddressRegions& regions) {
    const auto own_pid = static_cast<std::uint32_t>(call.record->stamp.pid);
    const auto own_tid = static_cast<std::uint32_t>(call.record->stamp.tid);
    constexpr std::uint32_t smallest_id = 0x100;
    for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        if (at % 8 == 0 && at + 8 <= bytes.size()) {
            const std::uint64_t word = load_u64(bytes, at).value_or(0);
            if (const auto place = regions.find(word)) {
                constexpr unsigned mark_shift = 60;
                store(bytes, at, std::uint64_t{0xa} << mark_shift | std::uint64_t{place->region} << 44 | place->offset);
                at += 4;
                continue;
            }
            if (looks_like_pointer(word)) {
                store(bytes, at, std::uint64_t{0});
                at += 4;
                continue;
            }
        }
        const std::uint32_t word = load_u32(bytes, at).value_or(0);
        const Object* object = tree.find(call.client, word);
        object = object != nullptr ? object : tree.find(word, word);
        if (word >= smallest_id && object != nullptr) {
            store(bytes, at, object_number(tree, object));
        } else if (word >= smallest_id && (word == own_pid || word == own_tid)) {
            store(bytes, at, std::uint32_t{0});
        }
    }
}

} // namespace

bool looks_like_pointer(std::uint64_t word) noexcept {
    // Programs, libraries, stacks and mappings of x86-64 Linux lie here.
    constexpr std::uint64_t lowest = 0x5500'0000'0000;
    constexpr std::uint64_t highest = 0x7fff'ffff'ffff;
    if (word < lowest || word > highest) {
        return false;
    }
    // Six letters and two zeros look the same.
    for (unsigned i = 0; i < 6; ++i) {
        const auto letter = static_cast<unsigned char>(word >> (8 * i) & 0xff);
        if (letter < 0x20 || letter > 0x7e) {
            return true;
        }
    }
    return false;
}

void AddressRegions::add(std::uint64_t address, std::uint64_t length) {
    if (address != 0 && length != 0 && !regions_.contains(address)) {
        const std::size_t number = regions_.size();
        regions_[address] = {length, number};
    } else if (const auto known = regions_.find(address); known != regions_.end()) {
        known->second.length = std::max(known->second.length, length);
    }
}

std::optional<AddressRegions::Place> AddressRegions::find(std::uint64_t address) const {
    auto above = regions_.upper_bound(address);
    if (above == regions_.begin()) {
        return std::nullopt;
    }
    --above;
    const std::uint64_t offset = address - above->first;
    return offset < above->second.length ? std::optional{Place{above->second.number, offset}} : std::nullopt;
}

void AddressRegions::take(const Record& record, const std::optional<Call>& call) {
    if (const auto* map = std::get_if<MapRecord>(&record.body); map != nullptr && map->outcome.succeeded()) {
        add(static_cast<std::uint64_t>(map->outcome.value), map->length);
    }
    if (call && call->what.type == BlockKind::Type::uvm && call->what.number == uvm_create_external_range) {
        add(load_u64(call->argument_before, 0).value_or(0), load_u64(call->argument_before, 8).value_or(0));
    }
}

std::vector<std::byte> normalise(const Call& call, const Block& block, std::span<const std::byte> bytes,
                                 const ObjectTree& tree, const AddressRegions& regions) {
    std::vector<std::byte> result{bytes.begin(), bytes.end()};
    for (const Block& inner : call.ioctl->blocks) {
        if (leads_to(block, inner)) {
            store(std::span{result}, inner.pointer_offset, std::uint64_t{0});
        }
    }
    const BlockKind kind = kind_of(call, block);
    for (const DescriptorPlace& place : descriptor_places) {
        if (place.where == kind && place.offset <= result.size()) {
            store(std::span{result}, place.from_end ? result.size() - place.offset : place.offset, std::uint32_t{0});
        }
    }
    if (call.class_id && kind == call.what && tree.find(call.client, call.object) == nullptr) {
        // The handle of an object that was refused: the caller's or the driver's choice, and nobody has it.
        store(std::span{result}, 8, std::uint32_t{0});
    }
    replace_words(result, call, tree, regions);
    return result;
}

} // namespace upcie::rm
