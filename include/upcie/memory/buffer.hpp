// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::memory {

/// What a buffer is made of.
enum class Backing : std::uint8_t {
    plain,       ///< a memfd of ordinary pages
    hugepage_2m, ///< a memfd of 2 MiB pages (MFD_HUGETLB), taken from the kernel's reserved pool
};

/// Zeroed memory backed by a memfd, so that it can be mapped by address and by file and passed to another process.
///
/// Move-only, owns its memory; nothing is left behind when the process is killed. Threads: one at a time for the
/// object.
class Buffer {
  public:
    Buffer() noexcept = default;

    /// Makes a buffer of at least `size` bytes, rounded up to whole pages of its backing.
    /// Errors: EINVAL (size 0 or overflowing), ENOMEM (no memory; for hugepages the hint says how to reserve them),
    /// ENOSYS (no memfd), EMFILE.
    /// Sealed against resizing (F_SEAL_SHRINK, F_SEAL_GROW): nobody it is passed to can cut it away under a device.
    [[nodiscard]] static Result<Buffer> allocate(os::System& system, ByteCount size, Backing backing = Backing::plain);

    [[nodiscard]] std::byte* data() const noexcept { return mapping_.data(); }
    /// What was asked, rounded up.
    [[nodiscard]] ByteCount size() const noexcept { return mapping_.size(); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {mapping_.data(), static_cast<std::size_t>(mapping_.size().value())};
    }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] Backing backing() const noexcept { return backing_; }
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }

  private:
    os::Fd fd_;
    os::Mapping mapping_;
    Backing backing_ = Backing::plain;
};

/// A Buffer together with its mapping in one AddressSpace: queue and PRP-list memory, or data for one controller.
///
/// Move-only. The DMA mapping goes before the memory. Threads: as Buffer.
class DmaBuffer {
  public:
    DmaBuffer() noexcept = default;
    DmaBuffer(DmaBuffer&&) noexcept = default;
    DmaBuffer& operator=(DmaBuffer&& other) noexcept;
    ~DmaBuffer() = default;

    /// Allocates (hugepages where the address space needs them, else plain) and maps by file, or by address where the
    /// address space cannot map files. Errors: those of Buffer::allocate, AddressSpace::map_file and map_memory.
    [[nodiscard]] static Result<DmaBuffer> allocate(os::System& system,
                                                    const std::shared_ptr<iommu::AddressSpace>& space, ByteCount size);
    /// Maps a buffer that exists already; it is lost only on success.
    [[nodiscard]] static Result<DmaBuffer> map(Buffer&& buffer, const std::shared_ptr<iommu::AddressSpace>& space);

    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }
    [[nodiscard]] std::byte* data() const noexcept { return buffer_.data(); }
    [[nodiscard]] ByteCount size() const noexcept { return buffer_.size(); }
    [[nodiscard]] std::span<const iommu::Extent> extents() const noexcept { return mapping_.extents(); }
    /// True when the kernel was given the file, false when it was given the address (type1, iommufd before Linux 6.13).
    [[nodiscard]] bool mapped_by_file() const noexcept { return mapped_by_file_; }
    /// Device address and contiguous bytes from `offset` on. Error: EINVAL when `offset` is not inside.
    [[nodiscard]] Result<iommu::Extent> at(ByteCount offset) const;

  private:
    bool mapped_by_file_ = false;
    Buffer buffer_;
    iommu::DmaMapping mapping_; // declared last: destroyed first
};

} // namespace upcie::memory
