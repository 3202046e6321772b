// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/translation_index.hpp>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace upcie::memory {
namespace {

constexpr std::size_t root_page = 4096; // what one mprotect of the root covers: 512 entries, 1 GiB of pointers

} // namespace

Resolution TranslationRecord::resolve_in_runs(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    const Run* after = std::upper_bound(runs, runs + run_count, offset,
                                        [](std::uint64_t wanted, const Run& run) { return wanted < run.offset; });
    const Run& run = after[-1]; // the first run starts at offset 0
    const std::uint64_t run_end = after == runs + run_count ? length : after->offset;
    return {{DmaAddress{run.address + (offset - run.offset)}, ByteCount{std::min(bytes, run_end - offset)}},
            Refusal::none};
}

Resolution TranslationIndex::resolve(const Slot* root, std::uint64_t pointer, std::uint64_t bytes) noexcept {
    Resolution refused{{}, bytes == 0 ? Refusal::empty : Refusal::not_registered};
    if (bytes == 0 || (pointer >> address_bits) != 0) {
        return refused;
    }
    const Leaf* leaf = root[root_index(pointer)].load(std::memory_order_acquire);
    if (leaf == nullptr) {
        return refused;
    }
    const Leaf::Span page = leaf->pages[(pointer >> page_shift) & (leaf_pages - 1)];
    for (std::uint32_t i = page.first; i < page.first + page.count; ++i) {
        const TranslationRecord& record = *leaf->records[i];
        const std::uint64_t offset = pointer - record.base;
        if (offset >= record.length) {
            continue; // it touches the page and does not hold the byte
        }
        const Resolution resolution = record.resolve(offset, bytes);
        if (resolution) {
            return resolution;
        }
        refused = resolution;
    }
    return refused;
}

Result<TranslationIndex> TranslationIndex::create(os::System& system,
                                                  std::function<void(std::unique_ptr<const Leaf>)> retire) {
    // Read-only address space: entries never written read as zero from the kernel's zero page and take no memory, also
    // where overcommitting is forbidden. insert() makes writable what it needs.
    constexpr std::size_t bytes = root_entries * sizeof(Slot);
    void* memory = system.mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(errno, "mmap", "1 GiB of address space for the registry's index",
                    "Raise the limit on address space (ulimit -v unlimited); no memory is used before registration");
    }
    TranslationIndex index;
    index.system_ = &system;
    index.root_memory_ = os::Mapping{system, memory, ByteCount{bytes}};
    index.root_ = static_cast<Slot*>(memory); // all bits zero is a null entry
    index.writable_.resize(bytes / root_page);
    index.retire_ = std::move(retire);
    return index;
}

TranslationIndex::~TranslationIndex() {
    for (std::size_t page = 0; page < writable_.size(); ++page) {
        if (!writable_[page]) {
            continue;
        }
        constexpr std::size_t entries = root_page / sizeof(Slot);
        for (std::size_t i = page * entries; i < (page + 1) * entries; ++i) {
            const Leaf* leaf = root_[i].load(std::memory_order_relaxed);
            if (leaf != nullptr && --leaf->references == 0) {
                delete leaf;
            }
        }
    }
}

ByteCount TranslationIndex::leaf_memory() const noexcept {
    return ByteCount{leaf_count_ * sizeof(Leaf)};
}

Result<void> TranslationIndex::make_writable(std::size_t first, std::size_t last) {
    constexpr std::size_t entries = root_page / sizeof(Slot);
    for (std::size_t page = first / entries; page <= last / entries; ++page) {
        if (writable_[page]) {
            continue;
        }
        // With larger host pages this covers neighbours too, which does no harm.
        void* const start = reinterpret_cast<std::byte*>(root_) + page * root_page;
        const auto host_page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        const std::uintptr_t aligned = reinterpret_cast<std::uintptr_t>(start) & ~(host_page - 1);
        if (system_->mprotect(reinterpret_cast<void*>(aligned), std::max<std::size_t>(root_page, host_page),
                              PROT_READ | PROT_WRITE) != 0) {
            return fail(errno, "mprotect", "the registry's index",
                        "Free memory, or raise vm.max_map_count: the index needs another page");
        }
        writable_[page] = true;
    }
    return {};
}

// Replaces what a root entry says; the old leaf is retired when no entry points to it any more.
void TranslationIndex::publish(std::size_t index, Leaf* leaf) {
    const Leaf* old_leaf = root_[index].load(std::memory_order_relaxed);
    if (leaf != nullptr && leaf->references++ == 0) {
        ++leaf_count_;
    }
    root_[index].store(leaf, std::memory_order_release);
    if (old_leaf != nullptr && --old_leaf->references == 0) {
        --leaf_count_;
        retire_(std::unique_ptr<const Leaf>{old_leaf});
    }
}

