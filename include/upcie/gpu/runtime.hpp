// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::gpu {

/// An allocation as its runtime reports it. The backing behind it may be larger, and shared with others.
struct Allocation {
    DevicePointer base; ///< need not be aligned to anything
    ByteCount size;     ///< as reported: what was asked
    friend constexpr bool operator==(const Allocation&, const Allocation&) noexcept = default;
};

/// A range of device memory as a descriptor. What it describes is the exporter's choice: CUDA exports exactly the range
/// that was asked, ROCm the whole buffer object from its base (shared/facts/gpu-runtimes.md); only its scatter list
/// tells. A real dma-buf has a `file_offset` of 0; where the stub has no udmabuf, the descriptor is the memfd behind
/// it, and the exported bytes begin there.
struct Export {
    os::Fd fd;
    ByteCount file_offset;
    ByteCount size;      ///< of what is described, which may be more than was asked
    DevicePointer start; ///< of the range that was asked
};

/// A GPU runtime: CUDA, HIP, or the stub. A seam: virtual, cold path only.
///
/// Threads: any, unless the flavour says otherwise. Errors of every function: a vendor's own (ErrorDomain::vendor, with
/// its name), or a system error where this library refuses; ENOSYS, naming the version that has it, for a function that
/// the runtime found does not have.
class Runtime {
  public:
    Runtime() = default;
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    virtual ~Runtime() = default;

    /// For people: "stub (exact)", "CUDA 13.0 on NVIDIA H200".
    [[nodiscard]] virtual std::string describe() const = 0;

    /// Device memory of `size` bytes. The caller frees it. Errors: EINVAL (no bytes), ENOMEM.
    [[nodiscard]] virtual Result<DevicePointer> allocate(ByteCount size) = 0;
    /// Frees what allocate() answered. Registrations of it must be gone. Error: EINVAL (not the base of a live one).
    virtual Result<void> free(DevicePointer base) = 0;
    /// The allocation that a pointer lies in: at its base, inside, or at its last byte. Error: EFAULT (in none).
    [[nodiscard]] virtual Result<Allocation> allocation_of(DevicePointer pointer) = 0;

    /// The granularity that the runtime reports for allocations; it describes neither exports nor layout.
    [[nodiscard]] virtual ByteCount reported_granularity() const = 0;
    /// [start, start + length) as a dma-buf. Errors: EINVAL for what the runtime does not export (unaligned ranges,
    /// past the backing, across two backings), ENOTSUP (no exports at all).
    [[nodiscard]] virtual Result<Export> export_range(DevicePointer start, ByteCount length) = 0;

    /// Lets device code reach `length` bytes of mapped MMIO at `start`: a controller's doorbells. Answers the pointer
    /// for device code. Errors: EPERM (not privileged), EINVAL (refused by the runtime).
    [[nodiscard]] virtual Result<DevicePointer> register_mmio(void* start, ByteCount length) = 0;
    virtual Result<void> unregister_mmio(void* start) = 0;

    /// Copies. Errors: EFAULT (the range is not all in one allocation).
    virtual Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length) = 0;
    virtual Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length) = 0;
    /// The eight bytes at `pointer` as device code sees them, past any copy engine. Errors: EINVAL (not a multiple of
    /// 8), EFAULT.
    [[nodiscard]] virtual Result<std::uint64_t> read_by_kernel(DevicePointer pointer) = 0;
    /// gpu::checksum() of the bytes as device code sees them, without bringing them to the host. Errors: EINVAL (start
    /// or length is no multiple of 8), ENOTSUP (this flavour runs no kernel here: copy the bytes), EFAULT.
    [[nodiscard]] virtual Result<std::uint64_t> checksum(DevicePointer start, ByteCount length) = 0;
};

} // namespace upcie::gpu
