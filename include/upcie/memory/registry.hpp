// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/translation_index.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::memory {

class Registry;

/// Memory that may be resolved, until this object goes or unregister() is called.
///
/// Move-only; keeps its Registry. Threads: one at a time for the object; resolve() from any thread.
class Registration {
  public:
    Registration() noexcept = default;
    Registration(Registration&& other) noexcept;
    Registration& operator=(Registration&& other) noexcept;
    ~Registration() { unregister(); }

    /// Translates `bytes` from `offset` of what was registered: the first extent, bounds-checked against all of it.
    /// Hot. Refuses: empty, out_of_bounds. The extent is good for a command submitted before the next poll() of its
    /// queue; keep the Registration until then.
    [[nodiscard]] Resolution resolve(ByteCount offset, ByteCount bytes) const noexcept {
        return record_->resolve(offset.value(), bytes.value());
    }
    /// All extents of a range, copied out. Cold. Errors: as to_error(EFAULT, EINVAL).
    [[nodiscard]] Result<std::vector<iommu::Extent>> extents(ByteCount offset, ByteCount bytes) const;

    [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(record_->base); }
    [[nodiscard]] ByteCount size() const noexcept { return ByteCount{record_->length}; }
    [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

    /// From now on the range no longer resolves through this registration. The mapping itself goes when every attached
    /// reader (a queue) has drained what was submitted before: safe while I/O is in flight.
    void unregister() noexcept;

  private:
    friend class Registry;
    std::shared_ptr<Registry> registry_;
    const TranslationRecord* record_ = nullptr;
};

/// One thread's way into a Registry: resolves pointers without locking, and says when it is done with what it resolved.
/// A QueuePair has one of its own.
///
/// Move-only. Threads: one at a time.
class Reader {
  public:
    Reader() noexcept = default;
    Reader(Reader&& other) noexcept;
    Reader& operator=(Reader&& other) noexcept;
    ~Reader();

    /// Translates [pointer, pointer + bytes): the first extent. Hot: no lock, no allocation.
    /// Refuses: no_registry, not_registered, out_of_bounds (no single registration holds all of it), empty.
    [[nodiscard]] Resolution resolve(const void* pointer, ByteCount bytes) const noexcept {
        if (root_ == nullptr) [[unlikely]] {
            return {{}, Refusal::no_registry};
        }
        const auto start = reinterpret_cast<std::uintptr_t>(pointer);
        std::uint64_t address = 0;
        if (bytes.value() - 1 < (std::uint64_t{1} << 32) &&
            TranslationIndex::try_resolve(root_, start, bytes.value(), address)) [[likely]] {
            return {{DmaAddress{address}, bytes}, Refusal::none};
        }
        return TranslationIndex::resolve(root_, start, bytes.value());
    }
    /// What TranslationIndex::try_resolve() takes, for a queue to keep at hand while the reader lives; null when
    /// detached.
    [[nodiscard]] const TranslationIndex::Slot* index_root() const noexcept { return root_; }

    /// True when registrations were removed since the last announce(): their memory waits for this reader.
    [[nodiscard]] bool behind() const noexcept { return epoch_->load(std::memory_order_acquire) != announced_; }
    /// The present epoch: removals up to it are invisible to what is resolved from now on.
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_->load(std::memory_order_acquire); }
    /// Says that nothing resolved before `epoch` was read is in use any more.
    void announce(std::uint64_t epoch) noexcept;

    [[nodiscard]] bool attached() const noexcept { return registry_ != nullptr; }

  private:
    friend class Registry;
    struct Seat;
    std::shared_ptr<Registry> registry_;
    Seat* seat_ = nullptr;
    const TranslationIndex::Slot* root_ = nullptr;
    const std::atomic<std::uint64_t>* epoch_ = &no_epoch; // a detached reader is never behind
    std::uint64_t announced_ = 0;

    static const std::atomic<std::uint64_t> no_epoch;
};

