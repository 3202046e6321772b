// SPDX-License-Identifier: BSD-3-Clause
// The part of hip.cpp's library for memory that is exported, imported, or mapped by hand.
#include <cstring>

#include <sys/stat.h>

#include "hip.hpp"

using namespace fake_hip;

// ---- memory of others

FAKE_API int hipImportExternalMemory(void** memory, const upcie::gpu::hip::ExternalMemoryDescriptor* descriptor) {
    CHECK("hipImportExternalMemory")
    if (descriptor->type < 1 || descriptor->type > 7 || descriptor->flags != 0 || descriptor->size == 0) {
        return invalid_value;
    }
    struct stat status {};
    if (!allowed("imports") || ::fstat(descriptor->handle.fd, &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) < descriptor->size) {
        return out_of_memory;
    }
    void* behind = nullptr;
    const int made = allocate(&behind, descriptor->size);
    if (made == success) {
        fake().imported[number(behind)] = descriptor->handle.fd;
        *memory = behind;
    }
    return made;
}
FAKE_API int hipExternalMemoryGetMappedBuffer(void** address, void* memory,
                                              const upcie::gpu::hip::ExternalBufferDescriptor* buffer) {
    CHECK("hipExternalMemoryGetMappedBuffer")
    if (!fake().imported.contains(number(memory)) || buffer->flags != 0 || buffer->size == 0) {
        return invalid_value;
    }
    *address = memory; // what is behind it is its mapping
    return success;
}
FAKE_API int hipDestroyExternalMemory(void* memory) {
    CHECK("hipDestroyExternalMemory")
    const auto place = fake().imported.find(number(memory));
    if (place == fake().imported.end()) {
        return invalid_value;
    }
    ::close(place->second);
    fake().imported.erase(place);
    static_cast<void>(stub().free(DevicePointer{number(memory)})); // where it was never mapped, and freed as such
    return success;
}

// ---- virtual memory management: since HIP 5.1, there of another layout

FAKE_API int hipMemGetAllocationGranularity(std::size_t* granularity,
                                            const upcie::gpu::hip::AllocationProperties* properties, int option) {
    CHECK("hipMemGetAllocationGranularity")
    if (major < 6) {
        return not_supported;
    }
    if (properties->type != 1 || properties->location.type != 1 || option != 0) {
        return invalid_value;
    }
    *granularity = granule;
    return success;
}
FAKE_API int hipMemCreate(void** handle, std::size_t size, const upcie::gpu::hip::AllocationProperties* properties,
                          unsigned long long flags) {
    CHECK("hipMemCreate")
    if (major < 6) {
        return not_supported;
    }
    if (size % granule != 0 || flags != 0 || properties->type != 1 || properties->location.type != 1) {
        return invalid_value;
    }
    const int status = allocate(handle, size); // the handle is the address of what is behind it
    if (status == success) {
        fake().newest_handle = number(*handle);
        fake().handles.insert(fake().newest_handle);
    }
    return status;
}
FAKE_API int hipMemRelease(void* handle) {
    CHECK("hipMemRelease")
    return fake().handles.erase(number(handle)) != 0 ? release(handle) : invalid_value;
}
FAKE_API int hipMemAddressReserve(void** address, std::size_t size, std::size_t, void*, unsigned long long flags) {
    CHECK("hipMemAddressReserve")
    if (size % granule != 0 || flags != 0) {
        return invalid_value;
    }
    *address = pointer(fake().newest_handle); // the stub has no addresses without memory
    return success;
}
FAKE_API int hipMemAddressFree(void*, std::size_t) {
    CHECK("hipMemAddressFree")
    return success;
}
FAKE_API int hipMemMap(void* address, std::size_t, std::size_t offset, void* handle, unsigned long long flags) {
    CHECK("hipMemMap")
    return address == handle && offset == 0 && flags == 0 ? success : invalid_value;
}
FAKE_API int hipMemUnmap(void*, std::size_t) {
    CHECK("hipMemUnmap")
    return success;
}
FAKE_API int hipMemSetAccess(void*, std::size_t, const upcie::gpu::hip::AccessDescriptor* access, std::size_t count) {
    CHECK("hipMemSetAccess")
    return count == 1 && access->location.type == 1 && access->flags == 3 ? success : invalid_value;
}
FAKE_API int hipMemImportFromShareableHandle(void** handle, void* given, int type) {
    CHECK("hipMemImportFromShareableHandle")
    // A pointer to the descriptor, and from 7.1 on its number.
    const int fd = major >= 7 ? static_cast<int>(number(given)) : *static_cast<const int*>(given);
    struct stat status {};
    if (!allowed("imports") || type != 1 || ::fstat(fd, &status) != 0 || status.st_size == 0) {
        return invalid_value;
    }
    const int made = allocate(handle, static_cast<std::size_t>(status.st_size));
    if (made == success) {
        fake().newest_handle = number(*handle);
        fake().handles.insert(fake().newest_handle);
    }
    return made;
}

#if FAKE_HIP_MAJOR >= 7

FAKE_API int hipMemGetHandleForAddressRange(void* handle, void* start, std::size_t length, int type,
                                            unsigned long long flags) {
    CHECK("hipMemGetHandleForAddressRange")
    const auto found = stub().allocation_of(DevicePointer{number(start)});
    if (flags != 0 || type != 1 || length == 0 || !found || fake().not_exported.contains(found->base.value())) {
        return invalid_value;
    }
    auto made = stub().export_range(DevicePointer{number(start)}, ByteCount{length});
    if (!made) {
        return made.error().is(ENOTSUP) ? not_supported : invalid_value;
    }
    const int fd = fake_gpu::descriptor_of(stub(), *made);
    if (fd < 0) {
        return out_of_memory;
    }
    std::memcpy(handle, &fd, sizeof fd);
    return success;
}

#endif
