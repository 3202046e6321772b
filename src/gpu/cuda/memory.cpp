// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "gpu/cuda/driver.hpp"
#include "gpu/vendor.hpp"

namespace upcie::gpu::cuda {

namespace {

std::string bytes_of(ByteCount size) {
    return fmt::format("{} bytes", size.value());
}

constexpr const char* refused_allocation =
    "Is there so much free memory on the GPU? nvidia-smi tells who has the rest.";

} // namespace

// ---- allocation

Result<DevicePointer> Cuda::allocate(ByteCount size) {
    return allocate(MemoryKind::device, size);
}

Result<void> Cuda::free(DevicePointer base) {
    return free(MemoryKind::device, base);
}

Result<DevicePointer> Cuda::allocate(MemoryKind kind, ByteCount size) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    if (size == ByteCount{}) {
        return fail(EINVAL, "allocate device memory", bytes_of(size), "Ask for at least one byte.");
    }
    return driver.in_context([&]() -> Result<DevicePointer> {
        DeviceAddress address = 0;
        const std::string subject = bytes_of(size);
        Result<void> done;
        switch (kind) {
        case MemoryKind::device:
            done = driver.call(api.allocate, subject, refused_allocation, &address, size.value());
            break;
        case MemoryKind::pool:
            done = driver.call(api.pool_allocate, subject, refused_allocation, &address, size.value(), Stream{});
            if (done) { // it may be used by everybody once the stream has come to it
                done = driver.call(api.synchronize, subject, refused_allocation);
            }
            break;
        case MemoryKind::vmm:
            return driver.map_vmm(size);
        case MemoryKind::managed:
            done =
                driver.call(api.managed_allocate, subject, refused_allocation, &address, size.value(), attach_global);
            break;
        case MemoryKind::host: {
            void* host = nullptr;
            done = driver.call(api.host_allocate, subject, "Is there so much memory that may be pinned?", &host,
                               size.value());
            address = reinterpret_cast<std::uintptr_t>(host);
            break;
        }
        }
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return DevicePointer{address};
    });
}

Result<void> Cuda::free(MemoryKind kind, DevicePointer base) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    constexpr const char* hint = "Only what allocate() answered can be freed, once, and as the kind that it is.";
    return driver.in_context([&]() -> Result<void> {
        switch (kind) {
        case MemoryKind::device:
        case MemoryKind::managed:
            return driver.call(api.free, Driver::at(base), hint, base.value());
        case MemoryKind::pool:
            return driver.call(api.pool_free, Driver::at(base), hint, base.value(), Stream{});
        case MemoryKind::vmm:
            return driver.unmap_vmm(base);
        case MemoryKind::host:
            break;
        }
        return driver.call(api.host_free, Driver::at(base), hint, reinterpret_cast<void*>(base.value()));
    });
}

// Physical memory that may be reached by RDMA, at an address of its own (cuda.h, virtual memory management).
Result<DevicePointer> Cuda::Driver::map_vmm(ByteCount size) {
    const std::uint64_t granule = granularity.value();
    if (granule == 0) {
        return missing(api.granularity, "VMM memory");
    }
    const std::uint64_t bytes = (size.value() + granule - 1) / granule * granule;
    const std::string subject = fmt::format("{} bytes of VMM memory", bytes);
    AllocationProperties properties;
    properties.type = allocation_pinned;
    properties.location = {location_device, device};
    properties.flags.rdma_capable = identity.vmm_rdma ? 1 : 0;
    properties.requested_handle_types = shareable_posix_fd;
    MemoryHandle handle = 0;
    if (auto made = call(api.vmm_create, subject, refused_allocation, &handle, bytes, &properties, 0ULL); !made) {
        return tl::unexpected{std::move(made.error())};
    }
    return map_handle(handle, bytes, subject);
}

Result<DevicePointer> Cuda::Driver::map_handle(MemoryHandle handle, std::uint64_t bytes, const std::string& subject) {
    AccessDescriptor access;
    access.location = {location_device, device};
    access.flags = access_read_write;
    DeviceAddress address = 0;
    auto done = call(api.vmm_reserve, subject, "Address space is used up.", &address, bytes, std::size_t{0},
                     DeviceAddress{0}, 0ULL);
    bool mapped = false;
    if (done) {
        done = call(api.vmm_map, subject, unexpected, address, bytes, std::size_t{0}, handle, 0ULL);
        mapped = done.has_value();
    }
    if (done) {
        done = call(api.vmm_access, subject, unexpected, address, bytes, &access, std::size_t{1});
    }
    if (!done) {
        if (mapped) {
            static_cast<void>(api.vmm_unmap(address, bytes));
        }
        if (address != 0) {
            static_cast<void>(api.vmm_unreserve(address, bytes));
        }
        static_cast<void>(api.vmm_release(handle));
        return tl::unexpected{std::move(done.error())};
    }
    const std::lock_guard lock{mutex};
    vmm[address] = {handle, bytes};
    return DevicePointer{address};
}

