// SPDX-License-Identifier: BSD-3-Clause
// A library shaped like libamdhip64 over the stub GPU, for the HIP flavour to be tested where there is no AMD GPU. It
// answers as the Radeon of shared/facts/gpu-runtimes.md did: an export takes any range of an allocation and describes
// the whole buffer object, MMIO is refused, an opaque descriptor is hipErrorOutOfMemory. tests/gpu/hip_suite.cpp runs
// against it and against the real one, so that it cannot drift.
//
// FAKE_HIP_MAJOR says which HIP it is: 7, 6 (no export), 5 (other structures), or one that nobody knows. Its tests
// script failures by upcie_fake_hip_fail(function, result): the next call of it answers that; and lift refusals by
// upcie_fake_hip_allow(what, 1). hipRTC is in hiprtc.cpp.
#ifndef FAKE_HIP_EMPTY

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include <sys/stat.h>

#include "fake.hpp"
#include "gpu/hip/api.hpp"

namespace {

using upcie::ByteCount;
using upcie::DevicePointer;
using upcie::gpu::stub::Stub;

using upcie::gpu::hip::illegal_address;
using upcie::gpu::hip::invalid_device;
using upcie::gpu::hip::invalid_device_pointer;
using upcie::gpu::hip::invalid_image;
using upcie::gpu::hip::invalid_value;
using upcie::gpu::hip::no_device;
using upcie::gpu::hip::not_found;
using upcie::gpu::hip::not_supported;
using upcie::gpu::hip::out_of_memory;
using upcie::gpu::hip::success;

constexpr int major = FAKE_HIP_MAJOR;
constexpr int version = major == 7 ? 70152801 : major == 6 ? 60342134 : major == 5 ? 50221153 : major * 10'000'000 + 1;
constexpr int devices = 2;
constexpr std::size_t granule = 4096;

struct Fake {
    std::recursive_mutex api; ///< one call at a time
    std::optional<Stub> stub;
    fake_gpu::Script script;
    std::map<std::string, int> allowed;
    std::set<std::uint64_t> not_exported;            ///< bases of managed memory
    std::map<std::uint64_t, std::size_t> host;       ///< hipHostMalloc's
    std::map<std::uint64_t, std::size_t> registered; ///< device's pointer, and bytes
    std::map<void*, std::uint64_t> registered_at;    ///< the host's pointer, and the device's
    std::set<std::uint64_t> handles;                 ///< live ones: addresses of what is behind them
    std::uint64_t newest_handle = 0;                 ///< reserving answers its address
    std::map<std::uint64_t, int> imported;           ///< of external memory: what is behind it, and its descriptor
};

Fake& fake() {
    static Fake* const one = new Fake; // lives as long as the process, as a runtime does
    return *one;
}

thread_local int current = 0;
thread_local int seen = -1; ///< the device that was current at the last call that needs one

int scripted(const char* function) {
    return fake().script.take(function);
}

bool allowed(const char* what) {
    return fake().allowed[what] != 0;
}

/// HIP initialises itself at the first call of nearly anything.
int check(const char* function) {
    if (const int failure = scripted(function); failure != success) {
        return failure;
    }
    if (fake_gpu::no_device_wanted()) {
        return no_device;
    }
    Fake& f = fake();
    if (!f.stub) {
        auto made = fake_gpu::make_stub(upcie::gpu::stub::Manner::whole_object);
        if (!made) {
            return out_of_memory;
        }
        f.stub.emplace(std::move(*made));
    }
    seen = current;
    return success;
}

Stub& stub() {
    return *fake().stub;
}

std::uint64_t number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}
void* pointer(std::uint64_t number) {
    return reinterpret_cast<void*>(number);
}

int allocate(void** out, std::size_t size) {
    if (out == nullptr) {
        return invalid_value;
    }
    *out = nullptr;
    if (size == 0) {
        return success;
    }
    const auto made = stub().allocate(ByteCount{size});
    if (!made) {
        return out_of_memory;
    }
    *out = pointer(made->value());
    return success;
}

/// The allocation that an address lies in: the device's, the host's, or registered memory.
bool range_of(std::uint64_t address, std::uint64_t& base, std::uint64_t& size) {
    if (const auto found = stub().allocation_of(DevicePointer{address})) {
        base = found->base.value();
        size = found->size.value();
        return true;
    }
    for (const auto* const kind : {&fake().host, &fake().registered}) {
        auto place = kind->upper_bound(address);
        if (place != kind->begin() && address - (--place)->first < place->second) {
            base = place->first;
            size = place->second;
            return true;
        }
    }
    return false;
}

/// Any pointer into an allocation frees it, and a null one is nothing to do: as HIP has it.
int release(void* any) {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    if (any == nullptr) {
        return success;
    }
    if (!range_of(number(any), base, size)) {
        return invalid_value;
    }
    fake().not_exported.erase(base);
    if (fake().host.erase(base) != 0) {
        ::munmap(pointer(base), size);
        return success;
    }
    return stub().free(DevicePointer{base}) ? success : invalid_value;
}

int copy(bool to_device, void* device, void* host, std::size_t size) {
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    if (!range_of(number(device), base, length)) {
        return success; // taken for the host's own memory, which a test had better not touch
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

#define CHECK(function)                                                                                                \
    const std::lock_guard one_call{fake().api};                                                                        \
    if (const int status = check(function); status != success) {                                                       \
        return status;                                                                                                 \
    }

FAKE_API void upcie_fake_hip_fail(const char* function, int result) {
    fake().script.fail(function, result);
}
/// "io-memory": hipHostRegister takes MMIO; "imports": descriptors are imported.
FAKE_API void upcie_fake_hip_allow(const char* what, int yes) {
    const std::lock_guard one_call{fake().api};
    fake().allowed[what] = yes;
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
FAKE_API int hipMallocManaged(void** address, std::size_t size, unsigned flags) {
    CHECK("hipMallocManaged")
    const int status = flags == 1 ? allocate(address, size) : invalid_value;
    if (status == success) {
        fake().not_exported.insert(number(*address));
    }
    return status;
}
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
    if (flags != 6 || size == 0 || number(start) % 4096 != 0) {
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

#if FAKE_HIP_MAJOR >= 6

FAKE_API int hipGetDevicePropertiesR0600(void* properties, int) {
    CHECK("hipGetDevicePropertiesR0600")
    write_arch(properties, 1472, 1160);
    return success;
}

#endif

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
#endif // FAKE_HIP_EMPTY
