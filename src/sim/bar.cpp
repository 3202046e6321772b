// SPDX-License-Identifier: BSD-3-Clause
#include "sim/bar.hpp"

#include <cerrno>
#include <utility>

#include <sys/mman.h>

namespace upcie::sim {

Result<std::shared_ptr<Bar>> Bar::create(os::System& system, ByteCount size) {
    os::Fd fd{system, system.memfd_create("upcie-sim-bar0", MFD_CLOEXEC)};
    if (!fd) {
        return fail(errno, "memfd_create", "simulated BAR 0", "Raise the limit of open files if this is EMFILE.");
    }
    if (system.ftruncate(fd.get(), static_cast<off_t>(size.value())) != 0) {
        return fail(errno, "ftruncate", "simulated BAR 0", "No memory for the simulated registers.");
    }
    auto mapping = os::Mapping::map(system, fd.get(), 0, size);
    if (!mapping) {
        return tl::unexpected{std::move(mapping.error())};
    }
    return std::shared_ptr<Bar>{new Bar{std::move(fd), std::move(*mapping)}};
}

std::uint64_t Bar::load_width(std::uint64_t offset, unsigned width) const noexcept {
    switch (width) {
    case 1:
        return __atomic_load_n(at<std::uint8_t>(offset), __ATOMIC_ACQUIRE);
    case 2:
        return __atomic_load_n(at<std::uint16_t>(offset), __ATOMIC_ACQUIRE);
    case 4:
        return load(offset);
    default:
        return __atomic_load_n(at<std::uint64_t>(offset), __ATOMIC_ACQUIRE);
    }
}

void Bar::store_width(std::uint64_t offset, unsigned width, std::uint64_t value) noexcept {
    switch (width) {
    case 1:
        __atomic_store_n(at<std::uint8_t>(offset), static_cast<std::uint8_t>(value), __ATOMIC_RELEASE);
        break;
    case 2:
        __atomic_store_n(at<std::uint16_t>(offset), static_cast<std::uint16_t>(value), __ATOMIC_RELEASE);
        break;
    case 4:
        store(offset, static_cast<std::uint32_t>(value));
        break;
    default:
        __atomic_store_n(at<std::uint64_t>(offset), value, __ATOMIC_RELEASE);
        break;
    }
}

} // namespace upcie::sim
