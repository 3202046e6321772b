// SPDX-License-Identifier: BSD-3-Clause
// A library shaped like libcuda over the stub GPU, for the CUDA flavour to be tested where there is no GPU. It answers
// as the drivers of shared/facts/gpu-runtimes.md do; tests/gpu/cuda_suite.cpp runs against it and against the real one,
// so that it cannot drift.
//
// Its tests script failures by upcie_fake_cuda_fail(function, result): the next call of it answers that. Built with
// FAKE_CUDA_OLD it lacks what came with CUDA 10.2 and later, and with FAKE_CUDA_EMPTY nearly everything;
// FAKE_CUDA_UNMARKED does not say that it is none of NVIDIA's.
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <linux/capability.h>
#include <sys/syscall.h>

#include "fake.hpp"
#include "gpu/cuda/api.hpp"

#ifndef FAKE_CUDA_UNMARKED
FAKE_API const int upcie_fake_gpu_library = 1;
#endif

#ifndef FAKE_CUDA_EMPTY

namespace {

using upcie::ByteCount;
using upcie::DevicePointer;
using upcie::gpu::stub::Stub;

using upcie::gpu::cuda::invalid_device;
using upcie::gpu::cuda::invalid_value;
using upcie::gpu::cuda::not_permitted;
using upcie::gpu::cuda::not_supported;
using upcie::gpu::cuda::out_of_memory;
using upcie::gpu::cuda::success;
constexpr int not_initialized = 3;
constexpr int invalid_context = 201;
constexpr int not_found = 500;
constexpr int illegal_address = 700;

struct Fake {
    std::mutex mutex; ///< of the next two
    bool initialized = false;
    std::optional<Stub> stub;
    std::recursive_mutex api; ///< one call at a time
    fake_gpu::Script script;
    std::map<std::uint64_t, bool> not_exported; ///< base of managed and host memory
    std::map<void*, std::size_t> host;          ///< cuMemAllocHost's
    std::map<std::uint64_t, DevicePointer> vmm; ///< handle to what is behind it
    std::uint64_t last_made = 0;                ///< of `vmm`
    std::map<void*, DevicePointer> registered;
    int retained = 0;
};

Fake& fake() {
    static Fake* const one = new Fake; // lives as long as the process, as a driver does
    return *one;
}

thread_local int contexts = 0;

/// What a test wants `function` to answer, once; else `success`.
int scripted(const char* function) {
    return fake().script.take(function);
}

int check(const char* function, bool needs_context = true) {
    if (const int failure = scripted(function); failure != success) {
        return failure;
    }
    if (!fake().initialized) {
        return not_initialized;
    }
    return needs_context && contexts == 0 ? invalid_context : success;
}

Stub& stub() {
    return *fake().stub;
}

int allocate(unsigned long long* out, std::size_t size) {
    if (size == 0 || out == nullptr) {
        return invalid_value;
    }
    const auto made = stub().allocate(ByteCount{size});
    if (!made) {
        return out_of_memory;
    }
    *out = made->value();
    return success;
}

int copy(bool to_device, std::uint64_t device, void* host, std::size_t size) {
    const auto done = to_device ? stub().copy_to_device(DevicePointer{device}, host, ByteCount{size})
                                : stub().copy_to_host(host, DevicePointer{device}, ByteCount{size});
    return done ? success : invalid_value;
}

} // namespace

#define CHECK(function)                                                                                                \
    const std::lock_guard one_call{fake().api};                                                                        \
    if (const int status = check(function); status != success) {                                                       \
        return status;                                                                                                 \
    }

FAKE_API void upcie_fake_cuda_fail(const char* function, int result) {
    fake().script.fail(function, result);
}

FAKE_API int upcie_fake_cuda_contexts() {
    return contexts;
}
FAKE_API int upcie_fake_cuda_retained() {
    return fake().retained;
}

FAKE_API int cuInit(unsigned flags) {
    if (const int failure = scripted("cuInit"); failure != success) {
        return failure;
    }
    Fake& f = fake();
    const std::lock_guard lock{f.mutex};
    if (!f.stub) {
        auto made = fake_gpu::make_stub(upcie::gpu::stub::Manner::suballocated);
        if (!made) {
            return out_of_memory;
        }
        f.stub.emplace(std::move(*made));
    }
    f.initialized = true;
    return flags == 0 ? success : invalid_value;
}

