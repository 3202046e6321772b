// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <upcie/gpu/external.hpp>
#include <upcie/gpu/kinds.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::gpu::hip {

struct Options {
    int device = 0; ///< HIP's number of the GPU, from 0
    /// The runtime's library, by name or path; empty: what UPCIE_HIP_LIBRARY names, else the first that opens of
    /// libamdhip64.so.7, .so.6 and .so.5.
    std::string library;
    /// hipRTC's library, which compiles the kernel of read_by_kernel(), by name or path; empty: what
    /// UPCIE_HIPRTC_LIBRARY names, else libhiprtc of the runtime's major version, beside the runtime or by the loader's
    /// own search, else the runtime's library itself (up to HIP 6).
    std::string compiler;
};

/// What a GPU and its runtime say of themselves. What a runtime does not tell is empty or 0.
struct Identity {
    std::string name; ///< "AMD Radeon RX 7800 XT"
    std::string pci;  ///< "0000:03:00.0"
    std::array<std::uint8_t, 16> uuid{};
    std::string arch;               ///< "gfx1101", "gfx90a:sramecc+:xnack-"
    int driver_version = 0;         ///< hipDriverGetVersion: major * 10'000'000 + minor * 100'000 + patch
    int runtime_version = 0;        ///< hipRuntimeGetVersion, counted alike
    std::string kernel_driver;      ///< version of the amdgpu module; empty where it does not say (the kernel's own)
    ByteCount memory;               ///< of the device
    bool large_bar = false;         ///< hipDeviceAttributeIsLargeBar: the CPU reaches all of the memory
    std::vector<pci::BarInfo> bars; ///< as sysfs has them; none where it does not show the GPU
};

using gpu::ExportMapping;
using gpu::MemoryKind;

/// AMD's HIP runtime as a flavour (gpu::FlavourRuntime<Hip>), opened at run time: nothing of ROCm is linked.
///
/// Known are HIP 5, 6 and 7: their structures differ, and another major is refused. HIP's current device is the
/// calling thread's; a call sets it for its own time only, and whatever device the application chose stays. What HIP
/// refuses is also in that thread's hipGetLastError(), as HIP has it. A handle: copies share. Threads: any.
///
/// Errors of every function: those of gpu::Runtime; the runtime's own are ErrorDomain::vendor with HIP's number and
/// name (hip_runtime_api.h, hipError_t; of the functions hiprtc*, hiprtcResult).
class Hip {
  public:
    /// Errors: ENOENT (no such library), ENOSYS (a library without the functions that everything needs), ENOTSUP (a
    /// major version that is not known), ENODEV (no GPU of that number), and HIP's: hipErrorNoDevice without a GPU.
    [[nodiscard]] static Result<Hip> open(os::System& system, Options options = {});

    // ---- the flavour (gpu::Runtime has the contracts)
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] Result<DevicePointer> allocate(ByteCount size);
    Result<void> free(DevicePointer base);
    [[nodiscard]] Result<Allocation> allocation_of(DevicePointer pointer);
    /// 0 with HIP 5, whose structure for asking changed between its minor versions.
    [[nodiscard]] ByteCount reported_granularity() const;
    /// Errors also: ENOSYS before HIP 7.
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length);
    [[nodiscard]] Result<DevicePointer> register_mmio(void* start, ByteCount length);
    Result<void> unregister_mmio(void* start);
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length);
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length);
    /// By a kernel that hipRTC compiles for the GPU at the first use. Errors also: ENOSYS (no hipRTC; nothing is copied
    /// instead).
    [[nodiscard]] Result<std::uint64_t> read_by_kernel(DevicePointer pointer);

    /// Error: ENOTSUP: no kernel for it here; copy the bytes.
    [[nodiscard]] Result<std::uint64_t> checksum(DevicePointer start, ByteCount length);

    // ---- what only HIP has
    [[nodiscard]] const Identity& identity() const noexcept;
    /// Errors also: ENOSYS (pool before HIP 5.1; vmm before HIP 6).
    [[nodiscard]] Result<DevicePointer> allocate(MemoryKind kind, ByteCount size);
    Result<void> free(MemoryKind kind, DevicePointer base);
    /// Lets device code reach ordinary memory of this process, which the caller keeps where it is until
    /// unregister_host(). Answers the pointer for device code.
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length);
    Result<void> unregister_host(void* start);
    /// As export_range, with flags.
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length, ExportMapping mapping);
    /// The eight bytes at `pointer` as hipMemcpyDtoH tells them: weaker than read_by_kernel(), since it shows what a
    /// copy engine sees, not what device code does. Errors: EINVAL (not a multiple of 8), and HIP's.
    [[nodiscard]] Result<std::uint64_t> read_by_copy(DevicePointer pointer);

    /// Maps memory that a descriptor of someone else's stands for; the caller gives the pointer back by
    /// release_external(). `fd` stays the caller's: HIP owns an opaque descriptor that it imported, so it is given a
    /// duplicate, which is closed here where it refuses. `length` is in bytes; that of a shareable handle is rounded up
    /// to the granularity. Errors: EINVAL (no bytes), ENOTSUP (dma_buf_fd: HIP is not asked), ENOSYS (shareable_handle
    /// before HIP 6.1), EMFILE, and HIP's.
    [[nodiscard]] Result<DevicePointer> import_external(ExternalHandle kind, int fd, ByteCount length);
    /// Error: EINVAL (not what import_external() answered, or twice), and HIP's; the memory counts as gone then too.
    Result<void> release_external(DevicePointer base);

  private:
    struct Driver;
    explicit Hip(std::shared_ptr<Driver> driver) : driver_{std::move(driver)} {}
    std::shared_ptr<Driver> driver_;
};

} // namespace upcie::gpu::hip