namespace {

using Leaf = TranslationIndex::Leaf;

// Says for one page which registrations touch it, newest first, and by that how it is resolved.
void set_page(Leaf& leaf, std::size_t page, std::uint64_t page_start, std::span<const TranslationRecord* const> held) {
    leaf.touches += static_cast<std::uint32_t>(held.size()) - leaf.pages[page].count;
    leaf.pages[page] = {static_cast<std::uint32_t>(leaf.records.size()), static_cast<std::uint32_t>(held.size())};
    leaf.records.insert(leaf.records.end(), held.begin(), held.end());
    leaf.fast[page] = {};
    if (held.size() == 1 && held[0]->runs == nullptr && held[0]->base <= page_start) {
        leaf.fast[page] = {held[0]->first_address - held[0]->base, held[0]->base + held[0]->length};
    }
}

// A leaf to change before it is published. Replaced pages leave their old lists behind in `records`; when those are the
// greater part, the lists are laid out anew.
std::unique_ptr<Leaf> copy_of(const Leaf* old_leaf) {
    if (old_leaf == nullptr) {
        return std::make_unique<Leaf>();
    }
    auto leaf = std::make_unique<Leaf>(*old_leaf);
    leaf->references = 0;
    if (leaf->records.size() > 64 && leaf->records.size() > 2 * std::size_t{leaf->touches}) {
        leaf->records.clear();
        for (Leaf::Span& span : leaf->pages) {
            const auto first = old_leaf->records.begin() + span.first;
            span.first = static_cast<std::uint32_t>(leaf->records.size());
            leaf->records.insert(leaf->records.end(), first, first + span.count);
        }
    }
    return leaf;
}

} // namespace

Result<void> TranslationIndex::insert(const TranslationRecord& record) {
    const std::uint64_t last_byte = record.base + record.length - 1;
    const std::size_t first = root_index(record.base);
    const std::size_t last = root_index(last_byte);
    if (auto writable = make_writable(first, last); !writable) {
        return writable;
    }
    Leaf* whole = nullptr; // shared by every 2 MiB that this record alone fills
    for (std::size_t index = first; index <= last; ++index) {
        const std::uint64_t start = std::uint64_t{index} << leaf_shift;
        const std::uint64_t end = start + (std::uint64_t{1} << leaf_shift) - 1;
        const Leaf* old_leaf = root_[index].load(std::memory_order_relaxed);
        const bool alone = old_leaf == nullptr && record.base <= start && end <= last_byte;
        if (alone && whole != nullptr) {
            publish(index, whole);
            continue;
        }
        std::unique_ptr<Leaf> leaf = copy_of(old_leaf);
        update_pages(*leaf, index, record, [&](Candidates& held) { held.insert(held.begin(), &record); });
        if (alone) {
            // What follows differs only in the page's number, which no page depends on here.
            leaf->records.resize(1);
            for (Leaf::Span& span : leaf->pages) {
                span.first = 0;
            }
            whole = leaf.get();
        }
        publish(index, leaf.release());
    }
    return {};
}

void TranslationIndex::remove(const TranslationRecord& record) {
    const std::size_t first = root_index(record.base);
    const std::size_t last = root_index(record.base + record.length - 1);
    for (std::size_t index = first; index <= last; ++index) {
        const Leaf* old_leaf = root_[index].load(std::memory_order_relaxed);
        // A leaf that many entries share holds this record alone: whoever joined one got a leaf of its own.
        if (old_leaf->references > 1) {
            publish(index, nullptr);
            continue;
        }
        std::unique_ptr<Leaf> leaf = copy_of(old_leaf);
        update_pages(*leaf, index, record, [&](Candidates& held) { std::erase(held, &record); });
        publish(index, leaf->touches == 0 ? nullptr : leaf.release());
    }
}

// Applies `change` to the list of every page in one leaf that the record touches.
template <class Change>
void TranslationIndex::update_pages(Leaf& leaf, std::size_t index, const TranslationRecord& record, Change change) {
    const std::uint64_t start = std::uint64_t{index} << leaf_shift;
    const std::uint64_t last_byte = record.base + record.length - 1;
    const std::uint64_t from = std::max(record.base, start);
    const std::uint64_t to = std::min(last_byte, start + (std::uint64_t{1} << leaf_shift) - 1);
    Candidates held;
    for (std::size_t page = (from - start) >> page_shift; page <= (to - start) >> page_shift; ++page) {
        const Leaf::Span span = leaf.pages[page];
        held.assign(leaf.records.begin() + span.first, leaf.records.begin() + span.first + span.count);
        change(held);
        set_page(leaf, page, start + (std::uint64_t{page} << page_shift), held);
    }
}

} // namespace upcie::memory