FAKE_API int cuDriverGetVersion(int* version) {
#ifdef FAKE_CUDA_OLD
    *version = 9020;
#else
    *version = 13000;
#endif
    return scripted("cuDriverGetVersion");
}

FAKE_API int cuGetErrorName(int status, const char** name) {
    static const std::map<int, const char*> names{{success, "CUDA_SUCCESS"},
                                                  {invalid_value, "CUDA_ERROR_INVALID_VALUE"},
                                                  {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                  {not_initialized, "CUDA_ERROR_NOT_INITIALIZED"},
                                                  {100, "CUDA_ERROR_NO_DEVICE"},
                                                  {invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
                                                  {invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
                                                  {not_found, "CUDA_ERROR_NOT_FOUND"},
                                                  {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                  {not_permitted, "CUDA_ERROR_NOT_PERMITTED"},
                                                  {not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
                                                  {999, "CUDA_ERROR_UNKNOWN"}};
    const auto place = names.find(status);
    if (place == names.end()) {
        return invalid_value;
    }
    *name = place->second;
    return success;
}

namespace {
/// They share one memory, and differ in their contexts. UPCIE_FAKE_GPU_NONE: there is none; UPCIE_FAKE_GPU_TWO: two.
int devices() {
    return fake_gpu::no_device_wanted() ? 0 : std::getenv("UPCIE_FAKE_GPU_TWO") != nullptr ? 2 : 1;
}
} // namespace

FAKE_API int cuDeviceGetCount(int* count) {
    *count = devices();
    return check("cuDeviceGetCount", false);
}
FAKE_API int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    const int status = check("cuDeviceGet", false);
    return status != success ? status : ordinal >= 0 && ordinal < devices() ? success : invalid_device;
}
FAKE_API int cuDeviceGetName(char* name, int length, int) {
    std::strncpy(name, "Fake GPU of the tests", static_cast<std::size_t>(length));
    return check("cuDeviceGetName", false);
}
FAKE_API int cuDeviceGetPCIBusId(char* name, int length, int) {
    std::strncpy(name, "0000:FA:00.0", static_cast<std::size_t>(length));
    return check("cuDeviceGetPCIBusId", false);
}
FAKE_API int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
    *bytes = std::size_t{4} << 30;
    return check("cuDeviceTotalMem_v2", false);
}
FAKE_API int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 110 || attribute == 124 ? 1 : 0;
    return check("cuDeviceGetAttribute", false);
}

// ---- contexts

namespace {
int context_objects[2];

bool is_context(const void* context) {
    return context == &context_objects[0] || context == &context_objects[1];
}
} // namespace

FAKE_API int cuDevicePrimaryCtxRetain(void** context, int device) {
    const int status = check("cuDevicePrimaryCtxRetain", false);
    if (status == success) {
        *context = &context_objects[device];
        ++fake().retained;
    }
    return status;
}
FAKE_API int cuDevicePrimaryCtxRelease_v2(int) {
    --fake().retained;
    return success;
}
FAKE_API int cuCtxPushCurrent_v2(void* context) {
    const int status = check("cuCtxPushCurrent_v2", false);
    if (status == success && !is_context(context)) {
        return invalid_context;
    }
    contexts += status == success ? 1 : 0;
    return status;
}
FAKE_API int cuCtxPopCurrent_v2(void** context) {
    if (contexts == 0) {
        return invalid_context;
    }
    --contexts;
    *context = &context_objects[0]; // nobody looks which
    return success;
}
FAKE_API int cuCtxSynchronize() {
    return check("cuCtxSynchronize");
}

// ---- memory

FAKE_API int cuMemAlloc_v2(unsigned long long* address, std::size_t size) {
    CHECK("cuMemAlloc_v2")
    return allocate(address, size);
}
FAKE_API int cuMemFree_v2(unsigned long long address) {
    CHECK("cuMemFree_v2")
    fake().not_exported.erase(address);
    return stub().free(DevicePointer{address}) ? success : invalid_value;
}
FAKE_API int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* size, unsigned long long address) {
    CHECK("cuMemGetAddressRange_v2")
    const auto found = stub().allocation_of(DevicePointer{address});
    if (!found) {
        return not_found;
    }
    *base = found->base.value();
    *size = static_cast<std::size_t>(found->size.value());
    return success;
}
FAKE_API int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t size) {
    CHECK("cuMemcpyHtoD_v2")
    return copy(true, to, const_cast<void*>(from), size);
}
FAKE_API int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t size) {
    CHECK("cuMemcpyDtoH_v2")
    return copy(false, from, to, size);
}
FAKE_API int cuMemAllocManaged(unsigned long long* address, std::size_t size, unsigned) {
    CHECK("cuMemAllocManaged")
    const int status = allocate(address, size);
    if (status == success) {
        fake().not_exported[*address] = true;
    }
    return status;
}
FAKE_API int cuMemAllocHost_v2(void** host, std::size_t size) {
    CHECK("cuMemAllocHost_v2")
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return out_of_memory;
    }
    fake().host[memory] = size;
    *host = memory;
    return success;
}
FAKE_API int cuMemFreeHost(void* host) {
    CHECK("cuMemFreeHost")
    const auto place = fake().host.find(host);
    if (place == fake().host.end()) {
        return invalid_value;
    }
    ::munmap(host, place->second);
    fake().host.erase(place);
    return success;
}

