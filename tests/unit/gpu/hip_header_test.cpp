// SPDX-License-Identifier: BSD-3-Clause
// This library's declarations against AMD's header, where one is installed (Debian: libamdhip64-dev, of HIP 5; another:
// CPPFLAGS="-isystem /opt/rocm/include"): a compile-time test. What differs between majors is held against the header
// of its own major alone.
#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <hip/hiprtc.h>

#include <cstddef>
#include <type_traits>

#include "gpu/hip/api.hpp"
#include "gpu/hip/compiler.hpp"

namespace upcie::gpu::hip {

static_assert(success == hipSuccess && invalid_value == hipErrorInvalidValue && out_of_memory == hipErrorOutOfMemory &&
              invalid_device_pointer == hipErrorInvalidDevicePointer && no_device == hipErrorNoDevice &&
              invalid_device == hipErrorInvalidDevice && invalid_image == hipErrorInvalidImage &&
              not_found == hipErrorNotFound && illegal_address == hipErrorIllegalAddress &&
              not_supported == hipErrorNotSupported && unknown == hipErrorUnknown);
static_assert(compiler_success == HIPRTC_SUCCESS && compiler_invalid_option == HIPRTC_ERROR_INVALID_OPTION &&
              compiler_compilation == HIPRTC_ERROR_COMPILATION);
static_assert(host_register_mapped == hipHostRegisterMapped && host_register_io_memory == hipHostRegisterIoMemory &&
              host_allocate_default == hipHostMallocDefault && attach_global == hipMemAttachGlobal);
static_assert(allocation_pinned == hipMemAllocationTypePinned && location_device == hipMemLocationTypeDevice &&
              granularity_minimum == hipMemAllocationGranularityMinimum &&
              access_read_write == hipMemAccessFlagsProtReadWrite &&
              handle_posix_file_descriptor == hipMemHandleTypePosixFileDescriptor &&
              external_memory_opaque_fd == hipExternalMemoryHandleTypeOpaqueFd);
static_assert(sizeof(Location) == sizeof(hipMemLocation) && offsetof(Location, id) == offsetof(hipMemLocation, id));
static_assert(sizeof(AccessDescriptor) == sizeof(hipMemAccessDesc) &&
              offsetof(AccessDescriptor, flags) == offsetof(hipMemAccessDesc, flags));
static_assert(sizeof(Uuid) == sizeof(hipUUID) && sizeof(Status) == sizeof(hipError_t) &&
              sizeof(Device) == sizeof(hipDevice_t) && sizeof(CompilerStatus) == sizeof(hiprtcResult));
// What came later stands at the end: a runtime that does not know it does not look.
static_assert(sizeof(ExternalMemoryDescriptor) >= sizeof(hipExternalMemoryHandleDesc) &&
              offsetof(ExternalMemoryDescriptor, handle) == offsetof(hipExternalMemoryHandleDesc, handle) &&
              offsetof(ExternalMemoryDescriptor, size) == offsetof(hipExternalMemoryHandleDesc, size) &&
              offsetof(ExternalMemoryDescriptor, flags) == offsetof(hipExternalMemoryHandleDesc, flags));
static_assert(sizeof(ExternalBufferDescriptor) >= sizeof(hipExternalMemoryBufferDesc) &&
              offsetof(ExternalBufferDescriptor, offset) == offsetof(hipExternalMemoryBufferDesc, offset) &&
              offsetof(ExternalBufferDescriptor, size) == offsetof(hipExternalMemoryBufferDesc, size) &&
              offsetof(ExternalBufferDescriptor, flags) == offsetof(hipExternalMemoryBufferDesc, flags));

namespace {

constexpr bool properties_fit() {
    for (const Major& major : known_majors) {
        if (major.arch_name_offset + arch_name_length > major.properties_size ||
            major.properties_size > properties_room) {
            return false;
        }
        if (major.number == HIP_VERSION_MAJOR && (major.properties_size != sizeof(hipDeviceProp_t) ||
                                                  major.arch_name_offset != offsetof(hipDeviceProp_t, gcnArchName) ||
                                                  major.large_bar != hipDeviceAttributeIsLargeBar)) {
            return false;
        }
    }
    return true;
}
static_assert(properties_fit());
static_assert(sizeof(hipDeviceProp_t::gcnArchName) == arch_name_length);
static_assert(version_of(HIP_VERSION_MAJOR, HIP_VERSION_MINOR) + HIP_VERSION_PATCH == HIP_VERSION &&
              major_of(HIP_VERSION) == HIP_VERSION_MAJOR);

/// Whether a parameter of ours is passed as one of AMD's: pointers as pointers, numbers in as many bytes.
template <class Ours, class Theirs>
constexpr bool passed_alike = sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
template <class Ours, class Theirs>
constexpr bool called_alike = false;
template <class Answer, class... Parameters, class TheirAnswer, class... TheirParameters>
constexpr bool called_alike<TableFunction<Answer(Parameters...)>, TheirAnswer(TheirParameters...)> =
    passed_alike<Answer, TheirAnswer>&& [] {
        if constexpr (sizeof...(Parameters) == sizeof...(TheirParameters)) {
            return (passed_alike<Parameters, TheirParameters> && ...);
        } else {
            return false;
        }
    }();
#define CALLED_ALIKE(member, function) static_assert(called_alike<decltype(member), decltype(function)>, #function)

CALLED_ALIKE(Api::runtime_version, hipRuntimeGetVersion);
CALLED_ALIKE(Api::driver_version, hipDriverGetVersion);
CALLED_ALIKE(Api::error_name, hipGetErrorName);
CALLED_ALIKE(Api::device_count, hipGetDeviceCount);
CALLED_ALIKE(Api::current_device, hipGetDevice);
CALLED_ALIKE(Api::set_device, hipSetDevice);
CALLED_ALIKE(Api::synchronize, hipDeviceSynchronize);
CALLED_ALIKE(Api::device_get, hipDeviceGet);
CALLED_ALIKE(Api::device_name, hipDeviceGetName);
CALLED_ALIKE(Api::device_pci, hipDeviceGetPCIBusId);
CALLED_ALIKE(Api::device_uuid, hipDeviceGetUuid);
CALLED_ALIKE(Api::device_memory, hipDeviceTotalMem);
CALLED_ALIKE(Api::device_attribute, hipDeviceGetAttribute);
CALLED_ALIKE(Api::free, hipFree);
CALLED_ALIKE(Api::address_range, hipMemGetAddressRange);
CALLED_ALIKE(Api::copy_to_device, hipMemcpyHtoD);
CALLED_ALIKE(Api::copy_to_host, hipMemcpyDtoH);
CALLED_ALIKE(Api::host_register, hipHostRegister);
CALLED_ALIKE(Api::host_unregister, hipHostUnregister);
CALLED_ALIKE(Api::host_pointer, hipHostGetDevicePointer);
CALLED_ALIKE(Api::pool_free, hipFreeAsync);
CALLED_ALIKE(Api::host_free, hipHostFree);
CALLED_ALIKE(Api::granularity, hipMemGetAllocationGranularity);
CALLED_ALIKE(Api::vmm_create, hipMemCreate);
CALLED_ALIKE(Api::vmm_release, hipMemRelease);
CALLED_ALIKE(Api::vmm_reserve, hipMemAddressReserve);
CALLED_ALIKE(Api::vmm_unreserve, hipMemAddressFree);
CALLED_ALIKE(Api::vmm_map, hipMemMap);
CALLED_ALIKE(Api::vmm_unmap, hipMemUnmap);
CALLED_ALIKE(Api::vmm_access, hipMemSetAccess);
CALLED_ALIKE(Api::vmm_import, hipMemImportFromShareableHandle);
CALLED_ALIKE(Api::external_import, hipImportExternalMemory);
CALLED_ALIKE(Api::external_map, hipExternalMemoryGetMappedBuffer);
CALLED_ALIKE(Api::external_destroy, hipDestroyExternalMemory);
CALLED_ALIKE(Api::module_load, hipModuleLoadData);
CALLED_ALIKE(Api::module_unload, hipModuleUnload);
CALLED_ALIKE(Api::module_function, hipModuleGetFunction);
CALLED_ALIKE(Api::launch, hipModuleLaunchKernel);
CALLED_ALIKE(Compiler::create, hiprtcCreateProgram);
CALLED_ALIKE(Compiler::destroy, hiprtcDestroyProgram);
CALLED_ALIKE(Compiler::compile, hiprtcCompileProgram);
CALLED_ALIKE(Compiler::code_size, hiprtcGetCodeSize);
CALLED_ALIKE(Compiler::code, hiprtcGetCode);
CALLED_ALIKE(Compiler::log_size, hiprtcGetProgramLogSize);
CALLED_ALIKE(Compiler::log, hiprtcGetProgramLog);
CALLED_ALIKE(Compiler::error_name, hiprtcGetErrorString);

// These have templates of the same name beside them in C++.
template <class Member, class Theirs>
constexpr bool is_called_alike(Theirs*) {
    return called_alike<Member, Theirs>;
}
static_assert(is_called_alike<decltype(Api::allocate), hipError_t(void**, std::size_t)>(&hipMalloc));
static_assert(
    is_called_alike<decltype(Api::pool_allocate), hipError_t(void**, std::size_t, hipStream_t)>(&hipMallocAsync));
static_assert(
    is_called_alike<decltype(Api::managed_allocate), hipError_t(void**, std::size_t, unsigned)>(&hipMallocManaged));
static_assert(is_called_alike<decltype(Api::host_allocate), hipError_t(void**, std::size_t, unsigned)>(&hipHostMalloc));

#if HIP_VERSION_MAJOR == 5
CALLED_ALIKE(Api::properties_of_5, hipGetDeviceProperties);
#endif
#if HIP_VERSION_MAJOR >= 6
CALLED_ALIKE(Api::properties_of_6, hipGetDevicePropertiesR0600);
static_assert(sizeof(AllocationProperties) == sizeof(hipMemAllocationProp) &&
              offsetof(AllocationProperties, requested_handle_type) ==
                  offsetof(hipMemAllocationProp, requestedHandleType) &&
              offsetof(AllocationProperties, location) == offsetof(hipMemAllocationProp, location) &&
              offsetof(AllocationProperties, flags.rdma_capable) ==
                  offsetof(hipMemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(external_memory_last == hipExternalMemoryHandleTypeNvSciBuf);
#endif
#if HIP_VERSION_MAJOR >= 7
CALLED_ALIKE(Api::export_range, hipMemGetHandleForAddressRange);
static_assert(range_handle_dma_buf == hipMemRangeHandleTypeDmaBufFd);
#endif

} // namespace
} // namespace upcie::gpu::hip
#endif
