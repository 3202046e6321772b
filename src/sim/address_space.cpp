// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/address_space.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace upcie::sim {

namespace {

constexpr std::uint64_t last_address = std::numeric_limits<std::uint64_t>::max();

} // namespace

Result<std::shared_ptr<AddressSpace>> AddressSpace::create(AddressSpaceOptions options, os::System& system) {
    const std::uint64_t first = options.aperture.first.value();
    const std::uint64_t last = options.aperture.last.value();
    if (last < first || first % page_size != 0 || last % page_size != page_size - 1) {
        return fail(EINVAL, "create simulated address space", fmt::format("0x{:x}-0x{:x}", first, last),
                    "The aperture must hold whole pages of 4096 bytes: the last address ends in fff.");
    }
    return std::shared_ptr<AddressSpace>{new AddressSpace{options, system}};
}

AddressSpace::AddressSpace(AddressSpaceOptions options, os::System& system)
    : options_{options}, system_{system}, cursor_{options.aperture.first.value()}, random_{options.seed} {
    if (cursor_ == 0 && !options_.use_zero) {
        cursor_ = page_size;
    }
}

AddressSpace::~AddressSpace() = default;

std::string AddressSpace::describe() const {
    const std::string manner =
        translating() ? std::string{} : fmt::format(", scattered in runs of {} pages", options_.pages_per_run);
    return fmt::format("simulated address space 0x{:x}-0x{:x}{}", options_.aperture.first.value(),
                       options_.aperture.last.value(), manner);
}

Result<std::vector<iommu::IovaRange>> AddressSpace::iova_ranges() {
    if (!translating()) {
        return std::vector<iommu::IovaRange>{}; // addresses pass for physical ones: nobody chooses them
    }
    return std::vector{options_.aperture};
}

// One free page on either side: an access that runs over an end faults instead of hitting a neighbour.
bool AddressSpace::is_free(std::uint64_t first, std::uint64_t length) const {
    const std::uint64_t low = first - std::min(first, page_size);
    const std::uint64_t last = first + (length - 1);
    const std::uint64_t high = last + std::min(last_address - last, page_size);
    if (first < options_.aperture.first.value() || last < first || last > options_.aperture.last.value()) {
        return false;
    }
    const auto after = windows_.upper_bound(high);
    if (after == windows_.begin()) {
        return true;
    }
    const auto& [start, window] = *std::prev(after);
    return start + (window.length - 1) < low;
}

// Onward from the last address handed out, and from the beginning again when the aperture is used up.
std::optional<std::uint64_t> AddressSpace::find_room(std::uint64_t length) {
    const std::uint64_t first = options_.aperture.first.value();
    const std::uint64_t last = options_.aperture.last.value();
    const std::uint64_t bottom = first == 0 && !options_.use_zero ? page_size : first;
    if (!translating()) {
        const std::uint64_t alignment = page_size * std::max(1U, options_.pages_per_run);
        if (bottom == 0 && windows_.empty()) {
            return 0;
        }
        for (int attempt = 0; attempt < 64; ++attempt) {
            std::uniform_int_distribution<std::uint64_t> anywhere{bottom, last};
            const std::uint64_t candidate = anywhere(random_) / alignment * alignment;
            if (candidate >= bottom && is_free(candidate, length)) {
                return candidate;
            }
        }
    }
    for (const std::uint64_t start : {cursor_, bottom}) {
        std::uint64_t candidate = start;
        while (candidate >= bottom && candidate <= last && length - 1 <= last - candidate) {
            const std::uint64_t end_of_it = candidate + (length - 1);
            if (is_free(candidate, length)) {
                cursor_ = end_of_it < last_address - 2 * page_size ? end_of_it + 1 + page_size : bottom;
                return candidate;
            }
            auto blocking = windows_.upper_bound(end_of_it + std::min(last_address - end_of_it, page_size));
            --blocking; // is_free() said that there is one
            const std::uint64_t end = blocking->first + blocking->second.length + page_size;
            if (end <= candidate) {
                break; // wrapped around 2^64
            }
            candidate = end;
        }
    }
    return std::nullopt;
}