// ---- MMIO

namespace {
/// Who may, by UPCIE_FAKE_GPU_PRIVILEGE: everybody (not set), the user 0 ("root", as was measured), or whoever has the
/// capability of that number.
bool may_register_mmio() {
    const char* const privilege = std::getenv("UPCIE_FAKE_GPU_PRIVILEGE");
    if (privilege == nullptr) {
        return true;
    }
    char* end = nullptr;
    const unsigned long capability = std::strtoul(privilege, &end, 10);
    if (end == privilege || *end != '\0' || capability > 63) {
        return ::geteuid() == 0;
    }
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    return ::syscall(SYS_capget, &header, data) == 0 && (data[capability / 32].effective >> capability % 32 & 1) != 0;
}
} // namespace

FAKE_API int cuMemHostRegister_v2(void* start, std::size_t size, unsigned flags) {
    CHECK("cuMemHostRegister_v2")
    // DEVICEMAP alone for ordinary memory, with IOMEMORY for MMIO: nothing else is asked by the flavour.
    const bool mmio = flags == 6;
    if ((flags != 2 && !mmio) || size == 0 || reinterpret_cast<std::uintptr_t>(start) % 4096 != 0) {
        return invalid_value;
    }
    if (mmio && !may_register_mmio()) {
        return not_permitted;
    }
    const auto made = stub().register_mmio(start, ByteCount{size});
    if (!made) {
        return invalid_value;
    }
    fake().registered.insert_or_assign(start, *made);
    return success;
}
FAKE_API int cuMemHostUnregister(void* start) {
    CHECK("cuMemHostUnregister")
    return fake().registered.erase(start) != 0 && stub().unregister_mmio(start) ? success : invalid_value;
}
FAKE_API int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* start, unsigned) {
    CHECK("cuMemHostGetDevicePointer_v2")
    const auto place = fake().registered.find(start);
    if (place == fake().registered.end()) {
        return invalid_value;
    }
    *address = place->second.value();
    return success;
}

// ---- kernels: those that the flavour brings

namespace {
int module_object;
std::map<std::string, int> function_objects{{"upcie_read_dwords", 0}, {"upcie_checksum", 0}};
} // namespace

