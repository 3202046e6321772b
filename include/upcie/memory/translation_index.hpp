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

/// What translation knows of one registration. Immutable once it can be found.
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

/// From a pointer to its device address: a table of two levels over 48-bit addresses.
///
/// The root has an entry for each 2 MiB; only the parts of it that are used take memory. A leaf describes 2 MiB in
/// pages of 4 KiB: for a page that a single contiguous registration holds from its start, the distance from pointer to
/// device address and where the registration ends, which is all that the fast way needs; for any page, the
/// registrations that touch it. Leaves never change: an update publishes a new one, so a reader always sees a leaf that
/// is true as a whole. All of a registration's whole 2 MiB share one leaf, so memory goes with the number of
/// registrations and not with their size.
///
/// Threads: one writer (the Registry's lock) beside any number of readers. A reader may still hold a leaf after it was
/// replaced: the writer passes it to `retire` and frees it when no reader can hold it any more.
class TranslationIndex {
  public:
    static constexpr unsigned address_bits = 48;
    /// Registrations end below this. The 4 GiB above stay empty, so that no sum of a pointer and a length that wraps
    /// around can look as if it lay in a registration.
    static constexpr std::uint64_t address_limit = (std::uint64_t{1} << address_bits) - (std::uint64_t{1} << 32);

    struct Leaf;
    using Slot = std::atomic<const Leaf*>;

    /// `retire` takes over leaves that were replaced. Error: ENOMEM.
    [[nodiscard]] static Result<TranslationIndex> create(os::System& system,
                                                         std::function<void(std::unique_ptr<const Leaf>)> retire);
    TranslationIndex(TranslationIndex&&) noexcept = default;
    TranslationIndex& operator=(TranslationIndex&&) noexcept = delete;
    ~TranslationIndex();

    /// Makes a record findable. It must not be empty and must end below address_limit. Error: ENOMEM.
    Result<void> insert(const TranslationRecord& record);
    /// The reverse; the record was inserted.
    void remove(const TranslationRecord& record);

    [[nodiscard]] const Slot* root() const noexcept { return root_; }
    /// Bytes of leaves in use.
    [[nodiscard]] ByteCount leaf_memory() const noexcept;

    /// The fast way: true and the device address when one contiguous registration holds [pointer, pointer + bytes).
    /// False says nothing: ask resolve(). `bytes` is 1 to 2^32. Hot, any thread.
    [[nodiscard]] static bool try_resolve(const Slot* root, std::uint64_t pointer, std::uint64_t bytes,
                                          std::uint64_t& address) noexcept;
    /// Translates [pointer, pointer + bytes) if one registration holds all of it; where several do, the newest answers.
    /// Lock-free, any thread. Refuses: empty, not_registered, out_of_bounds.
    [[nodiscard]] static Resolution resolve(const Slot* root, std::uint64_t pointer, std::uint64_t bytes) noexcept;

  private:
    static constexpr unsigned leaf_shift = 21; ///< a leaf covers 2 MiB
    static constexpr unsigned page_shift = 12;
    static constexpr std::size_t leaf_pages = std::size_t{1} << (leaf_shift - page_shift);
    static constexpr std::size_t root_entries = std::size_t{1} << (address_bits - leaf_shift);

    using Candidates = std::vector<const TranslationRecord*>;

    TranslationIndex() = default;
    static std::size_t root_index(std::uint64_t pointer) noexcept {
        return (pointer << (64 - address_bits)) >> (64 - address_bits + leaf_shift);
    }
    Result<void> make_writable(std::size_t first, std::size_t last);
    void publish(std::size_t index, Leaf* leaf);
    template <class Change>
    static void update_pages(Leaf& leaf, std::size_t index, const TranslationRecord& record, Change change);

    os::System* system_ = nullptr;
    os::Mapping root_memory_;
    Slot* root_ = nullptr;
    std::size_t leaf_count_ = 0;
    std::vector<bool> writable_; ///< by page of the root
    std::function<void(std::unique_ptr<const Leaf>)> retire_;
};

/// 2 MiB of pointers. Immutable once published, but for `references`, which only the writer touches.
struct TranslationIndex::Leaf {
    struct Fast {
        std::uint64_t delta = 0; ///< device address less pointer, modulo 2^64
        std::uint64_t end = 0;   ///< first pointer past what may be used; 0: the slow way
    };
    struct Span {
        std::uint32_t first = 0; ///< in `records`
        std::uint32_t count = 0;
    };
    Fast fast[leaf_pages];
    Span pages[leaf_pages];
    Candidates records;                 ///< what touches a page, newest first
    std::uint32_t touches = 0;          ///< entries of `records` that a page refers to
    mutable std::size_t references = 0; ///< root entries that point here
};

inline bool TranslationIndex::try_resolve(const Slot* root, std::uint64_t pointer, std::uint64_t bytes,
                                          std::uint64_t& address) noexcept {
    const Leaf* leaf = root[root_index(pointer)].load(std::memory_order_acquire);
    if (leaf == nullptr) [[unlikely]] {
        return false;
    }
    const Leaf::Fast& fast = leaf->fast[(pointer >> page_shift) & (leaf_pages - 1)];
    address = pointer + fast.delta;
    return pointer + bytes - 1 < fast.end;
}

} // namespace upcie::memory
