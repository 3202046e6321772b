// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/register_access.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace upcie::nvme {
namespace {

constexpr unsigned bar = 0;
// An area is mapped as a whole up to this size, a larger one piece by piece: BAR0 of some drives holds a memory buffer
// of gigabytes behind the doorbells.
constexpr std::uint64_t window = std::uint64_t{1} << 20;

const pci::MappableArea* find_area(const pci::RegionInfo& region, ByteCount offset, ByteCount length) noexcept {
    for (const pci::MappableArea& area : region.areas) {
        if (offset >= area.offset && length <= area.size && offset - area.offset <= area.size - length) {
            return &area;
        }
    }
    return nullptr;
}

} // namespace

RegisterAccess::RegisterAccess(std::shared_ptr<pci::Function> function, pci::RegionInfo region, WideAccess wide)
    : function_{std::move(function)}, region_{std::move(region)}, wide_{wide} {}

Result<std::unique_ptr<RegisterAccess>> RegisterAccess::create(std::shared_ptr<pci::Function> function,
                                                               WideAccess wide) {
    auto region = function->region(bar);
    if (!region) {
        return tl::unexpected{std::move(region).error()};
    }
    if (region->size < offset::doorbells + 8_B) {
        return fail(
            ENODEV, "look at BAR0", function->identity().name,
            fmt::format("BAR0 has {} bytes and an NVMe controller needs more than 4096: this is not one, or the "
                        "kernel found no room for its BAR",
                        region->size.value()));
    }
    return std::unique_ptr<RegisterAccess>{new RegisterAccess{std::move(function), std::move(*region), wide}};
}

Result<void> RegisterAccess::check(const char* operation, ByteCount offset, unsigned width) const {
    if (offset.value() % width != 0 || offset >= region_.size || ByteCount{width} > region_.size - offset) {
        return fail(EINVAL, operation, fmt::format("{}, BAR0 at {:#x}", name(), offset.value()),
                    fmt::format("BAR0 has {:#x} bytes, and a register of {} bytes is aligned to them",
                                region_.size.value(), width));
    }
    return {};
}

Error RegisterAccess::gone(ByteCount offset) const {
    Error error;
    error.code = ENODEV;
    error.operation = "read register";
    error.subject = fmt::format("{}, BAR0 at {:#x}", name(), offset.value());
    error.hint = "It reads as all ones: the device was removed, is in a low power state, or its memory decode is off";
    return error;
}

bool RegisterAccess::mappable(ByteCount offset) const noexcept {
    return offset < region_.size && find_area(region_, offset, 4_B) != nullptr;
}

// Null where no area holds the register: then the Function is asked for each access.
Result<volatile std::byte*> RegisterAccess::locate(ByteCount offset, unsigned width) {
    const std::lock_guard lock{mutex_};
    for (const Window& one : windows_) {
        if (offset >= one.start && offset - one.start + ByteCount{width} <= one.mapping.size()) {
            return one.mapping.data() + (offset - one.start).value();
        }
    }
    const pci::MappableArea* const area = find_area(region_, offset, ByteCount{width});
    if (area == nullptr) {
        return nullptr;
    }
    const std::uint64_t end = (area->offset + area->size).value();
    std::uint64_t first = area->offset.value();
    std::uint64_t last = end;
    if (last - first > window) {
        first = std::max(first, offset.value() & ~(window - 1));
        last = std::min(end, (offset.value() & ~(window - 1)) + window);
    }
    auto mapping = function_->map_region(bar, ByteCount{first}, ByteCount{last - first});
    if (!mapping) {
        return tl::unexpected{std::move(mapping).error()};
    }
    windows_.push_back({ByteCount{first}, std::move(*mapping)});
    return windows_.back().mapping.data() + (offset.value() - first);
}

Result<std::uint64_t> RegisterAccess::load(ByteCount offset, unsigned width) {
    const auto place = locate(offset, width);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    if (*place == nullptr) {
        const std::lock_guard lock{mutex_}; // a Function is for one thread at a time
        return function_->read_region(bar, offset, width);
    }
    // One access of just this width, in program order with the others: what memcpy does not promise. Atomic, since what
    // is at the other end may be a thread (the simulator).
    if (width == 8) {
        return __atomic_load_n(reinterpret_cast<volatile std::uint64_t*>(*place), __ATOMIC_ACQUIRE);
    }
    return __atomic_load_n(reinterpret_cast<volatile std::uint32_t*>(*place), __ATOMIC_ACQUIRE);
}

