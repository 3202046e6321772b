// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/objects.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <rm/little_endian.hpp>
#include <rm/object_facts.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

constexpr std::uint32_t export_object_to_fd = 0x3d05; // NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD

/// What an object is called before its number: classes whose role says little go by their role all the same.
std::string kind_label(std::uint32_t class_id, ClassRole role) {
    if (class_id == class_memory_local_user) {
        return "video memory";
    }
    if (class_id == class_memory_system) {
        return "system memory";
    }
    if (class_id == class_memory_os_descriptor) {
        return "pinned memory";
    }
    if (find_class(class_id) == nullptr) {
        return fmt::format("object of class 0x{:x}", class_id);
    }
    return role == ClassRole::other ? std::string{find_class(class_id)->name} : std::string{role_name(role)};
}

/// The class that an allocation by VID_HEAP_CONTROL would have as an RM_ALLOC: flags @52, attributes @56 of NVOS32.
std::uint32_t heap_class(std::span<const std::byte> argument) {
    constexpr std::uint32_t flag_virtual = 0x00080000;
    constexpr std::uint32_t location_mask = 3U << 25;
    if ((load_u32(argument, 52).value_or(0) & flag_virtual) != 0) {
        return class_memory_virtual;
    }
    return (load_u32(argument, 56).value_or(0) & location_mask) != 0 ? class_memory_system : class_memory_local_user;
}

} // namespace

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::pair<unsigned, const char*> units[] = {{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
    for (const auto& [shift, name] : units) {
        const std::uint64_t unit = std::uint64_t{1} << shift;
        if (bytes >= unit && bytes % unit == 0) {
            return fmt::format("{} {}", bytes / unit, name);
        }
        if (bytes >= unit * 10) {
            return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit), name);
        }
    }
    return fmt::format("{} bytes", bytes);
}

std::optional<std::size_t> ObjectTree::index(std::uint32_t client, std::uint32_t handle) const {
    const auto found = alive_.find({client, handle});
    return found != alive_.end() ? std::optional{found->second} : std::nullopt;
}

const Object* ObjectTree::find(std::uint32_t client, std::uint32_t handle) const {
    const auto found = index(client, handle);
    return found ? &objects_[*found] : nullptr;
}

std::string ObjectTree::name(std::uint32_t client, std::uint32_t handle) const {
    const Object* object = find(client, handle);
    return object != nullptr ? fmt::format("{} (0x{:x})", object->label, handle) : fmt::format("0x{:x}", handle);
}

std::vector<std::size_t> ObjectTree::roots() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
        if (!objects_[i].parent_index) {
            found.push_back(i);
        }
    }
    return found;
}

std::size_t ObjectTree::add(const Record& record, std::uint32_t client, std::uint32_t parent, std::uint32_t handle,
                            std::uint32_t class_id) {
    Object object;
    object.client = client;
    object.handle = handle;
    object.parent = handle == client ? 0 : parent;
    object.class_id = class_id;
    const Class* known = find_class(class_id);
    object.role = known != nullptr ? known->role : ClassRole::other;
    const std::string kind = kind_label(class_id, object.role);
    object.label = fmt::format("{} {}", kind, ++label_counts_[kind]);
    object.pid = record.stamp.pid;
    object.born = record.stamp.sequence;
    if (handle != client) {
        object.parent_index = index(client, parent);
        if (!object.parent_index) {
            // A trace of a running process begins in the middle: what is named must have been there.
            object.parent_index = index(client, client);
            if (!object.parent_index) {
                const std::size_t root = add(record, client, 0, client, class_root_client);
                objects_[root].assumed = true;
                object.parent_index = root;
            }
        }
    }
    const std::size_t position = objects_.size();
    if (object.parent_index) {
        objects_[*object.parent_index].children.push_back(position);
    }
    objects_.push_back(std::move(object));
    alive_[{client, handle}] = position;
    return position;
}

void ObjectTree::end(std::size_t object, std::uint64_t sequence) {
    // Depth first without recursion: a mutated trace may have made the tree as deep as it is long.
    std::vector<std::size_t> todo{object};
    while (!todo.empty()) {
        Object& current = objects_[todo.back()];
        const std::size_t position = todo.back();
        todo.pop_back();
        if (current.died != 0) {
            continue;
        }
        current.died = sequence;
        const auto living = alive_.find({current.client, current.handle});
        if (living != alive_.end() && living->second == position) {
            alive_.erase(living);
        }
        todo.insert(todo.end(), current.children.begin(), current.children.end());
    }
}

