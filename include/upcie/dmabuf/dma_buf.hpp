// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::dmabuf {

/// What the kernel says of a dma-buf in /proc/self/fdinfo (Documentation/driver-api/dma-buf.rst).
struct Facts {
    ByteCount size;
    std::string exporter; ///< "udmabuf", "vfio_pci_core", "nv_dmabuf", "amdgpu"
    std::string name;     ///< as set by DMA_BUF_SET_NAME; mostly empty
};

/// An open dma-buf: memory that other drivers may be given by its descriptor. Where its bytes are, it does not say
/// itself: an importer does (ScatterList), or iommufd maps it (iommu::AddressSpace::map_file).
///
/// Move-only, owns the descriptor. Threads: one at a time.
class DmaBuf {
  public:
    DmaBuf() noexcept = default;

    /// Takes a descriptor over and asks the kernel about it. Errors: EINVAL (not a dma-buf), EBADF, and those of
    /// reading /proc/self/fdinfo (ENOENT where /proc is not mounted).
    [[nodiscard]] static Result<DmaBuf> adopt(os::System& system, os::Fd fd);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] ByteCount size() const noexcept { return facts_.size; }
    [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
    /// Gives the descriptor away.
    [[nodiscard]] os::Fd release() noexcept { return std::move(fd_); }

    /// What the CPU does with the memory between begin and end.
    enum class CpuAccess : std::uint8_t { read = 1, write = 2, read_write = 3 };
    /// DMA_BUF_IOCTL_SYNC (linux/dma-buf.h): before the CPU touches a mapping of it, and after. Waits for the devices
    /// that are using it; begins again when a signal came. Errors: what the exporter says.
    Result<void> begin_cpu_access(CpuAccess access);
    Result<void> end_cpu_access(CpuAccess access);

  private:
    Result<void> sync(std::uint64_t flags, const char* operation);

    os::System* system_ = nullptr;
    os::Fd fd_;
    Facts facts_;
};

} // namespace upcie::dmabuf
