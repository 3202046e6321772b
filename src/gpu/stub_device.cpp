// SPDX-License-Identifier: BSD-3-Clause
// The stub's memory: backings, how they lie on the bus, and the allocations in them.
#include "gpu/stub_device.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace upcie::gpu::stub {

namespace {

/// Where the next small allocation goes in a backing: never at a page's start, as a real GPU's mostly are not.
std::uint64_t small_place(const Backing& backing) {
    const std::uint64_t offset = round_up(backing.used, small_step);
    return offset % page_bytes == 0 ? offset + small_step : offset;
}

} // namespace

// Physical addresses are handed out once in the life of the process, so that what is stale meets nothing.
Stub::Device::Device(os::System& host, Options wanted) : system{host}, options{std::move(wanted)} {
    static std::atomic<std::uint64_t> made{0};
    constexpr std::uint64_t part = std::uint64_t{1} << 38; // of each stub, 256 GiB
    constexpr std::uint64_t parts = 64;
    const std::uint64_t number = made.fetch_add(1) % parts;
    next_bus = bar_base.value() + number * part;
    next_ram = ram_base.value() + number * part;
    gaps.emplace(0, options.memory.value());
}

/// Device addresses for whole units: the first gap that is large enough, so that freed ones soon come again.
Result<std::uint64_t> Stub::Device::take_addresses(std::uint64_t bytes) {
    const std::uint64_t length = round_up(bytes, unit);
    const auto gap = std::find_if(gaps.begin(), gaps.end(), [&](const auto& one) { return one.second >= length; });
    if (gap == gaps.end()) {
        return fail(ENOMEM, "allocate device memory", fmt::format("{} bytes", bytes),
                    fmt::format("The stub has {} bytes, and no gap is large enough.", options.memory.value()));
    }
    const auto [offset, room] = *gap;
    gaps.erase(gap);
    if (room > length) {
        gaps.emplace(offset + length, room - length);
    }
    return base + offset;
}

void Stub::Device::give_back(std::uint64_t start, std::uint64_t length) {
    auto place = gaps.emplace(start - base, length).first;
    if (const auto next = std::next(place); next != gaps.end() && place->first + place->second == next->first) {
        place->second += next->second;
        gaps.erase(next);
    }
    if (place != gaps.begin()) {
        if (const auto before = std::prev(place); before->first + before->second == place->first) {
            before->second += place->second;
            gaps.erase(place);
        }
    }
}

void Stub::Device::lay_out(Backing& backing) {
    std::uint64_t& place = options.migrates ? next_ram : next_bus;
    std::size_t index = 0;
    for (std::uint64_t done = 0; done < backing.length; ++index) {
        std::uint64_t length = backing.length - done;
        if (!options.runs.empty()) {
            length = std::min(length, options.runs[std::min(index, options.runs.size() - 1)].value());
        }
        backing.runs.push_back({done, length, place});
        done += length;
        place += round_up(length, unit) + unit; // a gap: no run goes on in the next
    }
}

/// Memory for addresses that were taken; answers `start`.
Result<std::uint64_t> Stub::Device::make_backing(std::uint64_t start, std::uint64_t bytes) {
    Backing backing;
    backing.length = round_up(bytes, unit);
    const int memfd = system.memfd_create("upcie stub device memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memfd < 0) {
        return fail(errno, "memfd_create", "stub device memory", "The stub keeps device memory in memfds.");
    }
    backing.memfd = os::Fd{system, memfd};
    // udmabuf takes only files that cannot shrink under it.
    if (system.ftruncate(memfd, static_cast<off_t>(backing.length)) != 0 ||
        system.fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return fail(errno, "size a memfd", fmt::format("{} bytes", backing.length),
                    "Is there room in /dev/shm's limit?");
    }
    auto mapped = os::Mapping::map(system, memfd, 0, ByteCount{backing.length});
    if (!mapped) {
        return tl::unexpected{std::move(mapped.error())};
    }
    backing.memory = std::move(*mapped);
    struct stat status {};
    if (system.fstat(memfd, &status) != 0) {
        return fail(errno, "fstat", "stub device memory", "");
    }
    backing.start = start;
    lay_out(backing);
    memfds[status.st_ino] = start;
    backings.emplace(start, std::move(backing));
    return start;
}