// PTX is text; a fat binary begins with its magic (fatbinary_section.h).
FAKE_API int cuModuleLoadData(void** module, const void* image) {
    CHECK("cuModuleLoadData")
    std::uint32_t magic = 0;
    std::memcpy(&magic, image, sizeof magic);
    *module = &module_object;
    return magic == 0xba55ed50 ||
                   std::strstr(static_cast<const char*>(image), ".visible .entry upcie_read_dwords(") != nullptr
               ? success
               : invalid_value;
}
FAKE_API int cuModuleUnload(void* module) {
    CHECK("cuModuleUnload")
    return module == &module_object ? success : invalid_value;
}
FAKE_API int cuModuleGetFunction(void** function, void* module, const char* name) {
    CHECK("cuModuleGetFunction")
    const auto place = function_objects.find(name);
    if (module != &module_object || place == function_objects.end()) {
        return not_found;
    }
    *function = &place->second;
    return success;
}
FAKE_API int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                            void** parameters, void**) {
    CHECK("cuLaunchKernel")
    const DevicePointer from{*static_cast<std::uint64_t*>(parameters[0])};
    const auto count = *static_cast<std::uint64_t*>(parameters[1]);
    const DevicePointer to{*static_cast<std::uint64_t*>(parameters[2])};
    upcie::Result<std::uint64_t> value{0};
    if (function == &function_objects.at("upcie_read_dwords")) {
        value = stub().read_by_kernel(from);
    } else if (function == &function_objects.at("upcie_checksum")) {
        value = stub().checksum(from, ByteCount{count * 8});
    } else {
        return invalid_value;
    }
    if (!value) {
        return illegal_address;
    }
    return stub().copy_to_device(to, &*value, ByteCount{8}) ? success : illegal_address;
}

// ---- the other GPU

FAKE_API int cuDeviceCanAccessPeer(int* possible, int device, int peer) {
    *possible = device != peer ? 1 : 0;
    return check("cuDeviceCanAccessPeer", false);
}
FAKE_API int cuCtxEnablePeerAccess(void* context, unsigned flags) {
    CHECK("cuCtxEnablePeerAccess")
    static bool enabled = false;
    if (flags != 0 || !is_context(context)) {
        return invalid_value;
    }
    return std::exchange(enabled, true) ? 704 : success; // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
}
FAKE_API int cuMemcpyPeer(unsigned long long to, void*, unsigned long long from, void*, std::size_t size) {
    CHECK("cuMemcpyPeer")
    std::vector<std::byte> bytes(size);
    return stub().copy_to_host(bytes.data(), DevicePointer{from}, ByteCount{size}) &&
                   stub().copy_to_device(DevicePointer{to}, bytes.data(), ByteCount{size})
               ? success
               : invalid_value;
}

#ifndef FAKE_CUDA_OLD

FAKE_API int cuDeviceGetUuid_v2(unsigned char* uuid, int) {
    for (int i = 0; i < 16; ++i) {
        uuid[i] = static_cast<unsigned char>(0xf0 + i);
    }
    return check("cuDeviceGetUuid_v2", false);
}

