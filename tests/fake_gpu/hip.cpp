// SPDX-License-Identifier: BSD-3-Clause
// A library shaped like libamdhip64 over the stub GPU, for the HIP flavour to be tested where there is no AMD GPU. It
// answers as the Radeon of shared/facts/gpu-runtimes.md did: an export takes any range of an allocation and describes
// the whole buffer object, MMIO is refused, an opaque descriptor is hipErrorOutOfMemory. tests/gpu/hip_suite.cpp runs
// against it and against the real one, so that it cannot drift.
//
// FAKE_HIP_MAJOR says which HIP it is: 7, 6 (no export), 5 (other structures), or one that nobody knows. Its tests
// script failures by upcie_fake_hip_fail(function, result): the next call of it answers that; and lift refusals by
// upcie_fake_hip_allow(what, 1). Memory that is mapped, exported or imported is in hip_vmm.cpp, hipRTC in hiprtc.cpp.
#ifndef FAKE_HIP_EMPTY

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "hip.hpp"

using namespace fake_hip;

namespace {

int copy(bool to_device, void* device, void* host, std::size_t size) {
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    if (!range_of(number(device), base, length)) {
        return success; // taken for the host's own memory, which a test had better not touch
    }
    // Registered memory has its host's address for the device too.
    if (const auto place = fake().registered.find(base); place != fake().registered.end()) {
        if (number(device) - base > length - size) {
            return invalid_value;
        }
        std::memcpy(to_device ? device : host, to_device ? host : device, size);
        return success;
    }
    const auto done = to_device ? stub().copy_to_device(DevicePointer{number(device)}, host, ByteCount{size})
                                : stub().copy_to_host(host, DevicePointer{number(device)}, ByteCount{size});
    return done ? success : invalid_value;
}

void write_arch(void* properties, std::size_t size, std::size_t offset) {
    std::memset(properties, 0x5a, size); // what is not asked for is not zero
    std::strcpy(static_cast<char*>(properties) + offset, "gfx1101");
}

} // namespace

FAKE_API void upcie_fake_hip_fail(const char* function, int result) {
    fake().script.fail(function, result);
}
/// "io-memory": hipHostRegister takes MMIO; "imports": descriptors are imported.
FAKE_API void upcie_fake_hip_allow(const char* what, int yes) {
    const std::lock_guard one_call{fake().api};
    fake().allowed[what] = yes;
}
/// Handles, imports and registrations that were not given back.
FAKE_API std::size_t upcie_fake_hip_held() {
    const std::lock_guard one_call{fake().api};
    return fake().handles.size() + fake().imported.size() + fake().registered.size();
}
FAKE_API int upcie_fake_hip_seen() {
    return seen;
}

// ---- what there is

FAKE_API int hipRuntimeGetVersion(int* answer) {
    *answer = version;
    return scripted("hipRuntimeGetVersion");
}
FAKE_API int hipDriverGetVersion(int* answer) {
    *answer = version;
    return scripted("hipDriverGetVersion");
}
FAKE_API const char* hipGetErrorName(int status) {
    static const std::map<int, const char*> names{{success, "hipSuccess"},
                                                  {invalid_value, "hipErrorInvalidValue"},
                                                  {out_of_memory, "hipErrorOutOfMemory"},
                                                  {invalid_device_pointer, "hipErrorInvalidDevicePointer"},
                                                  {no_device, "hipErrorNoDevice"},
                                                  {invalid_device, "hipErrorInvalidDevice"},
                                                  {invalid_image, "hipErrorInvalidImage"},
                                                  {not_found, "hipErrorNotFound"},
                                                  {illegal_address, "hipErrorIllegalAddress"},
                                                  {not_supported, "hipErrorNotSupported"}};
    const auto place = names.find(status);
    return place != names.end() ? place->second : "hipErrorUnknown";
}
FAKE_API int hipGetDeviceCount(int* count) {
    *count = 0;
    CHECK("hipGetDeviceCount")
    *count = allowed("no-devices") ? 0 : devices;
    return success;
}
FAKE_API int hipGetDevice(int* device) {
    *device = current;
    return scripted("hipGetDevice");
}
FAKE_API int hipSetDevice(int device) {
    if (const int failure = scripted("hipSetDevice"); failure != success) {
        return failure;
    }
    if (device < 0 || device >= devices) {
        return invalid_device;
    }
    current = device;
    return success;
}
FAKE_API int hipDeviceSynchronize() {
    CHECK("hipDeviceSynchronize")
    return success;
}
FAKE_API int hipDeviceGet(int* device, int ordinal) {
    CHECK("hipDeviceGet")
    *device = ordinal;
    return ordinal >= 0 && ordinal < devices ? success : invalid_device;
}
FAKE_API int hipDeviceGetName(char* name, int length, int) {
    CHECK("hipDeviceGetName")
    std::strncpy(name, "Fake Radeon of the tests", static_cast<std::size_t>(length));
    return success;
}
FAKE_API int hipDeviceGetPCIBusId(char* name, int length, int device) {
    CHECK("hipDeviceGetPCIBusId")
    std::strncpy(name, device == 0 ? "0000:FB:00.0" : "0000:FC:00.0", static_cast<std::size_t>(length));
    return success;
}
FAKE_API int hipDeviceTotalMem(std::size_t* bytes, int) {
    CHECK("hipDeviceTotalMem")
    *bytes = std::size_t{4} << 30;
    return success;
}
FAKE_API int hipDeviceGetUuid(char* uuid, int) {
    CHECK("hipDeviceGetUuid")
    std::memcpy(uuid, "00112233445566ff", 16);
    return success;
}
FAKE_API int hipDeviceGetAttribute(int* value, int attribute, int) {
    CHECK("hipDeviceGetAttribute")
    *value = attribute == 10011 ? 1 : 0;
    return success;
}
FAKE_API int hipGetDeviceProperties(void* properties, int) {
    CHECK("hipGetDeviceProperties")
    write_arch(properties, 792, 396);
    return success;
}

