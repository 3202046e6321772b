// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <upcie/gpu/external.hpp>
#include <upcie/gpu/kinds.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::gpu::cuda {

struct Options {
    int device = 0; ///< CUDA's number of the GPU, from 0
    /// The driver's library, by name or path; empty: what UPCIE_CUDA_LIBRARY names, else libcuda.so.1.
    std::string library;
    /// Kernels as shipped, in PTX, also where nvcc built others into this library.
    bool shipped_kernels = false;
};

/// What a GPU and its driver say of themselves. What a driver does not tell is empty or 0.
struct Identity {
    std::string name; ///< "NVIDIA H200"
    std::string pci;  ///< "0000:01:00.0"
    std::array<std::uint8_t, 16> uuid{};
    int driver_api = 0;             ///< of the driver, 1000 * major + 10 * minor
    std::string kernel_driver;      ///< version of the kernel module; empty where it does not say
    ByteCount memory;               ///< of the device
    bool dma_buf = false;           ///< CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
    bool vmm_rdma = false;          ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    std::vector<pci::BarInfo> bars; ///< as sysfs has them; none where it does not show the GPU
};

using gpu::ExportMapping;
using gpu::MemoryKind;

/// NVIDIA's driver API as a flavour (gpu::FlavourRuntime<Cuda>), opened at run time: nothing of CUDA is linked.
///
/// Keeps the device's primary context for as long as a copy of it lives, and makes it current for the time of a call
/// only: whatever context the application works in stays as it is. A handle: copies share. Threads: any.
///
/// Errors of every function: those of gpu::Runtime; the driver's own are ErrorDomain::vendor with CUDA's number and
/// name (cuda.h, CUresult).
class Cuda {
  public:
    /// Errors: ENOENT (no such library), ENODEV (the kernel module is not loaded: the library is not asked, since run
    /// by root it would create device nodes without one; or there is no GPU of that number), ENOSYS (a library without
    /// the functions that everything needs), and CUDA's.
    [[nodiscard]] static Result<Cuda> open(os::System& system, Options options = {});

    // ---- the flavour (gpu::Runtime has the contracts)
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] Result<DevicePointer> allocate(ByteCount size);
    Result<void> free(DevicePointer base);
    [[nodiscard]] Result<Allocation> allocation_of(DevicePointer pointer);
    [[nodiscard]] ByteCount reported_granularity() const;
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length);
    [[nodiscard]] Result<DevicePointer> register_mmio(void* start, ByteCount length);
    Result<void> unregister_mmio(void* start);
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length);
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length);
    [[nodiscard]] Result<std::uint64_t> read_by_kernel(DevicePointer pointer);
    [[nodiscard]] Result<std::uint64_t> checksum(DevicePointer start, ByteCount length);

    // ---- what only CUDA has
    [[nodiscard]] const Identity& identity() const noexcept;
    [[nodiscard]] Result<DevicePointer> allocate(MemoryKind kind, ByteCount size);
    Result<void> free(MemoryKind kind, DevicePointer base);
    /// As export_range, with flags. Errors also: ENOSYS before CUDA 11.7.
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length, ExportMapping mapping);

    /// Lets device code reach `length` bytes of this process's ordinary memory at `start`, which stay pinned until
    /// unregister_host(). Answers the pointer for device code. No privilege is needed. Error: EINVAL (no bytes).
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length);
    Result<void> unregister_host(void* start);

    /// A descriptor that stands for VMM memory in other processes: what import_external() takes as a shareable_handle.
    /// Errors also: EINVAL (not the base of live VMM memory of this object).
    [[nodiscard]] Result<os::Fd> export_shareable(DevicePointer base);
    /// Maps `length` bytes of memory that somebody else made and `fd` stands for; the descriptor stays the caller's.
    /// Errors also: EBADF. Which kinds a driver takes is for a probe to find out: on three machines, none of a dma-buf
    /// (upcie_probe_vfio_bar_import_cuda).
    [[nodiscard]] Result<DevicePointer> import_external(ExternalHandle kind, int fd, ByteCount length);
    /// Error: EINVAL (not what import_external() answered, or no longer).
    Result<void> release_external(DevicePointer base);

    /// Whether this GPU can reach the memory of `peer` directly.
    [[nodiscard]] Result<bool> can_reach(const Cuda& peer) const;
    /// Lets kernels on this GPU use pointers into the memory of `peer`. Done once for both objects' contexts; again is
    /// no error. Errors also: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED.
    Result<void> enable_peer_access(const Cuda& peer);
    /// From the memory of `peer` to this GPU's, directly or through the host as the driver sees fit.
    Result<void> copy_from_peer(DevicePointer to, const Cuda& peer, DevicePointer from, ByteCount length);
    /// What the kernels of this library run as here: "PTX 6.4", or "built by nvcc 13.0". Loads them.
    [[nodiscard]] Result<std::string> kernels();

  private:
    struct Driver;
    explicit Cuda(std::shared_ptr<Driver> driver) : driver_{std::move(driver)} {}
    std::shared_ptr<Driver> driver_;
};

} // namespace upcie::gpu::cuda
