// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "gpu/hip/driver.hpp"
#include "gpu/vendor.hpp"

namespace upcie::gpu::hip {

// ---- translation

Result<Allocation> Hip::Driver::allocation_at(DevicePointer pointer) const {
    void* base = nullptr;
    std::size_t size = 0;
    auto done = call(api.address_range, at(pointer),
                     "The runtime knows no allocation there: is it a pointer to live memory of this GPU?", &base, &size,
                     raw(pointer));
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    return Allocation{device_pointer(base), ByteCount{size}};
}

Result<void> Hip::Driver::is_base(DevicePointer pointer) const {
    const auto found = allocation_at(pointer);
    if (!found) {
        return tl::unexpected{found.error()};
    }
    if (found->base != pointer) {
        return fail(EINVAL, "free device memory", at(pointer),
                    fmt::format("It is inside the allocation at {:#x}; only what allocate() answered can be freed.",
                                found->base.value()));
    }
    return {};
}

Result<void> Hip::Driver::holds(DevicePointer start, ByteCount length) const {
    const auto found = allocation_at(start);
    if (!found) {
        return tl::unexpected{found.error()};
    }
    const std::uint64_t offset = start.value() - found->base.value();
    if (offset > found->size.value() || length.value() > found->size.value() - offset) {
        return fail(
            EFAULT, "reach device memory", fmt::format("{} bytes at {:#x}", length.value(), start.value()),
            fmt::format("They leave the allocation of {} bytes at {:#x}.", found->size.value(), found->base.value()));
    }
    return {};
}

Result<Allocation> Hip::allocation_of(DevicePointer pointer) {
    return driver_->on_device([&] { return driver_->allocation_at(pointer); });
}

Result<Export> Hip::export_range(DevicePointer start, ByteCount length) {
    return export_range(start, length, ExportMapping::automatic);
}

Result<Export> Hip::export_range(DevicePointer start, ByteCount length, ExportMapping mapping) {
    Driver& driver = *driver_;
    return driver.on_device([&]() -> Result<Export> {
        int fd = -1;
        auto done =
            driver.call(driver.api.export_range, fmt::format("{} bytes at {}", length.value(), Driver::at(start)),
                        "HIP exports memory of this GPU, a range inside one allocation; a mapping flag it refuses "
                        "before the ROCm that "
                        "has it.",
                        static_cast<void*>(&fd), Driver::raw(start), length.value(), range_handle_dma_buf,
                        static_cast<unsigned long long>(mapping));
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return adopt_export(driver.system, fd, start);
    });
}

// ---- access

Result<DevicePointer> Hip::Driver::register_memory(void* start, ByteCount length, unsigned flags, const char* hint) {
    const std::string subject =
        fmt::format("{} bytes at {:#x}", length.value(), reinterpret_cast<std::uintptr_t>(start));
    return on_device([&]() -> Result<DevicePointer> {
        auto done = call(api.host_register, subject, hint, start, length.value(), flags);
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        void* address = nullptr;
        done = call(api.host_pointer, subject, unexpected_by_hip, &address, start, 0U);
        if (!done) {
            static_cast<void>(api.host_unregister(start));
            return tl::unexpected{std::move(done.error())};
        }
        return device_pointer(address);
    });
}

Result<DevicePointer> Hip::register_mmio(void* start, ByteCount length) {
    return driver_->register_memory(
        start, length, host_register_mapped | host_register_io_memory,
        "HIP 7.1 takes no MMIO (hipErrorInvalidValue, also as root), though its header has the flag: let the host ring "
        "the doorbells, or try a newer ROCm, with whole pages of a mapped BAR.");
}

Result<void> Hip::unregister_mmio(void* start) {
    Driver& driver = *driver_;
    return driver.on_device([&] {
        return driver.call(driver.api.host_unregister,
                           fmt::format("memory at {:#x}", reinterpret_cast<std::uintptr_t>(start)),
                           "Only what register_mmio() or register_host() took can be given back, once.", start);
    });
}

Result<DevicePointer> Hip::register_host(void* start, ByteCount length) {
    return driver_->register_memory(start, length, host_register_mapped,
                                    "The memory has to be mapped, and may not be registered already.");
}

Result<void> Hip::unregister_host(void* start) {
    return unregister_mmio(start);
}

namespace {

constexpr const char* live_memory = "The range has to lie in live device memory.";

} // namespace

Result<void> Hip::copy_to_device(DevicePointer to, const void* from, ByteCount length) {
    Driver& driver = *driver_;
    return driver.on_device([&]() -> Result<void> {
        if (auto checked = driver.holds(to, length); !checked) {
            return checked;
        }
        return driver.call(driver.api.copy_to_device, fmt::format("{} bytes to {}", length.value(), Driver::at(to)),
                           live_memory, Driver::raw(to), from, length.value());
    });
}

Result<void> Hip::copy_to_host(void* to, DevicePointer from, ByteCount length) {
    Driver& driver = *driver_;
    return driver.on_device([&]() -> Result<void> {
        if (auto checked = driver.holds(from, length); !checked) {
            return checked;
        }
        return driver.call(driver.api.copy_to_host, fmt::format("{} bytes from {}", length.value(), Driver::at(from)),
                           live_memory, to, Driver::raw(from), length.value());
    });
}

Result<std::uint64_t> Hip::checksum(DevicePointer start, ByteCount length) {
    return fail(ENOTSUP, "checksum", fmt::format("{} bytes at {}", length.value(), Driver::at(start)),
                "The HIP flavour has no kernel for it: copy the bytes to the host.");
}

} // namespace upcie::gpu::hip
