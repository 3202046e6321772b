// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <upcie/rm/call.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// An RM object of a trace.
struct Object {
    std::uint32_t client = 0;
    std::uint32_t handle = 0;
    std::uint32_t parent = 0; ///< handle of the parent; a client has none
    std::uint32_t class_id = 0;
    ClassRole role = ClassRole::other;
    std::string label;              ///< what it is and which: "channel 3"
    std::string facts;              ///< what its parameters say: "1024 GPFIFO entries"; often empty
    std::uint64_t bytes = 0;        ///< of memory
    std::uint64_t ring_address = 0; ///< of a channel, for the GPU
    std::uint32_t ring_entries = 0;
    std::int32_t pid = 0;                    ///< that made it
    std::uint64_t born = 0;                  ///< sequence number of its allocation
    std::uint64_t died = 0;                  ///< of what freed it; 0: it outlived the trace
    bool assumed = false;                    ///< never seen to be allocated: the trace began later, or lacks it
    std::optional<std::size_t> parent_index; ///< among all the objects
    std::vector<std::size_t> children;
};

/// A range of addresses through which an object is reached.
struct ObjectMapping {
    enum class Kind : std::uint8_t {
        cpu,      ///< RM_MAP_MEMORY and an mmap
        external, ///< UVM: the GPU's page tables, and the CPU's where the range is mapped there
        engine,   ///< RM_MAP_MEMORY_DMA: the GPU alone
    };
    Kind kind = Kind::cpu;
    std::optional<std::size_t> object; ///< nothing: the handle named none that was seen
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t offset = 0; ///< into the object
    std::uint64_t born = 0;
    std::uint64_t died = 0;
    std::int32_t pid = 0;
};

/// Memory given out as a dma-buf (escape 217) or as an object's descriptor (control 0x3d05).
struct ObjectExport {
    struct Part {
        std::uint32_t handle = 0;
        std::optional<std::size_t> object;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    bool dma_buf = false; ///< else: a descriptor that only RM understands
    std::int32_t fd = -1;
    std::uint64_t sequence = 0;
    std::uint64_t total = 0;
    std::vector<Part> parts;
};

/// The objects of a trace, built call by call. Threads: one at a time.
class ObjectTree {
  public:
    /// Takes one record into account; `call` is what understand() made of it. Never fails: what does not fit is
    /// `assumed`.
    void apply(const Record& record, const std::optional<Call>& call);
    /// All of a trace.
    [[nodiscard]] static ObjectTree of(const Trace& trace);

    [[nodiscard]] const std::vector<Object>& objects() const noexcept { return objects_; }
    /// Those without a parent, in the order of their birth.
    [[nodiscard]] std::vector<std::size_t> roots() const;
    [[nodiscard]] const std::vector<ObjectMapping>& mappings() const noexcept { return mappings_; }
    [[nodiscard]] const std::vector<ObjectExport>& exports() const noexcept { return exports_; }
    /// The living object of this handle, or nullptr.
    [[nodiscard]] const Object* find(std::uint32_t client, std::uint32_t handle) const;
    /// "channel 3 (0x5c00002a)"; just the number for one that is not known.
    [[nodiscard]] std::string name(std::uint32_t client, std::uint32_t handle) const;

  private:
    using Key = std::pair<std::uint32_t, std::uint32_t>;

    std::size_t add(const Record& record, std::uint32_t client, std::uint32_t parent, std::uint32_t handle,
                    std::uint32_t class_id);
    std::optional<std::size_t> index(std::uint32_t client, std::uint32_t handle) const;
    void end(std::size_t object, std::uint64_t sequence);
    void apply_escape(const Record& record, const Call& call);
    void apply_allocation(const Record& record, const Call& call);
    void apply_uvm(const Record& record, const Call& call);
    void apply_export(const Record& record, const Call& call);
    void apply_map(const Record& record, const MapRecord& map);
    void apply_unmap(const Record& record, const UnmapRecord& unmap);
    void end_mapping(ObjectMapping::Kind kind, std::uint64_t address, const Stamp& stamp);

    struct PendingMap {
        std::optional<std::size_t> object;
        std::uint64_t offset = 0;
    };
    std::vector<Object> objects_;
    std::map<Key, std::size_t> alive_;
    std::map<std::string, unsigned> label_counts_;
    std::vector<ObjectMapping> mappings_;
    std::vector<ObjectExport> exports_;
    std::map<std::pair<std::int32_t, std::int32_t>, PendingMap> pending_maps_; ///< by pid and fd, until the mmap
};

/// "2 MiB", "4 KiB", "96 bytes".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

} // namespace upcie::rm
