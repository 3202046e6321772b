// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/extent.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

using upcie::Extent;

/// Addresses that an address space may use: first to last, both included (a range may end at 2^64-1).
struct IovaRange {
    Iova first;
    Iova last;
    friend constexpr bool operator==(const IovaRange&, const IovaRange&) noexcept = default;
};

/// What a device may do with mapped memory.
enum class Access : std::uint8_t { read = 1, write = 2, read_write = 3 };

/// How an address space comes by the addresses it hands out.
enum class AddressSpaceKind : std::uint8_t {
    iommufd,          ///< an IOAS of /dev/iommu, addresses are IOVAs
    type1,            ///< a vfio container, addresses are IOVAs
    noiommu_ioas,     ///< an IOAS of a no-IOMMU vfio cdev, addresses come from IOMMU_IOAS_NOIOMMU_GET_PA
    hugepage_pagemap, ///< hugepages and /proc/self/pagemap, addresses are physical
    simulated,        ///< the simulator's own
};
[[nodiscard]] std::string_view to_string(AddressSpaceKind kind) noexcept;

class AddressSpace;

/// Memory made reachable for the devices of one AddressSpace, for as long as this object lives.
///
/// Move-only. Holds its AddressSpace, so the order of destruction does not matter. Whoever drops it answers for no
/// device using it any more: nvme queues and the Registry do that for what they hold. Threads: one at a time; extents()
/// may be read by several.
class DmaMapping {
  public:
    DmaMapping() noexcept = default;
    DmaMapping(DmaMapping&&) noexcept = default;
    DmaMapping& operator=(DmaMapping&& other) noexcept;
    ~DmaMapping();

    /// Maximal runs in the order of the memory; together exactly length() bytes. One run where an IOMMU translates.
    [[nodiscard]] std::span<const Extent> extents() const noexcept { return extents_; }
    [[nodiscard]] ByteCount length() const noexcept { return length_; }
    [[nodiscard]] explicit operator bool() const noexcept { return space_ != nullptr; }

    /// Unmaps now and says how it went; the destructor does the same and can only swallow the answer.
    /// Error: ENOENT when the kernel says that nothing was mapped there, else what the kernel says.
    Result<void> unmap();

  private:
    friend class AddressSpace;
    std::shared_ptr<AddressSpace> space_;
    std::vector<Extent> extents_;
    ByteCount length_;
    std::uint64_t token_ = 0; ///< the address space's own name for the mapping (the IOVA, in most)
};

/// A set of mappings that one or more devices translate through. A seam: virtual, cold path only.
///
/// Made by its kind's factory and held by shared_ptr: devices, mappings and registries all keep it alive.
/// Threads: any; map and unmap lock.
class AddressSpace : public std::enable_shared_from_this<AddressSpace> {
  public:
    AddressSpace(const AddressSpace&) = delete;
    AddressSpace& operator=(const AddressSpace&) = delete;
    virtual ~AddressSpace() = default;

    [[nodiscard]] virtual AddressSpaceKind kind() const noexcept = 0;
    /// For people: "IOAS 3 of /dev/iommu".
    [[nodiscard]] virtual std::string describe() const = 0;
    /// True where addresses are IOVAs and a mapping is one run.
    [[nodiscard]] virtual bool translating() const noexcept = 0;
    /// True where only hugepage-backed memfd buffers can be mapped (hugepage_pagemap).
    [[nodiscard]] virtual bool needs_hugepages() const noexcept { return false; }
    /// What the kernel reports as usable; empty where addresses are physical.
    [[nodiscard]] virtual Result<std::vector<IovaRange>> iova_ranges() = 0;
    /// Smallest unit of mapping, a power of two: start, offset and length must be multiples of it.
    [[nodiscard]] virtual ByteCount granule() const noexcept = 0;

    /// Maps memory of this process. `start` and `length` are multiples of granule().
    /// Errors: EINVAL (unaligned, empty, or the sum overflows), EOPNOTSUPP (the kind cannot map by address, the hint
    /// says what can), ENOSPC (no room in the aperture), ENOMEM (memlock limit), EFAULT (not ordinary memory), EEXIST.
    [[nodiscard]] Result<DmaMapping> map_memory(void* start, ByteCount length, Access access = Access::read_write);
    /// Maps `length` bytes of a memfd or dma-buf from `offset`. The kernel holds the file: `fd` may be closed after.
    /// Errors: as map_memory, and EBADF, ENODEV (a revoked dma-buf), EOPNOTSUPP (the kernel refuses such a file).
    [[nodiscard]] Result<DmaMapping> map_file(int fd, ByteCount offset, ByteCount length,
                                              Access access = Access::read_write);

    /// Maps `length` bytes of a dma-buf of device memory from `offset`. Where an IOMMU translates, as map_file: the
    /// kernel finds the memory, and refuses most exporters' (EOPNOTSUPP: Linux takes vfio's alone). Where nothing
    /// translates, the addresses are those of `bus`, which says where an importer that holds the memory in its place
    /// found the bytes from `offset` on; whoever maps keeps that import for as long as the mapping lives. An empty
    /// `bus`: as map_file. Errors: as map_file, and ERANGE (`bus` describes fewer bytes).
    [[nodiscard]] Result<DmaMapping> map_dmabuf(int fd, ByteCount offset, ByteCount length,
                                                const dmabuf::ScatterList& bus, Access access = Access::read_write);

  protected:
    AddressSpace() = default;

    /// What a kind answers for a new mapping: its token and its runs in order (merged by the caller where they abut).
    struct Mapped {
        std::uint64_t token = 0;
        std::vector<Extent> extents;
    };
    virtual Result<Mapped> do_map_memory(void* start, ByteCount length, Access access) = 0;
    virtual Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, Access access) = 0;
    /// For map_dmabuf where nothing translates: makes `extents` reach the memory, if anything has to be done for that.
    virtual Result<Mapped> do_map_bus(int fd, ByteCount offset, std::vector<Extent> extents, Access access);
    virtual Result<void> do_unmap(std::uint64_t token, ByteCount length) = 0;

    /// The token of a mapping for which there is nothing to undo.
    static constexpr std::uint64_t nothing_to_unmap = ~std::uint64_t{0};

  private:
    friend class DmaMapping;
    Result<DmaMapping> adopt(Result<Mapped> mapped, ByteCount length);
    Result<void> check_range(const char* operation, std::uint64_t start, ByteCount length, std::uint64_t unit) const;
};

} // namespace upcie::iommu