Result<void> Cuda::Driver::unmap_vmm(DevicePointer base) {
    std::pair<MemoryHandle, std::uint64_t> made;
    {
        const std::lock_guard lock{mutex};
        const auto place = vmm.find(base.value());
        if (place == vmm.end()) {
            return fail(EINVAL, "free VMM memory", at(base), "It is not the base of live VMM memory of this object.");
        }
        made = place->second;
        vmm.erase(place);
    }
    Result<void> first = call(api.vmm_unmap, at(base), unexpected, base.value(), made.second);
    for (auto next : {call(api.vmm_unreserve, at(base), unexpected, base.value(), made.second),
                      call(api.vmm_release, at(base), unexpected, made.first)}) {
        if (first && !next) {
            first = std::move(next);
        }
    }
    return first;
}

// ---- translation

Result<Allocation> Cuda::allocation_of(DevicePointer pointer) {
    Driver& driver = *driver_;
    return driver.in_context([&]() -> Result<Allocation> {
        DeviceAddress base = 0;
        std::size_t size = 0;
        auto done = driver.call(driver.api.address_range, Driver::at(pointer),
                                "The driver knows no allocation there: is it a pointer to live memory of this GPU?",
                                &base, &size, pointer.value());
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return Allocation{DevicePointer{base}, ByteCount{size}};
    });
}

Result<Export> Cuda::export_range(DevicePointer start, ByteCount length) {
    return export_range(start, length, ExportMapping::automatic);
}

Result<Export> Cuda::export_range(DevicePointer start, ByteCount length, ExportMapping mapping) {
    Driver& driver = *driver_;
    return driver.in_context([&]() -> Result<Export> {
        int fd = -1;
        auto done = driver.call(
            driver.api.export_range, fmt::format("{} bytes at {}", length.value(), Driver::at(start)),
            "CUDA exports whole host pages of device memory, inside one backing, where the driver has dma-buf support "
            "(the open kernel modules) and BAR1 has room.",
            static_cast<void*>(&fd), start.value(), length.value(), range_handle_dma_buf,
            static_cast<unsigned long long>(mapping));
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return adopt_export(driver.system, fd, start);
    });
}

// ---- access

Result<DevicePointer> Cuda::Driver::register_memory(void* start, ByteCount length, unsigned flags,
                                                    const std::string& hint) {
    const std::string subject =
        fmt::format("{} bytes at {:#x}", length.value(), reinterpret_cast<std::uintptr_t>(start));
    auto done = call(api.host_register, subject, hint, start, length.value(), flags);
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    DeviceAddress address = 0;
    done = call(api.host_pointer, subject, unexpected, &address, start, 0U);
    if (!done) {
        static_cast<void>(api.host_unregister(start));
        return tl::unexpected{std::move(done.error())};
    }
    return DevicePointer{address};
}

Result<void> Cuda::Driver::unregister_memory(void* start, const std::string& hint) const {
    return call(api.host_unregister, fmt::format("memory at {:#x}", reinterpret_cast<std::uintptr_t>(start)), hint,
                start);
}

Result<DevicePointer> Cuda::register_mmio(void* start, ByteCount length) {
    Driver& driver = *driver_;
    return driver.in_context([&] {
        return driver.register_memory(start, length, host_register_iomemory | host_register_device_map,
                                      "Registering MMIO takes privilege at the time of the call "
                                      "(CUDA_ERROR_NOT_PERMITTED: run it as root; a descriptor that was passed on "
                                      "does not help), and whole pages of a mapped BAR.");
    });
}

Result<void> Cuda::unregister_mmio(void* start) {
    Driver& driver = *driver_;
    return driver.in_context(
        [&] { return driver.unregister_memory(start, "Only what register_mmio() took can be given back, once."); });
}

Result<DevicePointer> Cuda::register_host(void* start, ByteCount length) {
    Driver& driver = *driver_;
    if (length == ByteCount{}) {
        return fail(EINVAL, "register host memory", bytes_of(length), "Ask for at least one byte.");
    }
    return driver.in_context([&] {
        return driver.register_memory(start, length, host_register_device_map,
                                      "The memory has to be mapped, not yet registered, and within what may be "
                                      "pinned (ulimit -l).");
    });
}

Result<void> Cuda::unregister_host(void* start) {
    Driver& driver = *driver_;
    return driver.in_context(
        [&] { return driver.unregister_memory(start, "Only what register_host() took can be given back, once."); });
}

Result<void> Cuda::copy_to_device(DevicePointer to, const void* from, ByteCount length) {
    Driver& driver = *driver_;
    return driver.in_context([&] {
        return driver.call(driver.api.copy_to_device, fmt::format("{} bytes to {}", length.value(), Driver::at(to)),
                           "The range has to lie in live device memory.", to.value(), from, length.value());
    });
}

Result<void> Cuda::copy_to_host(void* to, DevicePointer from, ByteCount length) {
    Driver& driver = *driver_;
    return driver.in_context([&] {
        return driver.call(driver.api.copy_to_host, fmt::format("{} bytes from {}", length.value(), Driver::at(from)),
                           "The range has to lie in live device memory.", to, from.value(), length.value());
    });
}

} // namespace upcie::gpu::cuda
