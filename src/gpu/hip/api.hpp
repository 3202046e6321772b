// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What this library uses of AMD's HIP, in its own words, so that it builds without ROCm. Names, numbers and layouts are
// those of hip_runtime_api.h and hiprtc.h, of the majors 5, 6 and 7; tests/unit/gpu/hip_header_test.cpp holds them
// against those files where they are there.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/function_table.hpp"

namespace upcie::gpu::hip {

using Status = int; ///< hipError_t
using Device = int; ///< hipDevice_t
using Module = struct ModuleTag*;
using KernelFunction = struct FunctionTag*;
using Stream = struct StreamTag*;
using MemoryHandle = struct MemoryTag*; ///< hipMemGenericAllocationHandle_t
using ExternalMemory = void*;           ///< hipExternalMemory_t

constexpr Status success = 0;
constexpr Status invalid_value = 1;
constexpr Status out_of_memory = 2;
constexpr Status invalid_device_pointer = 17;
constexpr Status no_device = 100;
constexpr Status invalid_device = 101;
constexpr Status invalid_image = 200;
constexpr Status not_found = 500;
constexpr Status illegal_address = 700;
constexpr Status not_supported = 801;
constexpr Status unknown = 999;

constexpr int range_handle_dma_buf = 1;         ///< hipMemRangeHandleTypeDmaBufFd
constexpr unsigned host_register_mapped = 2;    ///< hipHostRegisterMapped
constexpr unsigned host_register_io_memory = 4; ///< hipHostRegisterIoMemory
constexpr unsigned host_allocate_default = 0;   ///< hipHostMallocDefault
constexpr unsigned attach_global = 1;           ///< hipMemAttachGlobal
constexpr int allocation_pinned = 1;            ///< hipMemAllocationTypePinned
constexpr int location_device = 1;              ///< hipMemLocationTypeDevice
constexpr int granularity_minimum = 0;          ///< hipMemAllocationGranularityMinimum
constexpr int access_read_write = 3;            ///< hipMemAccessFlagsProtReadWrite
constexpr int handle_posix_file_descriptor = 1; ///< hipMemHandleTypePosixFileDescriptor
constexpr int external_memory_opaque_fd = 1;    ///< hipExternalMemoryHandleTypeOpaqueFd
constexpr int external_memory_last = 8;         ///< hipExternalMemoryHandleTypeNvSciBuf: where the enumeration ends
constexpr std::size_t arch_name_length = 256;   ///< of gcnArchName, in each major

constexpr int version_of(int major, int minor) {
    return major * 10'000'000 + minor * 100'000;
}
constexpr int major_of(int version) {
    return version / 10'000'000;
}

/// From this version on, hipMemImportFromShareableHandle takes the descriptor's number in the place of a pointer to it
/// (github.com/ROCm/rocm-systems, pull request 759).
constexpr int handle_by_value_since = version_of(7, 1);

struct Uuid { ///< hipUUID
    char bytes[16];
};

/// What differs between majors.
struct Major {
    int number;
    bool properties_of_6;         ///< hipGetDevicePropertiesR0600 instead of hipGetDeviceProperties
    std::size_t properties_size;  ///< of its hipDeviceProp_t
    std::size_t arch_name_offset; ///< of gcnArchName in there
    int large_bar;                ///< hipDeviceAttributeIsLargeBar
};
constexpr Major known_majors[] = {
    {5, false, 792, 396, 10011},
    {6, true, 1472, 1160, 10011},
    {7, true, 1472, 1160, 10011},
};
/// Room for the largest hipDeviceProp_t, and for members that a later minor of a major may bring.
constexpr std::size_t properties_room = 4096;

struct Location { ///< hipMemLocation
    int type = 0;
    int id = 0;
};

struct AllocationProperties { ///< hipMemAllocationProp of 6 and 7; within 5 it had two layouts
    int type = 0;
    int requested_handle_type = 0;
    Location location;
    void* win32_metadata = nullptr;
    struct {
        unsigned char compression = 0;
        unsigned char rdma_capable = 0;
        unsigned short usage = 0;
    } flags;
};

struct AccessDescriptor { ///< hipMemAccessDesc
    Location location;
    int flags = 0;
};

struct ExternalMemoryDescriptor { ///< hipExternalMemoryHandleDesc; `reserved` came later, at the end
    int type = 0;
    union {
        int fd;
        void* both[2]; ///< a handle and a name, on Windows
    } handle{};
    unsigned long long size = 0;
    unsigned flags = 0;
    unsigned reserved[16]{};
};

struct ExternalBufferDescriptor { ///< hipExternalMemoryBufferDesc; `reserved` came later, at the end
    unsigned long long offset = 0;
    unsigned long long size = 0;
    unsigned flags = 0;
    unsigned reserved[16]{};
};

/// `since` counts as hipRuntimeGetVersion() does. A function is called from that version on alone, also where an older
/// library has one of its name: its structures are not declared here then.
struct Api {
    std::vector<TableEntry*> all;