Result<AddressSpace::Mapped> AddressSpace::place(Source source, ByteCount length, iommu::Access access) {
    const std::unique_lock lock{mutex_};
    const std::uint64_t run =
        translating() ? length.value() : std::min(length.value(), page_size * options_.pages_per_run);
    Mapped mapped;
    mapped.token = next_token_++;
    Record record{length.value(), {}, std::move(source.own)};
    for (std::uint64_t done = 0; done < length.value();) {
        const std::uint64_t bytes = std::min(run, length.value() - done);
        const auto room = find_room(bytes);
        if (!room) {
            for (const std::uint64_t window : record.windows) {
                windows_.erase(window);
            }
            return fail(ENOSPC, "map", fmt::format("{} bytes in {}", length.value(), describe()),
                        "No room in the aperture: unmap something, or make the simulated aperture larger.");
        }
        windows_.emplace(*room, Window{bytes, source.place + done, access, mapped.token});
        record.windows.push_back(*room);
        mapped.extents.push_back({DmaAddress{*room}, ByteCount{bytes}});
        done += bytes;
    }
    records_.emplace(mapped.token, std::move(record));
    return mapped;
}

Result<AddressSpace::Mapped> AddressSpace::do_map_memory(void* start, ByteCount length, iommu::Access access) {
    return place(Source{{}, {static_cast<std::byte*>(start)}}, length, access);
}

Result<AddressSpace::Source> AddressSpace::open_source(int fd, ByteCount offset, ByteCount length,
                                                       iommu::Access access) {
    struct stat status {};
    if (system_.fstat(fd, &status) != 0) {
        return fail(errno, "map file", fmt::format("descriptor {}", fd), "Give an open descriptor of a memfd.");
    }
    // The kernel pins pages of the file: what lies beyond its end has none.
    const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    if (offset.value() > size || length.value() > size - offset.value()) {
        return fail(EINVAL, "map file",
                    fmt::format("descriptor {}, {} bytes from 0x{:x} of a file of {}", fd, length.value(),
                                offset.value(), size),
                    "The range must lie inside the file.");
    }
    {
        const std::shared_lock lock{mutex_};
        const auto known = reaches_.find({status.st_dev, status.st_ino});
        if (known != reaches_.end()) {
            if (auto reach = known->second.lock()) {
                return Source{{}, {nullptr, std::move(reach), offset.value()}};
            }
        }
    }
    auto own = os::Mapping::map(system_, fd, static_cast<off_t>(offset.value()), length,
                                (static_cast<unsigned>(access) & static_cast<unsigned>(iommu::Access::write)) != 0);
    if (!own) {
        return tl::unexpected{std::move(own.error())};
    }
    std::byte* const host = own->data();
    return Source{std::move(*own), {host}};
}

Result<AddressSpace::Mapped> AddressSpace::do_map_file(int fd, ByteCount offset, ByteCount length,
                                                       iommu::Access access) {
    auto source = open_source(fd, offset, length, access);
    if (!source) {
        return tl::unexpected{std::move(source.error())};
    }
    return place(std::move(*source), length, access);
}

// Makes `address` the beginning of a window where it is inside of one.
void AddressSpace::split(std::uint64_t address) {
    const auto after = windows_.upper_bound(address);
    if (after == windows_.begin()) {
        return;
    }
    const auto found = std::prev(after);
    const std::uint64_t head = address - found->first;
    if (head == 0 || head >= found->second.length) {
        return;
    }
    const auto cut = [&](Window& window) {
        Window tail = window;
        window.length = head;
        tail.length -= head;
        tail.place = tail.place + head;
        if (tail.backing) {
            tail.backing->offset += head;
        }
        tail.others.clear();
        records_.at(tail.token).windows.push_back(address);
        return tail;
    };
    Window tail = cut(found->second);
    for (Window& other : found->second.others) {
        tail.others.push_back(cut(other));
    }
    windows_.emplace(address, std::move(tail));
}

