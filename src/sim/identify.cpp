// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

constexpr std::size_t identify_size = 4096;

template <class Number>
void put(std::span<std::byte> page, std::size_t offset, Number value) {
    std::memcpy(page.data() + offset, &value, sizeof value);
}

void put_text(std::span<std::byte> page, std::size_t offset, std::size_t width, std::string_view text) {
    std::memset(page.data() + offset, ' ', width);
    std::memcpy(page.data() + offset, text.data(), std::min(width, text.size()));
}

void put_string(std::span<std::byte> page, std::size_t offset, std::string_view text) {
    std::memcpy(page.data() + offset, text.data(), text.size());
}

std::uint64_t unique_number(std::uint32_t nsid) noexcept {
    return 0x5c1e000000000000U | nsid;
}

} // namespace

// Identify (Base Specification 2.0, section 5.17).
Answer Engine::identify(const Command& command) {
    constexpr nvme::Status invalid_namespace = generic(0x0b);
    alignas(8) std::array<std::byte, identify_size> page{};
    const std::uint32_t nsid = command.nsid;
    switch (command.cdw10 & 0xff) {
    case 0x00:
        if (medium(nsid) == nullptr) {
            return {invalid_namespace}; // no namespace management, so all-ones names none either
        }
        fill_identify_namespace(page, nsid);
        break;
    case 0x01:
        fill_identify_controller(page);
        break;
    case 0x02: {
        if (nsid >= 0xfffffffe) {
            return {invalid_namespace};
        }
        std::size_t offset = 0;
        for (std::uint32_t id = nsid + 1; id <= media_.size() && offset < page.size(); ++id, offset += 4) {
            put(page, offset, id);
        }
        break;
    }
    case 0x03: {
        if (medium(nsid) == nullptr) {
            return {invalid_namespace};
        }
        // Namespace Identification Descriptors: type, length, two reserved bytes, then the identifier, big-endian.
        const std::uint64_t number = __builtin_bswap64(unique_number(nsid));
        put<std::uint8_t>(page, 0, 1); // EUI64
        put<std::uint8_t>(page, 1, 8);
        put(page, 4, number);
        put<std::uint8_t>(page, 12, 3); // UUID
        put<std::uint8_t>(page, 13, 16);
        put<std::uint64_t>(page, 16, 0x80b1a0c0de5c1e00U);
        put(page, 24, number);
        break;
    }
    default:
        return {invalid_field};
    }
    return {send(command, page)};
}

// Figure 275.
void Engine::fill_identify_controller(std::span<std::byte> page) const {
    put(page, 0, options_.vendor);
    put(page, 2, options_.vendor);
    put_text(page, 4, 20, options_.serial);
    put_text(page, 24, 40, options_.model);
    put_text(page, 64, 8, options_.firmware);
    put(page, 77, options_.mdts);
    put<std::uint16_t>(page, 78, 1);          // CNTLID
    put<std::uint32_t>(page, 80, 0x00020000); // VER
    put<std::uint8_t>(page, 111, 1);          // CNTRLTYPE: I/O controller
    put<std::uint16_t>(page, 256, 1U << 1);   // OACS: format
    put<std::uint8_t>(page, 258, 3);          // ACL
    put<std::uint8_t>(page, 259, static_cast<std::uint8_t>(max_event_requests - 1));
    put<std::uint8_t>(page, 260, 1U << 1 | 1U); // FRMW: one slot, read-only
    put<std::uint8_t>(page, 261, 1U << 2);      // LPA: extended data of Get Log Page
    put<std::uint8_t>(page, 262, static_cast<std::uint8_t>(max_errors - 1));
    put<std::uint16_t>(page, 266, 343); // WCTEMP
    put<std::uint16_t>(page, 268, 353); // CCTEMP
    put<std::uint8_t>(page, 512, 0x66); // SQES: 64 bytes
    put<std::uint8_t>(page, 513, 0x44); // CQES: 16 bytes
    put(page, 516, options_.namespaces);
    put<std::uint16_t>(page, 520, 1U << 2 | 1U << 3);                 // ONCS: dataset management, write zeroes
    put<std::uint8_t>(page, 524, 0);                                  // FNA: formats apply to one namespace
    put<std::uint8_t>(page, 525, options_.volatile_cache ? 0x07 : 0); // VWC: present, flush takes all-ones
    put(page, 536, static_cast<std::uint32_t>(options_.sgl));         // SGLS: no bit bucket, no keys
    put_string(page, 768, fmt::format("nqn.2024-01.invalid.upcie:sim:{}", options_.serial));
    put<std::uint16_t>(page, 2048, 2500); // power state 0: 25 W
}

// NVM Command Set Specification 1.0, figure 97.
void Engine::fill_identify_namespace(std::span<std::byte> page, std::uint32_t nsid) const {
    const Medium& medium = media_[nsid - 1];
    put(page, 0, medium.blocks());
    put(page, 8, medium.blocks());
    put(page, 16, medium.blocks());
    const bool with_metadata = options_.metadata_size != 0;
    put<std::uint8_t>(page, 24, 0);
    put<std::uint8_t>(page, 25, with_metadata ? 2 : 1); // NLBAF, zero-based
    put<std::uint8_t>(page, 26, with_metadata ? 2 : medium.block_size() == 512 ? 0 : 1);
    put<std::uint8_t>(page, 27, with_metadata ? 2 : 0); // MC: a buffer of its own
    put<std::uint8_t>(page, 33, 0x09); // DLFEAT: deallocated blocks read as zeroes, write zeroes may deallocate
    put<std::uint64_t>(page, 120, __builtin_bswap64(unique_number(nsid)));
    const auto format = [&](std::size_t index, std::uint32_t block_size, std::uint32_t metadata) {
        put(page, 128 + index * 4, static_cast<std::uint16_t>(metadata));
        put(page, 128 + index * 4 + 2, static_cast<std::uint8_t>(std::countr_zero(block_size)));
    };
    format(0, 512, 0);
    format(1, 4096, 0);
    if (with_metadata) {
        format(2, medium.block_size(), options_.metadata_size);
    }
}

} // namespace upcie::sim