// ---- memory

FAKE_API int hipMalloc(void** address, std::size_t size) {
    CHECK("hipMalloc")
    return allocate(address, size);
}
FAKE_API int hipFree(void* address) {
    CHECK("hipFree")
    return release(address);
}
FAKE_API int hipMemGetAddressRange(void** base, std::size_t* size, void* address) {
    CHECK("hipMemGetAddressRange")
    std::uint64_t first = 0;
    std::uint64_t length = 0;
    if (!range_of(number(address), first, length)) {
        return major >= 7 ? not_found : invalid_device_pointer;
    }
    *base = pointer(first);
    *size = length;
    return success;
}
FAKE_API int hipMemcpyHtoD(void* to, void* from, std::size_t size) {
    CHECK("hipMemcpyHtoD")
    return copy(true, to, from, size);
}
FAKE_API int hipMemcpyDtoH(void* to, void* from, std::size_t size) {
    CHECK("hipMemcpyDtoH")
    return copy(false, from, to, size);
}
#if FAKE_HIP_MAJOR != 5 // that one is broken: it lacks what its version has
FAKE_API int hipMallocManaged(void** address, std::size_t size, unsigned flags) {
    CHECK("hipMallocManaged")
    const int status = flags == 1 ? allocate(address, size) : invalid_value;
    if (status == success) {
        fake().not_exported.insert(number(*address));
    }
    return status;
}
#endif
FAKE_API int hipHostMalloc(void** host, std::size_t size, unsigned) {
    CHECK("hipHostMalloc")
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return out_of_memory;
    }
    fake().host[number(memory)] = size;
    *host = memory;
    return success;
}
FAKE_API int hipHostFree(void* host) {
    CHECK("hipHostFree")
    return release(host);
}
FAKE_API int hipMallocAsync(void** address, std::size_t size, void*) {
    CHECK("hipMallocAsync")
    return allocate(address, size);
}
FAKE_API int hipFreeAsync(void* address, void*) {
    CHECK("hipFreeAsync")
    return release(address);
}

// ---- MMIO

FAKE_API int hipHostRegister(void* start, std::size_t size, unsigned flags) {
    CHECK("hipHostRegister")
    if ((flags & 4U) != 0 && !allowed("io-memory")) {
        return invalid_value;
    }
    if ((flags != 6 && flags != 2) || size == 0 || number(start) % 4096 != 0) {
        return invalid_value;
    }
    const auto made = stub().register_mmio(start, ByteCount{size});
    if (!made) {
        return invalid_value;
    }
    fake().registered[made->value()] = size;
    fake().registered_at[start] = made->value();
    return success;
}
FAKE_API int hipHostUnregister(void* start) {
    CHECK("hipHostUnregister")
    const auto place = fake().registered_at.find(start);
    if (place == fake().registered_at.end()) {
        return invalid_value;
    }
    fake().registered.erase(place->second);
    fake().registered_at.erase(place);
    return stub().unregister_mmio(start) ? success : invalid_value;
}
FAKE_API int hipHostGetDevicePointer(void** address, void* start, unsigned) {
    CHECK("hipHostGetDevicePointer")
    const auto place = fake().registered_at.find(start);
    if (place == fake().registered_at.end()) {
        return invalid_value;
    }
    *address = pointer(place->second);
    return success;
}

// ---- kernels: the one that the flavour brings, as hiprtc.cpp "compiled" it

namespace {
int module_object;
int function_object;
} // namespace

FAKE_API int hipModuleLoadData(void** module, const void* image) {
    CHECK("hipModuleLoadData")
    *module = &module_object;
    return std::strcmp(static_cast<const char*>(image), "fake code for gfx1101") == 0 ? success : invalid_image;
}
FAKE_API int hipModuleUnload(void* module) {
    CHECK("hipModuleUnload")
    return module == &module_object ? success : invalid_value;
}
FAKE_API int hipModuleGetFunction(void** function, void* module, const char* name) {
    CHECK("hipModuleGetFunction")
    *function = &function_object;
    return module == &module_object && std::string_view{name} == "upcie_read_dwords" ? success : not_found;
}
FAKE_API int hipModuleLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   void*, void** parameters, void**) {
    CHECK("hipModuleLaunchKernel")
    if (function != &function_object) {
        return invalid_value;
    }
    const auto from = *static_cast<std::uint64_t*>(parameters[0]);
    const auto to = *static_cast<std::uint64_t*>(parameters[1]);
    const auto value = stub().read_by_kernel(DevicePointer{from});
    if (!value) {
        std::abort(); // as ROCm ends a process whose kernel faults
    }
    return stub().copy_to_device(DevicePointer{to}, &*value, ByteCount{8}) ? success : illegal_address;
}

#if FAKE_HIP_MAJOR >= 6

FAKE_API int hipGetDevicePropertiesR0600(void* properties, int) {
    CHECK("hipGetDevicePropertiesR0600")
    write_arch(properties, 1472, 1160);
    return success;
}

#endif

#endif // FAKE_HIP_EMPTY
