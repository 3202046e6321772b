// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/translation_index.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <utility>

#include <sys/mman.h>

namespace upcie::memory {

// Several records in one slot, newest first. Immutable but for `references`, which only the writer touches: a split
// copies a slot's value, so several slots may hold one list.
struct alignas(8) TranslationIndex::List {
    std::size_t references;
    std::size_t count;
    const TranslationRecord* records[1]; // `count` of them

    [[nodiscard]] static List* make(std::size_t count) {
        const std::size_t bytes = sizeof(List) + count * sizeof(const TranslationRecord*);
        auto* memory = new std::byte[bytes];
        return new (memory) List{1, count, {nullptr}};
    }
    [[nodiscard]] const TranslationRecord** begin() noexcept { return records; }
    [[nodiscard]] std::span<const TranslationRecord* const> all() const noexcept { return {records, count}; }
};

Resolution TranslationRecord::resolve_in_runs(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    const Run* after = std::upper_bound(runs, runs + run_count, offset,
                                        [](std::uint64_t wanted, const Run& run) { return wanted < run.offset; });
    const Run& run = after[-1]; // the first run starts at offset 0
    const std::uint64_t run_end = after == runs + run_count ? length : after->offset;
    return {{DmaAddress{run.address + (offset - run.offset)}, ByteCount{std::min(bytes, run_end - offset)}},
            Refusal::none};
}

Resolution TranslationIndex::resolve_in_record(const TranslationRecord& record, std::uint64_t pointer,
                                               std::uint64_t bytes) noexcept {
    const std::uint64_t offset = pointer - record.base;
    if (offset >= record.length) {
        // The page is touched by the registration, the byte is not part of it.
        return {{}, bytes == 0 ? Refusal::empty : Refusal::not_registered};
    }
    return record.resolve(offset, bytes);
}

Resolution TranslationIndex::resolve_in_list(std::uintptr_t value, std::uint64_t pointer,
                                             std::uint64_t bytes) noexcept {
    Resolution worst{{}, bytes == 0 ? Refusal::empty : Refusal::not_registered};
    if (value == 0) {
        return worst;
    }
    const auto* list = reinterpret_cast<const List*>(value - tag_list);
    for (const TranslationRecord* record : list->all()) {
        const Resolution resolution = resolve_in_record(*record, pointer, bytes);
        if (resolution) {
            return resolution;
        }
        if (resolution.refusal == Refusal::out_of_bounds) {
            worst = resolution;
        }
    }
    return worst;
}

Result<TranslationIndex> TranslationIndex::create(os::System& system,
                                                  std::function<void(std::unique_ptr<std::byte[]>)> retire) {
    // Address space only: the kernel gives a page when an entry of it is first written.
    constexpr std::size_t bytes = root_entries * sizeof(Slot);
    void* memory =
        system.mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(errno, "mmap", "the registry's index (2 MiB)", "Raise the limit on address space (ulimit -v)");
    }
    TranslationIndex index;
    index.root_memory_ = os::Mapping{system, memory, ByteCount{bytes}};
    index.root_ = static_cast<Slot*>(memory); // zero bytes are zero slots: writing them would touch every page
    index.retire_ = std::move(retire);
    return index;
}

TranslationIndex::~TranslationIndex() {
    if (root_ == nullptr) {
        return;
    }
    const auto drop = [](Slot& slot) {
        const std::uintptr_t value = slot.load(std::memory_order_relaxed);
        if ((value & tag_list) != 0) {
            auto* list = reinterpret_cast<List*>(value - tag_list);
            if (--list->references == 0) {
                delete[] reinterpret_cast<std::byte*>(list);
            }
        }
    };
    for (const auto& table : tables_) {
        std::for_each(std::begin(table->slots), std::end(table->slots), drop);
    }
    std::for_each(root_, root_ + root_entries, drop);
}

void TranslationIndex::insert(const TranslationRecord& record) {
    const std::uint64_t first_page = record.base >> leaf_shift;
    const std::uint64_t last_page = (record.base + record.length - 1) >> leaf_shift;
    update(root_, root_shift, 0, root_entries - 1, 0, first_page, last_page, record, true);
}

void TranslationIndex::remove(const TranslationRecord& record) {
    const std::uint64_t first_page = record.base >> leaf_shift;
    const std::uint64_t last_page = (record.base + record.length - 1) >> leaf_shift;
    update(root_, root_shift, 0, root_entries - 1, 0, first_page, last_page, record, false);
}

