// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

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
    device,      ///< memory of a GPU, which its runtime allocated
};

class DeviceExports;

/// Memory for I/O: zeroed memory of the host backed by a memfd, so that it can be mapped by address and by file and
/// passed to another process; or memory of a GPU, allocated here or the application's own.
///
/// Move-only, owns its memory, but for what was the application's; nothing is left behind when the process is killed.
/// Threads: one at a time for the object.
class Buffer {
  public:
    Buffer() noexcept = default;

    /// Makes a buffer of at least `size` bytes, rounded up to whole pages of its backing.
    /// Errors: EINVAL (size 0 or overflowing), ENOMEM (no memory; for hugepages the hint says how to reserve them),
    /// ENOSYS (no memfd), EMFILE.
    /// Sealed against resizing (F_SEAL_SHRINK, F_SEAL_GROW): nobody it is passed to can cut it away under a device.
    [[nodiscard]] static Result<Buffer> allocate(os::System& system, ByteCount size, Backing backing = Backing::plain);

    /// Allocates `size` bytes of the GPU behind `exports`, not zeroed. Registries export and map it by
    /// register_buffer(). Errors: Runtime::allocate's.
    [[nodiscard]] static Result<Buffer> allocate_on_device(std::shared_ptr<DeviceExports> exports, ByteCount size);
    /// [start, start + length) of a GPU's memory that the application has: a framework's tensor, at any address in its
    /// allocation. It stays the application's, who frees it after the last registration. Errors: EINVAL (no bytes, or
    /// it wraps), EFAULT (the runtime knows no allocation at its first or last byte).
    [[nodiscard]] static Result<Buffer> of_device_memory(std::shared_ptr<DeviceExports> exports, DevicePointer start,
                                                         ByteCount length);

    /// Where it is. Of device memory: the device's pointer, which is what Registry and commands take and the CPU must
    /// not follow.
    [[nodiscard]] std::byte* data() const noexcept {
        return device_ ? reinterpret_cast<std::byte*>(device_->start.value()) : mapping_.data();
    }
    /// What was asked, of host memory rounded up.
    [[nodiscard]] ByteCount size() const noexcept { return device_ ? device_->length : mapping_.size(); }
    /// For the CPU; empty where it cannot get there (device memory).
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {mapping_.data(), static_cast<std::size_t>(mapping_.size().value())};
    }
    /// -1 for device memory.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] Backing backing() const noexcept { return backing_; }
    [[nodiscard]] bool on_device() const noexcept { return device_ != nullptr; }
    /// Of device memory, else null.
    [[nodiscard]] DeviceExports* exports() const noexcept { return device_ ? device_->exports.get() : nullptr; }
    [[nodiscard]] explicit operator bool() const noexcept { return device_ || static_cast<bool>(mapping_); }

  private:
    struct DeviceMemory {
        DeviceMemory(std::shared_ptr<DeviceExports> whose, DevicePointer at, ByteCount bytes, bool own)
            : exports{std::move(whose)}, start{at}, length{bytes}, owned{own} {}
        DeviceMemory(const DeviceMemory&) = delete;
        DeviceMemory& operator=(const DeviceMemory&) = delete;
        ~DeviceMemory();
        std::shared_ptr<DeviceExports> exports;
        DevicePointer start;
        ByteCount length;
        bool owned;
    };

    os::Fd fd_;
    os::Mapping mapping_;
    Backing backing_ = Backing::plain;
    std::unique_ptr<const DeviceMemory> device_;
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
    /// Maps a buffer that exists already; it is lost only on success. Errors also: ENOTSUP (device memory, which only a
    /// Registry maps).
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