/// From pointers to addresses that the devices of one AddressSpace may use, with proof: outside a live registration
/// nothing resolves, also in pages that a registration merely touches.
///
/// Ranges may overlap, enclose, abut and repeat: each registration is its own, a pointer resolves through the newest
/// one that holds the whole range asked for, and a range that only several together hold does not resolve. Threads:
/// any. Registering and unregistering lock; Registration::resolve and Reader::resolve never do.
class Registry : public std::enable_shared_from_this<Registry> {
  public:
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;
    ~Registry();

    /// Errors: ENOMEM (no address space for the index).
    [[nodiscard]] static Result<std::shared_ptr<Registry>> create(os::System& system,
                                                                  std::shared_ptr<iommu::AddressSpace> space);

    /// Registers memory of this process that the caller keeps until unregistering. Whole granules around it are mapped;
    /// only [start, start + length) resolves. Errors: EINVAL (empty, wraps, or above 2^48), and map_memory's.
    [[nodiscard]] Result<Registration> register_memory(void* start, ByteCount length);
    /// Registers a buffer by its file, or by its address where the address space cannot map files; device memory as
    /// register_device_memory() does. The Registration does not own the buffer. Errors: map_file's, map_memory's and
    /// register_device_memory's.
    [[nodiscard]] Result<Registration> register_buffer(const Buffer& buffer);
    /// Registers `length` bytes at `start`, which lie `delta` bytes into memory that is mapped already. `keep` is held
    /// as long as a device may use it. Errors: EINVAL when the mapping does not hold the range.
    [[nodiscard]] Result<Registration> register_mapping(void* start, ByteCount length, iommu::DmaMapping mapping,
                                                        ByteCount delta = ByteCount{}, std::shared_ptr<void> keep = {});

    /// Registers device memory: any pointer that its runtime recognises, whatever its alignment or length, and also
    /// over several allocations that follow each other. Each allocation is exported once (DeviceExports) and mapped
    /// once here. Keeps exports and mappings; the memory itself is the caller's, who frees it after the last
    /// registration of it. Errors: EINVAL (no bytes, or it wraps), EFAULT (the range leaves the allocations), those of
    /// DeviceExports::export_at and AddressSpace::map_dmabuf; EOPNOTSUPP says what the kernel refused.
    [[nodiscard]] Result<Registration> register_device_memory(DeviceExports& exports, DevicePointer start,
                                                              ByteCount length);

    /// All extents of a range, for any thread: takes the lock. Errors: EFAULT (not registered, out of bounds), EINVAL.
    [[nodiscard]] Result<std::vector<iommu::Extent>> resolve(const void* pointer, ByteCount bytes);

    /// A reader for the calling thread or its queue.
    [[nodiscard]] Reader attach();

    /// Unmaps what no reader can be using any more; answers how many registrations still wait. Registering and
    /// unregistering do it too.
    std::size_t reclaim();
    [[nodiscard]] std::size_t live_count() const;
    /// Bytes of the index's leaves.
    [[nodiscard]] ByteCount index_memory() const;
    [[nodiscard]] const std::shared_ptr<iommu::AddressSpace>& address_space() const noexcept { return space_; }

  private:
    friend class Registration;
    friend class Reader;
    struct Mapped;
    struct Entry;
    struct State;

    Registry(std::shared_ptr<iommu::AddressSpace> space, TranslationIndex index);
    Result<std::shared_ptr<const Mapped>> map_export(const std::shared_ptr<const DeviceExport>& exported);
    Result<Registration> insert(std::unique_ptr<Entry> entry, std::uint64_t base, std::uint64_t length);
    void remove(const TranslationRecord* record) noexcept;
    void leave(Reader::Seat* seat) noexcept;

    std::shared_ptr<iommu::AddressSpace> space_;
    std::unique_ptr<State> state_;
    std::atomic<std::uint64_t> epoch_{1};
};

} // namespace upcie::memory
