// SPDX-License-Identifier: BSD-3-Clause
#include <rm/address_scrub.hpp>

#include <rm/little_endian.hpp>
#include <rm/normalise.hpp>

namespace upcie::rm {

namespace {

constexpr unsigned page_shift = 12;
/// Pages nearer together than this are of one region, and keep their distance.
constexpr std::uint64_t region_gap_pages = std::uint64_t{1} << (32 - page_shift);
/// Placeholders begin here and lie that far apart: further than pages of one region, so that they fall into the same
/// regions again.
constexpr std::uint64_t first_place_page = std::uint64_t{1} << (44 - page_shift);
constexpr std::uint64_t place_gap_pages = std::uint64_t{1} << (34 - page_shift);
constexpr std::uint64_t beyond_places = std::uint64_t{1} << 45;

bool is_place(std::uint64_t word) {
    return word >= (first_place_page << page_shift) && word < beyond_places;
}

/// What a process was given by the system, or what stands for that in a trace that is scrubbed already.
bool is_chosen_by_system(std::uint64_t word) {
    return is_place(word) || (word >= std::uint64_t{0x5500} << 32 && word <= 0x7fff'ffff'ffff);
}

/// The same for a word of a payload, which may also be text or a number.
bool may_be_pointer(std::uint64_t word) {
    return is_place(word) || looks_like_pointer(word);
}

void store_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value) {
    for (std::size_t i = 0; i < 4; ++i) {
        bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
    }
}

} // namespace

void AddressScrub::see(std::uint64_t address) {
    if (is_chosen_by_system(address)) {
        pages_.insert(address >> page_shift);
    }
}

void AddressScrub::see(const std::vector<std::byte>& bytes, TraceBytes kind) {
    if (kind == TraceBytes::file) {
        return;
    }
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t word = load_u64(bytes, at).value_or(0);
        if (may_be_pointer(word)) {
            see(word);
        }
    }
}

void AddressScrub::settle() {
    std::uint64_t place = first_place_page;
    std::map<std::uint64_t, Region>::iterator current = regions_.end();
    for (const std::uint64_t page : pages_) {
        if (current == regions_.end() || page - current->second.last > region_gap_pages) {
            if (current != regions_.end()) {
                place = current->second.place + (current->second.last - current->first) + place_gap_pages;
            }
            current = regions_.insert({page, {page, place}}).first;
        } else {
            current->second.last = page;
        }
    }
}

std::uint64_t AddressScrub::replacement(std::uint64_t address) const {
    const std::uint64_t page = address >> page_shift;
    auto above = regions_.upper_bound(page);
    if (!is_chosen_by_system(address) || above == regions_.begin()) {
        return address;
    }
    --above;
    if (page > above->second.last) {
        return address;
    }
    return (above->second.place + (page - above->first)) << page_shift | (address & ((1U << page_shift) - 1));
}

std::uint64_t AddressScrub::replace(std::vector<std::byte>& bytes, TraceBytes kind) const {
    std::uint64_t changed = 0;
    if (kind == TraceBytes::file) {
        return changed;
    }
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t word = load_u64(bytes, at).value_or(0);
        if (may_be_pointer(word)) {
            const std::uint64_t other = replacement(word);
            store_u32(bytes, at, other);
            store_u32(bytes, at + 4, other >> 32);
            changed += other != word ? 1U : 0U;
        }
    }
    // Commands for the GPU carry an address as two words, the upper first.
    for (std::size_t at = 0; kind == TraceBytes::memory && at + 8 <= bytes.size(); at += 4) {
        const std::uint64_t upper = load_u32(bytes, at).value_or(0);
        const std::uint64_t word = upper << 32 | load_u32(bytes, at + 4).value_or(0);
        const std::uint64_t other = upper >= 0x1000 ? replacement(word) : word;
        if (other != word) {
            store_u32(bytes, at, other >> 32);
            store_u32(bytes, at + 4, other);
            ++changed;
        }
    }
    return changed;
}

} // namespace upcie::rm
