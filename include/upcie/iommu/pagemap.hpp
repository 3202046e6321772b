// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

/// Physical addresses of hugepages, read from /proc/self/pagemap: the way for uio_pci_generic, where nothing translates
/// and nothing pins. Good only where the device's DMA is not translated either (IOMMU off, or an identity group).
///
/// Only shared hugepages of 2 MiB or more are mapped: the kernel moves ordinary pages at will (compaction, NUMA
/// balancing, swapping), and a private hugepage is replaced by a copy when it is written after a fork. Even a hugepage
/// can be moved by memory offlining and by allocations from CMA: an IOMMU or IOMMU_IOAS_NOIOMMU_GET_PA is better where
/// there is one. map_memory: whoever owns the memory keeps it mapped for as long as the DmaMapping lives. Threads: any.
class PagemapAddressSpace final : public AddressSpace {
  public:
    /// Opens /proc/self/pagemap and finds out whether the kernel tells page frame numbers to this process.
    /// Errors: EPERM (it does not: CAP_SYS_ADMIN is missing), ENOENT (CONFIG_PROC_PAGE_MONITOR is off), EACCES.
    [[nodiscard]] static Result<std::shared_ptr<PagemapAddressSpace>> create(os::System& system);

    [[nodiscard]] AddressSpaceKind kind() const noexcept override { return AddressSpaceKind::hugepage_pagemap; }
    [[nodiscard]] std::string describe() const override {
        return "hugepages by /proc/self/pagemap (physical addresses)";
    }
    [[nodiscard]] bool translating() const noexcept override { return false; }
    [[nodiscard]] bool needs_hugepages() const noexcept override { return true; }
    /// Empty: addresses are physical.
    [[nodiscard]] Result<std::vector<IovaRange>> iova_ranges() override { return std::vector<IovaRange>{}; }
    /// 2 MiB.
    [[nodiscard]] ByteCount granule() const noexcept override;

  protected:
    /// Errors: EOPNOTSUPP (not shared hugepages; the hint says why and what instead), ENOMEM (no hugepage is free, or
    /// memlock), EFAULT (nothing is mapped there, or a page is not present), EPERM (PFN 0), EPROTO (a frame that cannot
    /// begin a hugepage), EIO (pagemap could not be read).
    Result<Mapped> do_map_memory(void* start, ByteCount length, Access access) override;
    /// Maps the file into this process for as long as the DmaMapping lives, then as do_map_memory.
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, Access access) override;
    Result<void> do_unmap(std::uint64_t token, ByteCount length) override;

  private:
    PagemapAddressSpace(os::System& system, os::Fd pagemap) noexcept : system_{system}, pagemap_{std::move(pagemap)} {}
    Result<std::vector<Extent>> look_up(std::uintptr_t start, ByteCount length);
    Result<std::uint64_t> frame_of(std::uintptr_t address);

    os::System& system_;
    os::Fd pagemap_;
    std::mutex mutex_;                          // guards what follows
    std::map<std::uint64_t, os::Mapping> held_; // by token; an empty Mapping where the memory is the caller's
    std::uint64_t next_token_ = 0;
};

} // namespace upcie::iommu
