// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/gpu/external.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::gpu::stub {

/// How exports behave: what was measured of two vendors, and what their small allocations are like.
enum class Manner : std::uint8_t {
    exact,        ///< describes just the range asked, page-aligned, up to the end of the backing (CUDA)
    whole_object, ///< takes any range of an allocation and describes the whole backing from its base (ROCm)
    suballocated, ///< as exact; allocations below 1 MiB share a backing, and start at odd places in it (CUDA's small
                  ///< ones)
};
/// "exact", "whole-object", "suballocated"
[[nodiscard]] std::string_view to_string(Manner manner) noexcept;
/// Error: EINVAL, naming the three.
[[nodiscard]] Result<Manner> parse_manner(std::string_view text);

struct Options {
    Manner manner = Manner::exact;
    /// Bytes of the physical runs of a backing, in turn, the last one again and again; whole pages. None: one run.
    std::vector<ByteCount> runs;
    /// Bytes of a scatter list's segments at most: CUDA lists 64 KiB pieces of one run. 0: a segment a run.
    ByteCount segment{64 << 10};
    /// Allocations larger than this are made of several backings of this size, each an allocation by itself to
    /// allocation_of(), as memory mapped piece by piece is. Whole backing units. 0: never.
    ByteCount piece;
    bool exports_refused = false;
    /// Buffers that are exported move to system memory, as amdgpu's do for an importer without peer-to-peer.
    bool migrates = false;
    /// Real dma-bufs where this node can be opened; empty: descriptors of the memfds behind them.
    std::string udmabuf_node = "/dev/udmabuf";
    /// Of the device; it takes address space, not memory. What was freed is handed out again, at the same addresses.
    ByteCount memory{std::uint64_t{4} << 30};
};

/// A GPU made of host memory, to run everything that a GPU's memory is part of where there is none: device pointers
/// that the CPU cannot follow by mistake, backings larger than what was asked, bus addresses inside a BAR that does not
/// exist, and exports that behave as the manner says. A flavour (gpu::FlavourRuntime<Stub>).
///
/// A handle: copies share the device. Threads: any.
class Stub {
  public:
    static constexpr ByteCount backing_unit{2 << 20};
    static constexpr ByteCount page{4096};
    /// Where memory lies on the bus, and where buffers that migrated do: each stub of a process has parts of its own.
    static constexpr DmaAddress bar_base{0x6000'0000'0000};
    static constexpr DmaAddress ram_base{0x2000'0000'0000};

    /// Errors: EINVAL (options that contradict each other, or too much memory), ENOMEM (no address space), those of
    /// memfd_create.
    [[nodiscard]] static Result<Stub> create(os::System& system, Options options = {});

    // ---- the flavour (gpu::Runtime has the contracts)
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] Result<DevicePointer> allocate(ByteCount size);
    Result<void> free(DevicePointer base);
    [[nodiscard]] Result<Allocation> allocation_of(DevicePointer pointer);
    [[nodiscard]] ByteCount reported_granularity() const { return backing_unit; }
    [[nodiscard]] Result<Export> export_range(DevicePointer start, ByteCount length);
    [[nodiscard]] Result<DevicePointer> register_mmio(void* start, ByteCount length);
    Result<void> unregister_mmio(void* start);
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length);
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length);
    [[nodiscard]] Result<std::uint64_t> read_by_kernel(DevicePointer pointer);
    [[nodiscard]] Result<std::uint64_t> checksum(DevicePointer start, ByteCount length);

    /// Maps `length` bytes of memory that somebody else made and `fd` stands for, where the CPU may map it: this device
    /// is the CPU. Errors: ENOTSUP (another kind than a dma-buf), EINVAL, and those of mmap(2).
    [[nodiscard]] Result<DevicePointer> import_external(ExternalHandle kind, int fd, ByteCount length);
    /// Error: EINVAL (not what import_external() answered, or no longer).
    Result<void> release_external(DevicePointer base);

    // ---- what stands in for the kernel
    /// What an importer would see of an export. Errors: EINVAL (not an export of this device), ESTALE (revoked).
    [[nodiscard]] Result<dmabuf::ScatterList> scatter_list(const Export& exported);
    /// Takes the memory behind a pointer from whoever imported it, as a reset of the device does. What is exported of
    /// it from now on is ENODEV. Error: EFAULT (in no allocation).
    Result<void> revoke(DevicePointer pointer);
    /// True where exports are real dma-bufs.
    [[nodiscard]] bool real_dma_bufs() const;

  private:
    struct Device;
    explicit Stub(std::shared_ptr<Device> device) : device_{std::move(device)} {}
    std::shared_ptr<Device> device_;
};

} // namespace upcie::gpu::stub