void ObjectTree::apply_allocation(const Record& record, const Call& call) {
    const std::size_t object = add(record, call.client, call.parent, call.object, call.class_id.value_or(0));
    ObjectFacts facts = allocation_facts(call, objects_[object].role);
    objects_[object].facts = std::move(facts.text);
    objects_[object].bytes = facts.bytes;
    if (objects_[object].role == ClassRole::channel) {
        objects_[object].ring_address = load_u64(call.parameters_before, 8).value_or(0);
        objects_[object].ring_entries = load_u32(call.parameters_before, 16).value_or(0);
    }
}

void ObjectTree::apply_export(const Record& record, const Call& call) {
    ObjectExport made;
    made.sequence = record.stamp.sequence;
    if (call.control) {
        // Object {type @0, device @4, parent @8, object @12}, fd @16.
        const std::uint32_t handle = load_u32(call.parameters_before, 12).value_or(0);
        made.fd = static_cast<std::int32_t>(load_u32(call.parameters_after, 16).value_or(0xffffffff));
        made.parts.push_back({handle, index(call.client, handle), 0, 0});
        exports_.push_back(std::move(made));
        return;
    }
    // fd @0, objects @12, total size @24; behind it handles, offsets and sizes of 128 objects, from 570 on after a
    // field.
    constexpr std::size_t most = 128;
    constexpr std::size_t later_form = 2608;
    const auto bytes = call.argument_before;
    const bool later = bytes.size() >= later_form;
    const std::size_t handles = later ? 36 : 32;
    const std::size_t offsets = later ? 552 : 544;
    const std::size_t sizes = offsets + most * 8;
    made.dma_buf = true;
    made.fd = static_cast<std::int32_t>(load_u32(call.argument_after, 0).value_or(0xffffffff));
    made.total = load_u64(bytes, 24).value_or(0);
    const std::size_t count = std::min<std::size_t>(load_u32(bytes, 12).value_or(0), most);
    for (std::size_t i = 0; i < count; ++i) {
        const auto handle = load_u32(bytes, handles + i * 4);
        const auto offset = load_u64(bytes, offsets + i * 8);
        const auto length = load_u64(bytes, sizes + i * 8);
        if (!handle || !offset || !length) {
            break;
        }
        made.parts.push_back({*handle, index(call.client, *handle), *offset, *length});
    }
    exports_.push_back(std::move(made));
}

void ObjectTree::apply_escape(const Record& record, const Call& call) {
    const auto bytes = call.argument_before;
    switch (call.what.number) {
    case escape_alloc:
    case escape_alloc_object:
    case escape_alloc_memory:
        apply_allocation(record, call);
        break;
    case escape_vid_heap_control:
        if (call.object != 0) {
            const std::size_t object = add(record, call.client, call.parent, call.object, heap_class(bytes));
            objects_[object].bytes = load_u64(call.argument_after, 88).value_or(0);
            objects_[object].facts = bytes_text(objects_[object].bytes) + " by VID_HEAP_CONTROL";
        }
        break;
    case escape_dup_object: {
        const auto source = index(load_u32(bytes, 12).value_or(0), load_u32(bytes, 16).value_or(0));
        const std::size_t object =
            add(record, call.client, call.parent, call.object, source ? objects_[*source].class_id : 0);
        objects_[object].facts = source ? "duplicate of " + objects_[*source].label : std::string{"duplicate"};
        objects_[object].bytes = source ? objects_[*source].bytes : 0;
        break;
    }
    case escape_free:
        if (const auto object = index(call.client, call.object)) {
            end(*object, record.stamp.sequence);
        }
        break;
    case escape_map_memory:
        // NVOS33: offset @16, length @24; the node's fd @48, through which an mmap follows.
        if (const auto fd = load_u32(bytes, 48)) {
            pending_maps_[{record.stamp.pid, static_cast<std::int32_t>(*fd)}] = {index(call.client, call.object),
                                                                                 load_u64(bytes, 16).value_or(0)};
        }
        break;
    case escape_map_memory_dma: {
        // NVOS46: offset @16, length @24; the address that came out lies 16 before the end in each form.
        const auto after = call.argument_after;
        const auto address = after.size() >= 56 ? load_u64(after, after.size() - 16) : std::nullopt;
        mappings_.push_back({ObjectMapping::Kind::engine, index(call.client, call.object), address.value_or(0),
                             load_u64(bytes, 24).value_or(0), load_u64(bytes, 16).value_or(0), record.stamp.sequence, 0,
                             record.stamp.pid});
        break;
    }
    case escape_export_to_dmabuf_fd:
        apply_export(record, call);
        break;
    case escape_control:
        if (call.control == export_object_to_fd) {
            apply_export(record, call);
        }
        break;
    default:
        break;
    }
}

