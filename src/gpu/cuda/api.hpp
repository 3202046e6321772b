// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What this library uses of NVIDIA's driver API, in its own words, so that it builds without the toolkit. Names,
// numbers and layouts are those of cuda.h (CUDA 13.0); tests/unit/gpu/cuda_header_test.cpp holds them against that file
// where it is there.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/function_table.hpp"

namespace upcie::gpu::cuda {

using Status = int;                       ///< CUresult
using Device = int;                       ///< CUdevice
using DeviceAddress = unsigned long long; ///< CUdeviceptr
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using KernelFunction = struct FunctionTag*;
using Stream = struct StreamTag*;
using MemoryHandle = unsigned long long; ///< CUmemGenericAllocationHandle

constexpr Status success = 0;
constexpr Status invalid_value = 1;
constexpr Status out_of_memory = 2;
constexpr Status no_device = 100;
constexpr Status invalid_device = 101;
constexpr Status no_binary = 209;              ///< CUDA_ERROR_NO_BINARY_FOR_GPU
constexpr Status invalid_ptx = 218;            ///< CUDA_ERROR_INVALID_PTX
constexpr Status unsupported_ptx = 222;        ///< CUDA_ERROR_UNSUPPORTED_PTX_VERSION
constexpr Status peer_access_is_enabled = 704; ///< CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
constexpr Status not_permitted = 800;
constexpr Status not_supported = 801;

struct Uuid {
    unsigned char bytes[16];
};

namespace attribute {              // CUdevice_attribute
constexpr int rdma_with_vmm = 110; // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
constexpr int dma_buf = 124;       // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
} // namespace attribute

constexpr int range_handle_dma_buf = 1;          ///< CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr unsigned host_register_iomemory = 4;   ///< CU_MEMHOSTREGISTER_IOMEMORY
constexpr unsigned host_register_device_map = 2; ///< CU_MEMHOSTREGISTER_DEVICEMAP
constexpr unsigned attach_global = 1;            ///< CU_MEM_ATTACH_GLOBAL
constexpr int allocation_pinned = 1;             ///< CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int location_device = 1;               ///< CU_MEM_LOCATION_TYPE_DEVICE
constexpr int granularity_minimum = 0;           ///< CU_MEM_ALLOC_GRANULARITY_MINIMUM
constexpr int access_read_write = 3;             ///< CU_MEM_ACCESS_FLAGS_PROT_READWRITE

struct Location { ///< CUmemLocation
    int type = 0;
    int id = 0;
};

struct AllocationProperties { ///< CUmemAllocationProp
    int type = 0;
    int requested_handle_types = 0;
    Location location;
    void* win32_metadata = nullptr;
    struct {
        unsigned char compression = 0;
        unsigned char rdma_capable = 0;
        unsigned short usage = 0;
        unsigned char reserved[4]{};
    } flags;
};

struct AccessDescriptor { ///< CUmemAccessDesc
    Location location;
    int flags = 0;
};

constexpr int external_opaque_fd = 1;  ///< CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
constexpr int external_dma_buf_fd = 9; ///< CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD
constexpr int shareable_posix_fd = 1;  ///< CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
using ExternalMemory = struct ExternalTag*;

struct ExternalDescriptor { ///< CUDA_EXTERNAL_MEMORY_HANDLE_DESC
    int type = 0;
    union {
        int fd;
        struct {
            void* handle;
            const void* name;
        } win32;
    } handle{};
    unsigned long long size = 0;
    unsigned flags = 0;
    unsigned reserved[16]{};
};

struct ExternalBuffer { ///< CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    unsigned long long offset = 0;
    unsigned long long size = 0;
    unsigned flags = 0;
    unsigned reserved[16]{};
};

/// `since` counts as cuDriverGetVersion() does: 11070 is 11.7.
struct Api {
    std::vector<TableEntry*> all;

    TableFunction<Status(unsigned)> init{all, "cuInit", 2000};
    TableFunction<Status(int*)> driver_version{all, "cuDriverGetVersion", 2020};
    TableFunction<Status(Status, const char**)> error_name{all, "cuGetErrorName", 6000};
    TableFunction<Status(int*)> device_count{all, "cuDeviceGetCount", 2000};
    TableFunction<Status(Device*, int)> device_get{all, "cuDeviceGet", 2000};
    TableFunction<Status(char*, int, Device)> device_name{all, "cuDeviceGetName", 2000};
    TableFunction<Status(char*, int, Device)> device_pci{all, "cuDeviceGetPCIBusId", 4010};
    TableFunction<Status(Uuid*, Device)> device_uuid{all, "cuDeviceGetUuid_v2", 11040};
    TableFunction<Status(std::size_t*, Device)> device_memory{all, "cuDeviceTotalMem_v2", 3020};
    TableFunction<Status(int*, int, Device)> device_attribute{all, "cuDeviceGetAttribute", 2000};
    TableFunction<Status(Context*, Device)> context_retain{all, "cuDevicePrimaryCtxRetain", 7000};
    TableFunction<Status(Device)> context_release{all, "cuDevicePrimaryCtxRelease_v2", 11000};
    TableFunction<Status(Context)> context_push{all, "cuCtxPushCurrent_v2", 4000};
    TableFunction<Status(Context*)> context_pop{all, "cuCtxPopCurrent_v2", 4000};
    TableFunction<Status()> synchronize{all, "cuCtxSynchronize", 2000};

