// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace upcie::gpu {

/// Kinds of memory that a vendor's runtime has beside that of Runtime::allocate(). In brackets CUDA's and HIP's calls.
enum class MemoryKind : std::uint8_t {
    device,  ///< the ordinary one (cuMemAlloc, hipMalloc)
    pool,    ///< the device's default pool (cuMemAllocAsync, hipMallocAsync)
    vmm,     ///< made and mapped piece by piece (cuMemCreate, made capable of RDMA; hipMemCreate)
    managed, ///< moves between host and device (cuMemAllocManaged, hipMallocManaged)
    host,    ///< pinned memory of the host (cuMemAllocHost, hipHostMalloc)
};
/// "device", "pool", "vmm", "managed", "host"
[[nodiscard]] constexpr std::string_view to_string(MemoryKind kind) noexcept {
    switch (kind) {
    case MemoryKind::device:
        return "device";
    case MemoryKind::pool:
        return "pool";
    case MemoryKind::vmm:
        return "vmm";
    case MemoryKind::managed:
        return "managed";
    case MemoryKind::host:
        return "host";
    }
    return "unknown";
}

/// Where an export's addresses are to lie (CUmemRangeFlags of cuda.h, hipMemRangeFlags): `pcie` asks for a mapping
/// through PCIe where the GPU has another way too. Runtimes that do not know it refuse it.
enum class ExportMapping : std::uint64_t { automatic = 0, pcie = 1 };

} // namespace upcie::gpu