FAKE_API int cuMemGetHandleForAddressRange(void* handle, unsigned long long start, std::size_t length, int type,
                                           unsigned long long flags) {
    CHECK("cuMemGetHandleForAddressRange")
    if (flags != 0 || type != 1) {
        return not_supported;
    }
    const auto found = stub().allocation_of(DevicePointer{start});
    if (fake().host.contains(reinterpret_cast<void*>(start)) ||
        (found && fake().not_exported.contains(found->base.value()))) {
        return invalid_value;
    }
    auto made = stub().export_range(DevicePointer{start}, ByteCount{length});
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

FAKE_API int cuMemAllocAsync(unsigned long long* address, std::size_t size, void*) {
    CHECK("cuMemAllocAsync")
    return allocate(address, size);
}
FAKE_API int cuMemFreeAsync(unsigned long long address, void*) {
    CHECK("cuMemFreeAsync")
    return stub().free(DevicePointer{address}) ? success : invalid_value;
}
FAKE_API int cuMemGetAllocationGranularity(std::size_t* granularity, const void*, int) {
    *granularity = std::size_t{2} << 20;
    return check("cuMemGetAllocationGranularity", false);
}
FAKE_API int cuMemCreate(unsigned long long* handle, std::size_t size, const void*, unsigned long long) {
    CHECK("cuMemCreate")
    if (size % (std::size_t{2} << 20) != 0) {
        return invalid_value;
    }
    const int status = allocate(handle, size); // the handle is the address of what is behind it
    if (status == success) {
        fake().vmm.insert_or_assign(*handle, DevicePointer{*handle});
        fake().last_made = *handle;
    }
    return status;
}
FAKE_API int cuMemRelease(unsigned long long handle) {
    CHECK("cuMemRelease")
    fake().vmm.erase(handle);
    return stub().free(DevicePointer{handle}) ? success : invalid_value;
}
namespace {
thread_local std::uint64_t reserved; ///< the stub has no addresses without memory: reserving answers the next handle's
}
FAKE_API int cuMemAddressReserve(unsigned long long* address, std::size_t, std::size_t, unsigned long long,
                                 unsigned long long) {
    CHECK("cuMemAddressReserve")
    if (fake().vmm.empty()) {
        return invalid_value;
    }
    reserved = fake().last_made;
    *address = reserved;
    return success;
}
FAKE_API int cuMemAddressFree(unsigned long long, std::size_t) {
    CHECK("cuMemAddressFree")
    return success;
}
FAKE_API int cuMemMap(unsigned long long address, std::size_t, std::size_t, unsigned long long handle,
                      unsigned long long) {
    CHECK("cuMemMap")
    return address == handle ? success : invalid_value;
}
FAKE_API int cuMemUnmap(unsigned long long, std::size_t) {
    CHECK("cuMemUnmap")
    return success;
}
FAKE_API int cuMemSetAccess(unsigned long long, std::size_t, const void*, std::size_t count) {
    CHECK("cuMemSetAccess")
    return count == 1 ? success : invalid_value;
}

// ---- memory of others: refused as measured, unless a test wants it taken (upcie_fake_cuda_takes_external)

namespace {
bool takes_external = false;
struct External {
    int type;
    int fd;
    std::uint64_t size;
};
std::map<void*, External>& externals() {
    static auto* const all = new std::map<void*, External>; // one whose release a test has fail stays in it
    return *all;
}
} // namespace

FAKE_API void upcie_fake_cuda_takes_external(int takes) {
    takes_external = takes != 0;
}
FAKE_API int cuImportExternalMemory(void** memory, const upcie::gpu::cuda::ExternalDescriptor* descriptor) {
    CHECK("cuImportExternalMemory")
    if (!takes_external) {
        return descriptor->type == 9 ? not_supported : 999;
    }
    static std::uintptr_t last = 0;
    *memory = reinterpret_cast<void*>(++last);
    externals()[*memory] = {descriptor->type, descriptor->handle.fd, descriptor->size};
    return success;
}
FAKE_API int cuExternalMemoryGetMappedBuffer(unsigned long long* address, void* memory,
                                             const upcie::gpu::cuda::ExternalBuffer* buffer) {
    CHECK("cuExternalMemoryGetMappedBuffer")
    if (buffer->offset != 0 || buffer->size != externals().at(memory).size) {
        return invalid_value;
    }
    return allocate(address, buffer->size);
}
FAKE_API int cuDestroyExternalMemory(void* memory) {
    CHECK("cuDestroyExternalMemory")
    const auto place = externals().find(memory);
    if (place == externals().end()) {
        return invalid_value;
    }
    if (place->second.type == upcie::gpu::cuda::external_opaque_fd) {
        ::close(place->second.fd); // an opaque descriptor is the driver's own
    }
    externals().erase(place);
    return success;
}
FAKE_API int cuMemExportToShareableHandle(void* handle, unsigned long long memory, int type, unsigned long long flags) {
    CHECK("cuMemExportToShareableHandle")
    const int fd = ::memfd_create("fake-shareable", MFD_CLOEXEC);
    std::memcpy(handle, &fd, sizeof fd);
    if (fd < 0 || ::write(fd, &memory, sizeof memory) != sizeof memory) {
        return out_of_memory;
    }
    return type == 1 && flags == 0 ? success : invalid_value;
}
// Its own are known by what they begin with. They are imported as memory of their own, which is all that a test looks
// at.
FAKE_API int cuMemImportFromShareableHandle(unsigned long long* handle, void* descriptor, int type) {
    CHECK("cuMemImportFromShareableHandle")
    std::uint64_t exported = 0;
    const int fd = static_cast<int>(reinterpret_cast<std::uintptr_t>(descriptor));
    if (type != 1 || ::pread(fd, &exported, sizeof exported, 0) != sizeof exported || !fake().vmm.contains(exported)) {
        return 999;
    }
    const auto made = stub().allocate(ByteCount{std::uint64_t{2} << 20});
    if (!made) {
        return out_of_memory;
    }
    *handle = made->value();
    fake().vmm.insert_or_assign(*handle, DevicePointer{*handle});
    fake().last_made = *handle;
    return success;
}

#endif // FAKE_CUDA_OLD
#endif // FAKE_CUDA_EMPTY