Result<DevicePointer> Stub::Device::allocate_small(std::uint64_t bytes) {
    auto shared = std::find_if(backings.begin(), backings.end(), [&](const auto& one) {
        return one.second.used != 0 && small_place(one.second) + bytes <= one.second.length;
    });
    if (shared == backings.end()) {
        const auto start = take_addresses(unit);
        if (!start) {
            return tl::unexpected{start.error()};
        }
        if (const auto made = make_backing(*start, unit); !made) {
            give_back(*start, unit);
            return tl::unexpected{made.error()};
        }
        shared = backings.find(*start);
    }
    Backing& backing = shared->second;
    const std::uint64_t offset = small_place(backing);
    backing.used = offset + bytes;
    ++backing.allocations;
    const std::uint64_t pointer = backing.start + offset;
    allocations[pointer] = bytes;
    owned[pointer] = {pointer};
    return DevicePointer{pointer};
}

Result<DevicePointer> Stub::Device::allocate_large(std::uint64_t bytes) {
    const std::uint64_t piece = options.piece.value() == 0 ? bytes : options.piece.value();
    const auto first_address = take_addresses(bytes);
    if (!first_address) {
        return tl::unexpected{first_address.error()};
    }
    std::vector<std::uint64_t> made;
    for (std::uint64_t done = 0; done < bytes; done += piece) {
        const std::uint64_t here = std::min(piece, bytes - done);
        const auto start = make_backing(*first_address + done, here);
        if (!start) {
            for (const std::uint64_t one : made) {
                drop(one); // gives its addresses back
            }
            give_back(*first_address + done, round_up(bytes, unit) - done);
            return tl::unexpected{start.error()};
        }
        backings.find(*start)->second.allocations = 1;
        allocations[*start] = here;
        made.push_back(*start);
    }
    const std::uint64_t first = made.front();
    owned[first] = std::move(made);
    return DevicePointer{first};
}

/// Its addresses go to whoever allocates next, as those of a real device do; its place on the bus to nobody.
void Stub::Device::drop(std::uint64_t allocation) {
    Backing* const backing = backing_at(allocation);
    allocations.erase(allocation);
    if (--backing->allocations == 0) {
        const std::uint64_t start = backing->start;
        std::erase_if(memfds, [&](const auto& one) { return one.second == start; });
        std::erase_if(exports, [&](const auto& one) { return one.second.backing == start; });
        const std::uint64_t length = backing->length;
        backings.erase(start);
        give_back(start, length);
    }
}

const std::pair<const std::uint64_t, std::uint64_t>* Stub::Device::allocation_at(std::uint64_t pointer) const {
    const auto after = allocations.upper_bound(pointer);
    if (after == allocations.begin()) {
        return nullptr;
    }
    const auto& found = *std::prev(after);
    return pointer - found.first < found.second ? &found : nullptr;
}

Backing* Stub::Device::backing_at(std::uint64_t pointer) {
    const auto after = backings.upper_bound(pointer);
    if (after == backings.begin()) {
        return nullptr;
    }
    Backing& found = std::prev(after)->second;
    return found.holds(pointer, 1) ? &found : nullptr;
}

/// Where the device keeps a range; all of it must be in one allocation.
Result<std::byte*> Stub::Device::reach(DevicePointer pointer, ByteCount length) {
    const auto* const allocation = allocation_at(pointer.value());
    if (allocation == nullptr || length.value() > allocation->second - (pointer.value() - allocation->first)) {
        return fail(EFAULT, "access device memory", range_text(pointer, length), "It is not all in one allocation.");
    }
    Backing* const backing = backing_at(pointer.value());
    return backing->memory.data() + (pointer.value() - backing->start);
}

} // namespace upcie::gpu::stub