    TableFunction<Status(DeviceAddress*, std::size_t)> allocate{all, "cuMemAlloc_v2", 3020};
    TableFunction<Status(DeviceAddress)> free{all, "cuMemFree_v2", 3020};
    TableFunction<Status(DeviceAddress*, std::size_t*, DeviceAddress)> address_range{all, "cuMemGetAddressRange_v2",
                                                                                     3020};
    TableFunction<Status(void*, DeviceAddress, std::size_t, int, unsigned long long)> export_range{
        all, "cuMemGetHandleForAddressRange", 11070};
    TableFunction<Status(DeviceAddress, const void*, std::size_t)> copy_to_device{all, "cuMemcpyHtoD_v2", 3020};
    TableFunction<Status(void*, DeviceAddress, std::size_t)> copy_to_host{all, "cuMemcpyDtoH_v2", 3020};
    TableFunction<Status(void*, std::size_t, unsigned)> host_register{all, "cuMemHostRegister_v2", 6050};
    TableFunction<Status(void*)> host_unregister{all, "cuMemHostUnregister", 4000};
    TableFunction<Status(DeviceAddress*, void*, unsigned)> host_pointer{all, "cuMemHostGetDevicePointer_v2", 3020};

    TableFunction<Status(DeviceAddress*, std::size_t, Stream)> pool_allocate{all, "cuMemAllocAsync", 11020};
    TableFunction<Status(DeviceAddress, Stream)> pool_free{all, "cuMemFreeAsync", 11020};
    TableFunction<Status(DeviceAddress*, std::size_t, unsigned)> managed_allocate{all, "cuMemAllocManaged", 6000};
    TableFunction<Status(void**, std::size_t)> host_allocate{all, "cuMemAllocHost_v2", 3020};
    TableFunction<Status(void*)> host_free{all, "cuMemFreeHost", 2000};
    TableFunction<Status(std::size_t*, const AllocationProperties*, int)> granularity{
        all, "cuMemGetAllocationGranularity", 10020};
    TableFunction<Status(MemoryHandle*, std::size_t, const AllocationProperties*, unsigned long long)> vmm_create{
        all, "cuMemCreate", 10020};
    TableFunction<Status(MemoryHandle)> vmm_release{all, "cuMemRelease", 10020};
    TableFunction<Status(DeviceAddress*, std::size_t, std::size_t, DeviceAddress, unsigned long long)> vmm_reserve{
        all, "cuMemAddressReserve", 10020};
    TableFunction<Status(DeviceAddress, std::size_t)> vmm_unreserve{all, "cuMemAddressFree", 10020};
    TableFunction<Status(DeviceAddress, std::size_t, std::size_t, MemoryHandle, unsigned long long)> vmm_map{
        all, "cuMemMap", 10020};
    TableFunction<Status(DeviceAddress, std::size_t)> vmm_unmap{all, "cuMemUnmap", 10020};
    TableFunction<Status(DeviceAddress, std::size_t, const AccessDescriptor*, std::size_t)> vmm_access{
        all, "cuMemSetAccess", 10020};

    TableFunction<Status(ExternalMemory*, const ExternalDescriptor*)> external_import{all, "cuImportExternalMemory",
                                                                                      10000};
    TableFunction<Status(DeviceAddress*, ExternalMemory, const ExternalBuffer*)> external_map{
        all, "cuExternalMemoryGetMappedBuffer", 10000};
    TableFunction<Status(ExternalMemory)> external_release{all, "cuDestroyExternalMemory", 10000};
    TableFunction<Status(void*, MemoryHandle, int, unsigned long long)> vmm_export{all, "cuMemExportToShareableHandle",
                                                                                   10020};
    TableFunction<Status(MemoryHandle*, void*, int)> vmm_import{all, "cuMemImportFromShareableHandle", 10020};
    TableFunction<Status(int*, Device, Device)> peer_possible{all, "cuDeviceCanAccessPeer", 4000};
    TableFunction<Status(Context, unsigned)> peer_enable{all, "cuCtxEnablePeerAccess", 4000};
    TableFunction<Status(DeviceAddress, Context, DeviceAddress, Context, std::size_t)> peer_copy{all, "cuMemcpyPeer",
                                                                                                 4000};

    TableFunction<Status(Module*, const void*)> module_load{all, "cuModuleLoadData", 2000};
    TableFunction<Status(Module)> module_unload{all, "cuModuleUnload", 2000};
    TableFunction<Status(KernelFunction*, Module, const char*)> module_function{all, "cuModuleGetFunction", 2000};
    TableFunction<Status(KernelFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                         void**, void**)>
        launch{all, "cuLaunchKernel", 4000};
};

} // namespace upcie::gpu::cuda