Result<void> RegisterAccess::store(ByteCount offset, unsigned width, std::uint64_t value) {
    const auto place = locate(offset, width);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    if (*place == nullptr) {
        const std::lock_guard lock{mutex_};
        return function_->write_region(bar, offset, width, value);
    }
    if (width == 8) {
        __atomic_store_n(reinterpret_cast<volatile std::uint64_t*>(*place), value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(reinterpret_cast<volatile std::uint32_t*>(*place), static_cast<std::uint32_t>(value),
                         __ATOMIC_RELEASE);
    }
    return {};
}

Result<std::uint32_t> RegisterAccess::read32(ByteCount offset) {
    if (auto valid = check("read register", offset, 4); !valid) {
        return tl::unexpected{std::move(valid).error()};
    }
    const auto value = load(offset, 4);
    if (!value) {
        return tl::unexpected{value.error()};
    }
    if (static_cast<std::uint32_t>(*value) == 0xffffffffU) {
        return tl::unexpected{gone(offset)};
    }
    return static_cast<std::uint32_t>(*value);
}

Result<std::uint64_t> RegisterAccess::read64(ByteCount offset) {
    if (auto valid = check("read register", offset, 8); !valid) {
        return tl::unexpected{std::move(valid).error()};
    }
    std::uint64_t value = 0;
    if (wide_ == WideAccess::single) {
        const auto whole = load(offset, 8);
        if (!whole) {
            return tl::unexpected{whole.error()};
        }
        value = *whole;
    } else {
        const auto low = load(offset, 4);
        if (!low) {
            return tl::unexpected{low.error()};
        }
        const auto high = load(offset + 4_B, 4);
        if (!high) {
            return tl::unexpected{high.error()};
        }
        value = (*low & 0xffffffffU) | (*high << 32);
    }
    if (value == ~std::uint64_t{0}) {
        return tl::unexpected{gone(offset)};
    }
    return value;
}

Result<void> RegisterAccess::write32(ByteCount offset, std::uint32_t value) {
    if (auto valid = check("write register", offset, 4); !valid) {
        return valid;
    }
    return store(offset, 4, value);
}

Result<void> RegisterAccess::write64(ByteCount offset, std::uint64_t value) {
    if (auto valid = check("write register", offset, 8); !valid) {
        return valid;
    }
    if (wide_ == WideAccess::single) {
        return store(offset, 8, value);
    }
    if (auto low = store(offset, 4, value & 0xffffffffU); !low) {
        return low;
    }
    return store(offset + 4_B, 4, value >> 32);
}

Result<Capabilities> RegisterAccess::capabilities() {
    return read64(offset::capabilities).map([](std::uint64_t raw) { return Capabilities{raw}; });
}

Result<Version> RegisterAccess::version() {
    return read32(offset::version).map([](std::uint32_t raw) { return Version{raw}; });
}

Result<Configuration> RegisterAccess::configuration() {
    return read32(offset::configuration).map([](std::uint32_t raw) { return Configuration{raw}; });
}

Result<void> RegisterAccess::write(Configuration configuration) {
    return write32(offset::configuration, configuration.raw);
}

Result<ControllerStatus> RegisterAccess::status() {
    return read32(offset::status).map([](std::uint32_t raw) { return ControllerStatus{raw}; });
}

Result<volatile std::uint32_t*> RegisterAccess::pointer(ByteCount offset) {
    const std::string subject = fmt::format("{}, BAR0 at {:#x}", name(), offset.value());
    if (offset.value() % 4 != 0 || offset >= region_.size || region_.size - offset < 4_B) {
        return fail(ERANGE, "map register", subject,
                    fmt::format("BAR0 has {:#x} bytes: use fewer queues", region_.size.value()));
    }
    const auto place = locate(offset, 4);
    if (!place) {
        return tl::unexpected{place.error()};
    }
    if (*place == nullptr) {
        return fail(ENOTSUP, "map register", subject,
                    "No part of BAR0 that may be mapped holds it (an MSI-X table shares its page, or this path maps "
                    "nothing): use fewer queues, or another path to the device");
    }
    return reinterpret_cast<volatile std::uint32_t*>(*place);
}

} // namespace upcie::nvme