// Visits the slots of one table that [first_page, last_page] touches. `slots_base` is the first page of the table.
void TranslationIndex::update(Slot* slots, unsigned shift, std::size_t first_slot, std::size_t last_slot,
                              std::uint64_t slots_base, std::uint64_t first_page, std::uint64_t last_page,
                              const TranslationRecord& record, bool add) {
    const unsigned page_shift = shift - leaf_shift; // pages a slot covers, as a power of two
    const std::uint64_t from =
        std::max<std::uint64_t>(first_slot, (std::max(first_page, slots_base) - slots_base) >> page_shift);
    const std::uint64_t to = std::min<std::uint64_t>(last_slot, (last_page - slots_base) >> page_shift);
    for (std::uint64_t i = from; i <= to; ++i) {
        const std::uint64_t slot_first = slots_base + (i << page_shift);
        const std::uint64_t slot_last = slot_first + ((std::uint64_t{1} << page_shift) - 1);
        Slot& slot = slots[i];
        const bool is_table = (slot.load(std::memory_order_relaxed) & tag_table) != 0;
        const bool whole = first_page <= slot_first && slot_last <= last_page;
        if (whole && !is_table) {
            add ? add_to_slot(slot, record) : remove_from_slot(slot, record);
            continue;
        }
        Table& table =
            is_table ? *reinterpret_cast<Table*>(slot.load(std::memory_order_relaxed) - tag_table) : split(slot);
        update(table.slots, shift - 9, 0, table_entries - 1, slot_first, first_page, last_page, record, add);
    }
}

// Turns a slot into a table whose entries all say what the slot said. A reader sees either, and both say the same.
TranslationIndex::Table& TranslationIndex::split(Slot& slot) {
    const std::uintptr_t value = slot.load(std::memory_order_relaxed);
    auto& table = *tables_.emplace_back(std::make_unique<Table>());
    for (Slot& inner : table.slots) {
        inner.store(value, std::memory_order_relaxed);
    }
    if ((value & tag_list) != 0) {
        reinterpret_cast<List*>(value - tag_list)->references += table_entries - 1;
    }
    slot.store(reinterpret_cast<std::uintptr_t>(&table) | tag_table, std::memory_order_release);
    return table;
}

void TranslationIndex::add_to_slot(Slot& slot, const TranslationRecord& record) {
    const std::uintptr_t value = slot.load(std::memory_order_relaxed);
    if (value == 0) {
        slot.store(reinterpret_cast<std::uintptr_t>(&record), std::memory_order_release);
        return;
    }
    List* old_list = (value & tag_list) != 0 ? reinterpret_cast<List*>(value - tag_list) : nullptr;
    List* list = List::make(old_list != nullptr ? old_list->count + 1 : 2);
    list->begin()[0] = &record;
    if (old_list != nullptr) {
        std::copy(old_list->begin(), old_list->begin() + old_list->count, list->begin() + 1);
    } else {
        list->begin()[1] = reinterpret_cast<const TranslationRecord*>(value);
    }
    slot.store(reinterpret_cast<std::uintptr_t>(list) | tag_list, std::memory_order_release);
    release(old_list);
}

void TranslationIndex::remove_from_slot(Slot& slot, const TranslationRecord& record) {
    const std::uintptr_t value = slot.load(std::memory_order_relaxed);
    if (value == reinterpret_cast<std::uintptr_t>(&record)) {
        slot.store(0, std::memory_order_release);
        return;
    }
    if ((value & tag_list) == 0) {
        return;
    }
    auto* old_list = reinterpret_cast<List*>(value - tag_list);
    std::vector<const TranslationRecord*> kept;
    std::copy_if(old_list->begin(), old_list->begin() + old_list->count, std::back_inserter(kept),
                 [&](const TranslationRecord* other) { return other != &record; });
    if (kept.size() == 1) {
        slot.store(reinterpret_cast<std::uintptr_t>(kept.front()), std::memory_order_release);
    } else {
        List* list = List::make(kept.size());
        std::copy(kept.begin(), kept.end(), list->begin());
        slot.store(reinterpret_cast<std::uintptr_t>(list) | tag_list, std::memory_order_release);
    }
    release(old_list);
}

void TranslationIndex::release(List* list) {
    if (list != nullptr && --list->references == 0) {
        retire_(std::unique_ptr<std::byte[]>{reinterpret_cast<std::byte*>(list)});
    }
}

} // namespace upcie::memory
