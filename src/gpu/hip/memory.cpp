// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "gpu/hip/driver.hpp"

namespace upcie::gpu::hip {

Result<DevicePointer> Hip::allocate(ByteCount size) {
    return allocate(MemoryKind::device, size);
}

Result<void> Hip::free(DevicePointer base) {
    return free(MemoryKind::device, base);
}

Result<DevicePointer> Hip::allocate(MemoryKind kind, ByteCount size) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    const std::string subject = fmt::format("{} bytes", size.value());
    if (size == ByteCount{}) { // HIP would succeed, with a null pointer
        return fail(EINVAL, "allocate device memory", subject, "Ask for at least one byte.");
    }
    return driver.on_device([&]() -> Result<DevicePointer> {
        void* address = nullptr;
        Result<void> done;
        switch (kind) {
        case MemoryKind::device:
            done = driver.call(api.allocate, subject, allocation_refused, &address, size.value());
            break;
        case MemoryKind::pool:
            done = driver.call(api.pool_allocate, subject, allocation_refused, &address, size.value(), Stream{});
            if (done) { // it may be used by everybody once the stream has come to it
                done = driver.call(api.synchronize, subject, allocation_refused);
            }
            break;
        case MemoryKind::vmm:
            return driver.create_vmm(size);
        case MemoryKind::managed:
            done =
                driver.call(api.managed_allocate, subject, allocation_refused, &address, size.value(), attach_global);
            break;
        case MemoryKind::host:
            done = driver.call(api.host_allocate, subject, "Is there so much memory that may be pinned?", &address,
                               size.value(), host_allocate_default);
            break;
        }
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return Driver::device_pointer(address);
    });
}

Result<void> Hip::free(MemoryKind kind, DevicePointer base) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    constexpr const char* hint = "Only what allocate() answered can be freed, once, and as the kind that it is.";
    return driver.on_device([&]() -> Result<void> {
        if (kind == MemoryKind::vmm) {
            return driver.unmap_vmm(base);
        }
        if (auto checked = driver.is_base(base); !checked) {
            return checked;
        }
        if (kind == MemoryKind::pool) {
            return driver.call(api.pool_free, Driver::at(base), hint, Driver::raw(base), Stream{});
        }
        return driver.call(kind == MemoryKind::host ? api.host_free : api.free, Driver::at(base), hint,
                           Driver::raw(base));
    });
}

AllocationProperties Hip::Driver::allocation_properties() const {
    AllocationProperties properties;
    properties.type = allocation_pinned;
    properties.location = {location_device, ordinal};
    return properties;
}

Result<std::uint64_t> Hip::Driver::whole_granules(ByteCount size, const std::string& subject) const {
    const AllocationProperties properties = allocation_properties();
    std::size_t granule = 0;
    if (auto asked = call(api.granularity, subject,
                          "Has the GPU virtual memory management, on this kernel? Take another kind of memory else.",
                          &granule, &properties, granularity_minimum);
        !asked) {
        return tl::unexpected{std::move(asked.error())};
    }
    const std::uint64_t over = granule == 0 ? 0 : size.value() % granule;
    const std::uint64_t missing_bytes = over == 0 ? 0 : granule - over;
    // What cannot be rounded up there is not that much of: HIP refuses it.
    return size.value() > ~std::uint64_t{0} - missing_bytes ? size.value() : size.value() + missing_bytes;
}

// Physical memory at an address of its own (hip_runtime_api.h, virtual memory management).
Result<DevicePointer> Hip::Driver::create_vmm(ByteCount size) {
    const auto bytes = whole_granules(size, "VMM memory");
    if (!bytes) {
        return tl::unexpected{bytes.error()};
    }
    const std::string subject = fmt::format("{} bytes of VMM memory", *bytes);
    const AllocationProperties properties = allocation_properties();
    MemoryHandle handle = nullptr;
    if (auto made = call(api.vmm_create, subject, allocation_refused, &handle, *bytes, &properties, 0ULL); !made) {
        return tl::unexpected{std::move(made.error())};
    }
    return map_vmm(handle, *bytes, subject);
}

Result<DevicePointer> Hip::Driver::map_vmm(MemoryHandle handle, std::uint64_t bytes, const std::string& subject) {
    AccessDescriptor access;
    access.location = {location_device, ordinal};
    access.flags = access_read_write;
    void* address = nullptr;
    auto done = call(api.vmm_reserve, subject, "Address space is used up.", &address, bytes, std::size_t{0},
                     static_cast<void*>(nullptr), 0ULL);
    bool mapped = false;
    if (done) {
        done = call(api.vmm_map, subject, unexpected_by_hip, address, bytes, std::size_t{0}, handle, 0ULL);
        mapped = done.has_value();
    }
    if (done) {
        done = call(api.vmm_access, subject, unexpected_by_hip, address, bytes, &access, std::size_t{1});
    }
    if (!done) {
        if (mapped) {
            static_cast<void>(api.vmm_unmap(address, bytes));
        }
        if (address != nullptr) {
            static_cast<void>(api.vmm_unreserve(address, bytes));
        }
        static_cast<void>(api.vmm_release(handle));
        return tl::unexpected{std::move(done.error())};
    }
    const std::lock_guard lock{mutex};
    vmm[device_pointer(address).value()] = {handle, bytes};
    return device_pointer(address);
}

Result<void> Hip::Driver::unmap_vmm(DevicePointer base) {
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
    Result<void> first = call(api.vmm_unmap, at(base), unexpected_by_hip, raw(base), made.second);
    for (auto next : {call(api.vmm_unreserve, at(base), unexpected_by_hip, raw(base), made.second),
                      call(api.vmm_release, at(base), unexpected_by_hip, made.first)}) {
        if (first && !next) {
            first = std::move(next);
        }
    }
    return first;
}

} // namespace upcie::gpu::hip
