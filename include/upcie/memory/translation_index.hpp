// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/refusal.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::memory {

/// What a range translates to: the first extent of it, or the reason why there is none.
struct Resolution {
    iommu::Extent extent; ///< from the first byte asked for; shorter than asked where the memory parts there
    Refusal refusal = Refusal::none;
    [[nodiscard]] explicit operator bool() const noexcept { return refusal == Refusal::none; }
};

/// A maximal run: from `offset` in the registration on, device addresses are contiguous until the next run.
struct Run {
    std::uint64_t offset;
    std::uint64_t address;
};

/// What the hot path knows of one registration. Immutable once it can be found.
struct TranslationRecord {
    std::uint64_t base = 0;          ///< the pointer registered
    std::uint64_t length = 0;        ///< bytes
    std::uint64_t first_address = 0; ///< device address of `base`
    const Run* runs = nullptr;       ///< null where one run covers it all
    std::size_t run_count = 0;

    /// [offset, offset + bytes) of the registration. Threads: any. Refuses: empty, out_of_bounds.
    [[nodiscard]] Resolution resolve(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        if (offset >= length || bytes - 1 >= length - offset) [[unlikely]] {
            return {{}, bytes == 0 ? Refusal::empty : Refusal::out_of_bounds};
        }
        if (runs != nullptr) [[unlikely]] {
            return resolve_in_runs(offset, bytes);
        }
        return {{DmaAddress{first_address + offset}, ByteCount{bytes}}, Refusal::none};
    }

  private:
    [[nodiscard]] Resolution resolve_in_runs(std::uint64_t offset, std::uint64_t bytes) const noexcept;
};

/// From a pointer to the record that holds it: a radix tree over 48-bit addresses in 4 KiB pages, in three levels of
/// 2^18, 2^9 and 2^9 entries. A registration that fills a whole upper entry stands there itself, so the tree grows with
/// the number of registrations and their fragmentation, not with their size. Pages that several registrations touch
/// hold a list of them.
///
/// Threads: one writer (the Registry's lock) beside any number of readers. A reader may still hold what it found after
/// it was removed: the writer passes replaced lists to `retire` and frees them when no reader can hold them any more.
class TranslationIndex {
  public:
    static constexpr unsigned address_bits = 48;

    /// `retire` takes over lists that were replaced. Error: ENOMEM.
    [[nodiscard]] static Result<TranslationIndex> create(os::System& system,
                                                         std::function<void(std::unique_ptr<std::byte[]>)> retire);
    TranslationIndex(TranslationIndex&&) noexcept = default;
    TranslationIndex& operator=(TranslationIndex&&) noexcept = delete;
    ~TranslationIndex();

    /// The range must lie below 2^48 and not be empty. Where ranges overlap, the newest that holds what is asked wins.
    void insert(const TranslationRecord& record);
    void remove(const TranslationRecord& record);

    using Slot = std::atomic<std::uintptr_t>;
    [[nodiscard]] const Slot* root() const noexcept { return root_; }
    /// Bytes of tables made so far, the root's address space left out.
    [[nodiscard]] ByteCount table_memory() const noexcept { return ByteCount{tables_.size() * sizeof(Table)}; }

    /// Translates [pointer, pointer + bytes) if one record holds all of it. Hot, any thread.
    [[nodiscard]] static Resolution resolve(const Slot* root, std::uint64_t pointer, std::uint64_t bytes) noexcept {
        const std::uint64_t top = pointer >> root_shift;
        if (top >= root_entries) [[unlikely]] {
            return {{}, Refusal::not_registered};
        }
        std::uintptr_t value = root[top].load(std::memory_order_acquire);
        if ((value & tag_table) != 0) [[likely]] {
            value = entry(value, (pointer >> middle_shift) & (table_entries - 1)).load(std::memory_order_acquire);
            if ((value & tag_table) != 0) [[likely]] {
                value = entry(value, (pointer >> leaf_shift) & (table_entries - 1)).load(std::memory_order_acquire);
            }
        }
        if (value == 0 || (value & tag_list) != 0) [[unlikely]] {
            return resolve_in_list(value, pointer, bytes);
        }
        const auto* record = reinterpret_cast<const TranslationRecord*>(value);
        const std::uint64_t offset = pointer - record->base;
        if (offset >= record->length || bytes - 1 >= record->length - offset || record->runs != nullptr) [[unlikely]] {
            return resolve_in_record(*record, pointer, bytes);
        }
        return {{DmaAddress{record->first_address + offset}, ByteCount{bytes}}, Refusal::none};
    }

  private:
    static constexpr std::uintptr_t tag_table = 1;
    static constexpr std::uintptr_t tag_list = 2;
    static constexpr unsigned leaf_shift = 12;
    static constexpr unsigned middle_shift = 21;
    static constexpr unsigned root_shift = 30;
    static constexpr std::size_t table_entries = 512;
    static constexpr std::size_t root_entries = std::size_t{1} << (address_bits - root_shift);

    struct Table {
        Slot slots[table_entries];
    };
    struct List;

    TranslationIndex() = default;
    static const Slot& entry(std::uintptr_t tagged, std::size_t index) noexcept {
        return reinterpret_cast<const Slot*>(tagged - tag_table)[index];
    }
    static Resolution resolve_in_list(std::uintptr_t value, std::uint64_t pointer, std::uint64_t bytes) noexcept;
    static Resolution resolve_in_record(const TranslationRecord& record, std::uint64_t pointer,
                                        std::uint64_t bytes) noexcept;

    void update(Slot* slots, unsigned shift, std::size_t first_slot, std::size_t last_slot, std::uint64_t slots_base,
                std::uint64_t first_page, std::uint64_t last_page, const TranslationRecord& record, bool add);
    void add_to_slot(Slot& slot, const TranslationRecord& record);
    void remove_from_slot(Slot& slot, const TranslationRecord& record);
    Table& split(Slot& slot);
    void release(List* list);

    os::Mapping root_memory_;
    Slot* root_ = nullptr;
    std::vector<std::unique_ptr<Table>> tables_;
    std::function<void(std::unique_ptr<std::byte[]>)> retire_;
};

} // namespace upcie::memory
