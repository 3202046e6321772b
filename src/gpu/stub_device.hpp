// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/types.h>

#include <upcie/gpu/stub.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>

namespace upcie::gpu::stub {

constexpr std::uint64_t page_bytes = Stub::page.value();
constexpr std::uint64_t unit = Stub::backing_unit.value();
constexpr std::uint64_t small_limit = 1 << 20; // below it, allocations share a backing (suballocated)
constexpr std::uint64_t small_step = 0x200;    // cuMemAlloc's small buffers start at multiples of it

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept {
    return (value + to - 1) / to * to;
}

/// What physical memory is made of: pieces of it are handed out once, and never next to each other.
struct Run {
    std::uint64_t offset; ///< in the backing
    std::uint64_t length;
    std::uint64_t address; ///< on the bus
};

struct Backing {
    std::uint64_t start = 0; ///< device address
    std::uint64_t length = 0;
    os::Fd memfd;
    os::Mapping memory; ///< the device's own view of it
    std::vector<Run> runs;
    bool revoked = false;
    std::uint64_t used = 0;      ///< bytes handed out of a shared one
    std::size_t allocations = 0; ///< that live in it

    [[nodiscard]] bool holds(std::uint64_t at, std::uint64_t bytes) const noexcept {
        return at >= start && at - start <= length && bytes <= length - (at - start);
    }
};

struct Exported {
    std::uint64_t backing = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

inline std::string range_text(DevicePointer start, ByteCount length) {
    return fmt::format("{} bytes at device address {:#x}", length.value(), start.value());
}

/// What the handles of one stub share: its memory (stub_device.cpp) and what it has exported (stub.cpp).
struct Stub::Device {
    os::System& system;
    Options options;
    os::Mapping reservation; ///< device pointers: nothing is there for the CPU
    std::uint64_t base = 0;  ///< the first device pointer
    bool udmabuf = false;

    std::mutex mutex;                            // guards what follows
    std::map<std::uint64_t, std::uint64_t> gaps; ///< free device addresses: offset from `base` to length
    std::uint64_t next_bus = 0;
    std::uint64_t next_ram = 0;
    std::map<std::uint64_t, Backing> backings;          ///< by device address
    std::map<std::uint64_t, std::uint64_t> allocations; ///< base to size, as allocation_of() reports
    std::map<std::uint64_t, std::vector<std::uint64_t>>
        owned;                                      ///< what allocate() answered: the allocations it is made of
    std::map<ino_t, Exported> exports;              ///< real dma-bufs
    std::map<ino_t, std::uint64_t> memfds;          ///< to their backing
    std::map<std::uintptr_t, std::uint64_t> mmio;   ///< what device code may reach besides, start to length
    std::map<std::uintptr_t, os::Mapping> imported; ///< of that, what others made

    Device(os::System& host, Options wanted);

    Result<std::uint64_t> take_addresses(std::uint64_t bytes);
    void give_back(std::uint64_t start, std::uint64_t length);
    Result<std::uint64_t> make_backing(std::uint64_t start, std::uint64_t bytes);
    void lay_out(Backing& backing);
    Result<DevicePointer> allocate_small(std::uint64_t bytes);
    Result<DevicePointer> allocate_large(std::uint64_t bytes);
    void drop(std::uint64_t allocation);
    [[nodiscard]] const std::pair<const std::uint64_t, std::uint64_t>* allocation_at(std::uint64_t pointer) const;
    [[nodiscard]] Backing* backing_at(std::uint64_t pointer);
    Result<std::byte*> reach(DevicePointer pointer, ByteCount length);
    Result<Export> make_export(Backing& backing, std::uint64_t offset, std::uint64_t length, DevicePointer start);
};

} // namespace upcie::gpu::stub