// Device memory that others have mapped already is shared piece by piece. False where something else is there.
bool AddressSpace::add_to_bus(std::uint64_t first, Window window, Record& record) {
    const std::uint64_t last = first + (window.length - 1);
    split(first);
    if (last != last_address) {
        split(last + 1);
    }
    for (std::uint64_t at = first; window.length != 0;) {
        const auto there = windows_.lower_bound(at);
        const bool taken = there != windows_.end() && there->first == at;
        const bool free_to_the_end = there == windows_.end() || there->first > last;
        Window piece = window;
        piece.length = taken ? there->second.length : free_to_the_end ? window.length : there->first - at;
        if (taken) {
            const auto& known = there->second.backing;
            if (!known || !piece.backing || *known != *piece.backing) {
                return false;
            }
            there->second.others.push_back(piece);
        } else {
            windows_.emplace(at, piece);
        }
        record.windows.push_back(at);
        at += piece.length;
        window.length -= piece.length;
        window.place = window.place + piece.length;
        if (window.backing) {
            window.backing->offset += piece.length;
        }
    }
    return true;
}

// A peer's memory has its place on the bus: it answers there, or nothing may be there yet.
Result<AddressSpace::Mapped> AddressSpace::do_map_bus(int fd, ByteCount offset, std::vector<Extent> extents,
                                                      iommu::Access access) {
    ByteCount length;
    for (const Extent& extent : extents) {
        length += extent.length;
    }
    auto source = open_source(fd, offset, length, access);
    if (!source) {
        return tl::unexpected{std::move(source.error())};
    }
    struct stat status {};
    std::optional<FileByte> backing; // of a file; what a dma-buf has behind it, nobody can tell
    if (system_.fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        backing = FileByte{status.st_dev, status.st_ino, offset.value()};
    }
    const std::unique_lock lock{mutex_};
    Mapped mapped{next_token_++, std::move(extents)};
    Record& record = records_.emplace(mapped.token, Record{length.value(), {}, std::move(source->own)}).first->second;
    ByteCount done;
    for (const Extent& extent : mapped.extents) {
        Window window{extent.length.value(), source->place + done.value(), access, mapped.token, {}, backing};
        if (window.backing) {
            window.backing->offset += done.value();
        }
        if (!add_to_bus(extent.address.value(), window, record)) {
            for (const std::uint64_t made : record.windows) {
                drop(made, mapped.token);
            }
            records_.erase(mapped.token);
            return fail(
                EEXIST, "map dma-buf",
                fmt::format("{} bytes at bus address 0x{:x}", extent.length.value(), extent.address.value()),
                "Something else answers at a part of these addresses: two importers disagree, or the aperture of "
                "the simulated addresses lies over the device's.");
        }
        done += extent.length;
    }
    return mapped;
}

Result<void> AddressSpace::do_unmap(std::uint64_t token, ByteCount length) {
    const std::unique_lock lock{mutex_};
    const auto found = records_.find(token);
    if (found == records_.end() || found->second.length != length.value()) {
        return fail(ENOENT, "unmap", fmt::format("mapping {} in {}", token, describe()),
                    "Nothing of that name and length is mapped: it was unmapped before.");
    }
    for (const std::uint64_t window : found->second.windows) {
        drop(window, token);
    }
    records_.erase(found);
    return {};
}

void AddressSpace::drop(std::uint64_t address, std::uint64_t token) {
    const auto found = windows_.find(address);
    Window& window = found->second;
    if (window.token != token) {
        std::erase_if(window.others, [&](const Window& other) { return other.token == token; });
    } else if (window.others.empty()) {
        windows_.erase(found);
    } else {
        Window next = std::move(window.others.back());
        window.others.pop_back();
        next.others = std::move(window.others);
        window = std::move(next);
    }
}

std::size_t AddressSpace::mapping_count() const {
    const std::shared_lock lock{mutex_};
    return records_.size();
}

} // namespace upcie::sim