    TableFunction<Status(int*)> runtime_version{all, "hipRuntimeGetVersion", version_of(4, 2)};
    TableFunction<Status(int*)> driver_version{all, "hipDriverGetVersion", version_of(4, 2)};
    TableFunction<const char*(Status)> error_name{all, "hipGetErrorName", version_of(4, 2)};
    TableFunction<Status(int*)> device_count{all, "hipGetDeviceCount", version_of(4, 2)};
    TableFunction<Status(int*)> current_device{all, "hipGetDevice", version_of(4, 2)};
    TableFunction<Status(int)> set_device{all, "hipSetDevice", version_of(4, 2)};
    TableFunction<Status()> synchronize{all, "hipDeviceSynchronize", version_of(4, 2)};
    TableFunction<Status(Device*, int)> device_get{all, "hipDeviceGet", version_of(4, 2)};
    TableFunction<Status(char*, int, Device)> device_name{all, "hipDeviceGetName", version_of(4, 2)};
    TableFunction<Status(char*, int, int)> device_pci{all, "hipDeviceGetPCIBusId", version_of(4, 2)};
    TableFunction<Status(Uuid*, Device)> device_uuid{all, "hipDeviceGetUuid", version_of(5, 1)};
    TableFunction<Status(std::size_t*, Device)> device_memory{all, "hipDeviceTotalMem", version_of(4, 2)};
    TableFunction<Status(int*, int, int)> device_attribute{all, "hipDeviceGetAttribute", version_of(4, 2)};
    TableFunction<Status(void*, int)> properties_of_5{all, "hipGetDeviceProperties", version_of(4, 2)};
    TableFunction<Status(void*, int)> properties_of_6{all, "hipGetDevicePropertiesR0600", version_of(6, 0)};

    TableFunction<Status(void**, std::size_t)> allocate{all, "hipMalloc", version_of(4, 2)};
    TableFunction<Status(void*)> free{all, "hipFree", version_of(4, 2)};
    TableFunction<Status(void**, std::size_t*, void*)> address_range{all, "hipMemGetAddressRange", version_of(4, 2)};
    TableFunction<Status(void*, void*, std::size_t, int, unsigned long long)> export_range{
        all, "hipMemGetHandleForAddressRange", version_of(7, 0)};
    TableFunction<Status(void*, const void*, std::size_t)> copy_to_device{all, "hipMemcpyHtoD", version_of(4, 2)};
    TableFunction<Status(void*, void*, std::size_t)> copy_to_host{all, "hipMemcpyDtoH", version_of(4, 2)};
    TableFunction<Status(void*, std::size_t, unsigned)> host_register{all, "hipHostRegister", version_of(4, 2)};
    TableFunction<Status(void*)> host_unregister{all, "hipHostUnregister", version_of(4, 2)};
    TableFunction<Status(void**, void*, unsigned)> host_pointer{all, "hipHostGetDevicePointer", version_of(4, 2)};

    TableFunction<Status(void**, std::size_t, Stream)> pool_allocate{all, "hipMallocAsync", version_of(5, 1)};
    TableFunction<Status(void*, Stream)> pool_free{all, "hipFreeAsync", version_of(5, 1)};
    TableFunction<Status(void**, std::size_t, unsigned)> managed_allocate{all, "hipMallocManaged", version_of(4, 2)};
    TableFunction<Status(void**, std::size_t, unsigned)> host_allocate{all, "hipHostMalloc", version_of(4, 2)};
    TableFunction<Status(void*)> host_free{all, "hipHostFree", version_of(4, 2)};
    TableFunction<Status(std::size_t*, const AllocationProperties*, int)> granularity{
        all, "hipMemGetAllocationGranularity", version_of(6, 0)};
    TableFunction<Status(MemoryHandle*, std::size_t, const AllocationProperties*, unsigned long long)> vmm_create{
        all, "hipMemCreate", version_of(6, 0)};
    TableFunction<Status(MemoryHandle)> vmm_release{all, "hipMemRelease", version_of(6, 0)};
    TableFunction<Status(void**, std::size_t, std::size_t, void*, unsigned long long)> vmm_reserve{
        all, "hipMemAddressReserve", version_of(6, 0)};
    TableFunction<Status(void*, std::size_t)> vmm_unreserve{all, "hipMemAddressFree", version_of(6, 0)};
    TableFunction<Status(void*, std::size_t, std::size_t, MemoryHandle, unsigned long long)> vmm_map{all, "hipMemMap",
                                                                                                     version_of(6, 0)};
    TableFunction<Status(void*, std::size_t)> vmm_unmap{all, "hipMemUnmap", version_of(6, 0)};
    TableFunction<Status(void*, std::size_t, const AccessDescriptor*, std::size_t)> vmm_access{all, "hipMemSetAccess",
                                                                                               version_of(6, 0)};
    TableFunction<Status(MemoryHandle*, void*, int)> vmm_import{all, "hipMemImportFromShareableHandle",
                                                                version_of(6, 1)};
    TableFunction<Status(ExternalMemory*, const ExternalMemoryDescriptor*)> external_import{
        all, "hipImportExternalMemory", version_of(4, 3)};
    TableFunction<Status(void**, ExternalMemory, const ExternalBufferDescriptor*)> external_map{
        all, "hipExternalMemoryGetMappedBuffer", version_of(4, 3)};
    TableFunction<Status(ExternalMemory)> external_destroy{all, "hipDestroyExternalMemory", version_of(4, 3)};

    TableFunction<Status(Module*, const void*)> module_load{all, "hipModuleLoadData", version_of(4, 2)};
    TableFunction<Status(Module)> module_unload{all, "hipModuleUnload", version_of(4, 2)};
    TableFunction<Status(KernelFunction*, Module, const char*)> module_function{all, "hipModuleGetFunction",
                                                                                version_of(4, 2)};
    TableFunction<Status(KernelFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                         void**, void**)>
        launch{all, "hipModuleLaunchKernel", version_of(4, 2)};
};

} // namespace upcie::gpu::hip
