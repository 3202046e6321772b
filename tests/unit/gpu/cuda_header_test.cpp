// SPDX-License-Identifier: BSD-3-Clause
// This library's declarations against NVIDIA's header, where a toolkit is installed: a compile-time test.
#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"

#include <cstddef>
#include <type_traits>

#include "gpu/cuda/api.hpp"

namespace upcie::gpu::cuda {

static_assert(success == CUDA_SUCCESS && invalid_value == CUDA_ERROR_INVALID_VALUE &&
              out_of_memory == CUDA_ERROR_OUT_OF_MEMORY && no_device == CUDA_ERROR_NO_DEVICE &&
              invalid_device == CUDA_ERROR_INVALID_DEVICE && not_permitted == CUDA_ERROR_NOT_PERMITTED &&
              not_supported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(no_binary == CUDA_ERROR_NO_BINARY_FOR_GPU && invalid_ptx == CUDA_ERROR_INVALID_PTX &&
              unsupported_ptx == CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
              peer_access_is_enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(external_opaque_fd == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
              external_dma_buf_fd == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD &&
              shareable_posix_fd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(sizeof(ExternalDescriptor) == sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) &&
              offsetof(ExternalDescriptor, handle) == offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle) &&
              offsetof(ExternalDescriptor, size) == offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) &&
              offsetof(ExternalDescriptor, flags) == offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags));
static_assert(sizeof(ExternalBuffer) == sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) &&
              offsetof(ExternalBuffer, size) == offsetof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size) &&
              offsetof(ExternalBuffer, flags) == offsetof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags));
static_assert(attribute::dma_buf == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED &&
              attribute::rdma_with_vmm == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(range_handle_dma_buf == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
              host_register_iomemory == CU_MEMHOSTREGISTER_IOMEMORY &&
              host_register_device_map == CU_MEMHOSTREGISTER_DEVICEMAP && attach_global == CU_MEM_ATTACH_GLOBAL);
static_assert(allocation_pinned == CU_MEM_ALLOCATION_TYPE_PINNED && location_device == CU_MEM_LOCATION_TYPE_DEVICE &&
              granularity_minimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
              access_read_write == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(sizeof(Location) == sizeof(CUmemLocation) && offsetof(Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) &&
              offsetof(AllocationProperties, requested_handle_types) ==
                  offsetof(CUmemAllocationProp, requestedHandleTypes) &&
              offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location) &&
              offsetof(AllocationProperties, flags.rdma_capable) ==
                  offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(AccessDescriptor) == sizeof(CUmemAccessDesc) &&
              offsetof(AccessDescriptor, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(DeviceAddress) == sizeof(CUdeviceptr) &&
              sizeof(MemoryHandle) == sizeof(CUmemGenericAllocationHandle) && sizeof(Status) == sizeof(CUresult));

} // namespace upcie::gpu::cuda
#endif