void ObjectTree::end_mapping(ObjectMapping::Kind kind, std::uint64_t address, const Stamp& stamp) {
    for (ObjectMapping& mapping : mappings_) {
        if (mapping.kind == kind && mapping.died == 0 && mapping.address == address && mapping.pid == stamp.pid) {
            mapping.died = stamp.sequence;
        }
    }
}

void ObjectTree::apply_uvm(const Record& record, const Call& call) {
    const auto bytes = call.argument_before;
    const auto base = load_u64(bytes, 0);
    if (!base) {
        return;
    }
    if (call.what.number == uvm_map_external_allocation) {
        // base, length, offset, attributes of each GPU; last client, memory, status.
        if (bytes.size() < 40) {
            return;
        }
        const std::uint32_t client = load_u32(bytes, bytes.size() - 12).value_or(0);
        const std::uint32_t memory = load_u32(bytes, bytes.size() - 8).value_or(0);
        mappings_.push_back({ObjectMapping::Kind::external, index(client, memory), *base,
                             load_u64(bytes, 8).value_or(0), load_u64(bytes, 16).value_or(0), record.stamp.sequence, 0,
                             record.stamp.pid});
    } else if (call.what.number == uvm_free) {
        end_mapping(ObjectMapping::Kind::external, *base, record.stamp);
    }
}

void ObjectTree::apply_map(const Record& record, const MapRecord& map) {
    const auto pending = pending_maps_.find({record.stamp.pid, map.fd});
    if (pending == pending_maps_.end() || !map.outcome.succeeded()) {
        return;
    }
    mappings_.push_back({ObjectMapping::Kind::cpu, pending->second.object,
                         static_cast<std::uint64_t>(map.outcome.value), map.length, pending->second.offset,
                         record.stamp.sequence, 0, record.stamp.pid});
    pending_maps_.erase(pending);
}

void ObjectTree::apply_unmap(const Record& record, const UnmapRecord& unmap) {
    if (unmap.outcome.succeeded() && !unmap.moved) {
        end_mapping(ObjectMapping::Kind::cpu, unmap.address, record.stamp);
    }
}

void ObjectTree::apply(const Record& record, const std::optional<Call>& call) {
    if (call) {
        if (!call->succeeded()) {
            return;
        }
        if (call->what.type == BlockKind::Type::escape) {
            apply_escape(record, *call);
        } else if (call->what.type == BlockKind::Type::uvm) {
            apply_uvm(record, *call);
        }
    } else if (const auto* map = std::get_if<MapRecord>(&record.body)) {
        apply_map(record, *map);
    } else if (const auto* unmap = std::get_if<UnmapRecord>(&record.body)) {
        apply_unmap(record, *unmap);
    } else if (const auto* left = std::get_if<ExitRecord>(&record.body); left != nullptr && left->process) {
        // The kernel frees what the process left behind.
        for (std::size_t i = 0; i < objects_.size(); ++i) {
            if (objects_[i].pid == record.stamp.pid && !objects_[i].parent_index) {
                end(i, record.stamp.sequence);
            }
        }
    }
}

ObjectTree ObjectTree::of(const Trace& trace) {
    ObjectTree tree;
    const DriverVersion version = driver_version(trace);
    for (const Record& record : trace.records) {
        tree.apply(record, understand(record, version));
    }
    return tree;
}

} // namespace upcie::rm
