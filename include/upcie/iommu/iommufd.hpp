// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/iommu/iova_allocator.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

/// Whom the kernel charges for pinned memory (IOMMU_OPTION_RLIMIT_MODE in linux/iommufd.h).
enum class RlimitMode : std::uint8_t {
    per_user = 0, ///< the user's sum over all its processes, against RLIMIT_MEMLOCK of the caller; the kernel's default
    per_process = 1, ///< the process's own pinned memory (VmPin)
};

/// What an IOAS can address now; narrows when a device is attached.
struct IoasRanges {
    std::vector<IovaRange> ranges; ///< ascending
    ByteCount alignment;           ///< every mapping starts and ends at a multiple of it
};

/// What the IOMMU in front of a bound device is (IOMMU_GET_HW_INFO).
struct HardwareInfo {
    std::uint32_t type = 0;         ///< enum iommu_hw_info_type: 0 none told, 1 Intel VT-d, 2 Arm SMMUv3, 4 AMD
    std::uint64_t capabilities = 0; ///< enum iommufd_hw_capabilities
    std::vector<std::byte> data;    ///< the type's own structure, registers of the IOMMU
};

/// An open /dev/iommu: makes IOASes and maps into them. One call here is one ioctl.
///
/// Held by shared_ptr: address spaces and devices keep it alive. Threads: any, the kernel locks.
class Iommufd {
  public:
    /// Opens /dev/iommu. Errors: ENOENT (no iommufd in this kernel), EACCES, ENODEV; each hint says what to do.
    [[nodiscard]] static Result<std::shared_ptr<Iommufd>> open(os::System& system);
    /// Takes over a descriptor of /dev/iommu that another process passed. Error: EBADF for an empty one.
    [[nodiscard]] static Result<std::shared_ptr<Iommufd>> adopt(os::System& system, os::Fd fd);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] os::System& system() const noexcept { return system_; }

    /// Makes an IOAS. Errors: ENOMEM; ENOTTY when the descriptor is none of /dev/iommu.
    [[nodiscard]] Result<std::uint32_t> allocate_ioas();
    /// Destroys an object. Errors: ENOENT (no such id), EBUSY (a device is attached to it).
    Result<void> destroy(std::uint32_t id);
    /// Errors: ENOENT (no IOAS of this id here).
    [[nodiscard]] Result<IoasRanges> iova_ranges(std::uint32_t ioas_id);
    /// Promises to map inside `ranges` alone, so that the kernel refuses to attach a device which cannot reach them and
    /// chooses IOVAs there. An empty list lifts the promise. Errors: ENOENT, EINVAL, EADDRINUSE (conflicts with what
    /// is reserved or mapped).
    Result<void> allow_iovas(std::uint32_t ioas_id, std::span<const IovaRange> ranges);

    /// Maps memory of this process; without `fixed` the kernel chooses the IOVA. All of it aligned to the IOAS's
    /// alignment. Errors: EINVAL (unaligned, outside the ranges), EEXIST (`fixed` is taken), ENOSPC, ENOMEM (memlock),
    /// EFAULT (not ordinary memory: a BAR, a mapped udmabuf), ENOENT (no such IOAS).
    [[nodiscard]] Result<Iova> map(std::uint32_t ioas_id, void* start, ByteCount length, Access access,
                                   std::optional<Iova> fixed = std::nullopt);
    /// Maps a part of a memfd, or of a dma-buf that the kernel accepts. Errors: as map; EBADF, ENODEV (a dma-buf
    /// revoked by its exporter), EOPNOTSUPP (a file of a kind that the kernel does not map), ENOTTY (Linux below 6.13).
    [[nodiscard]] Result<Iova> map_file(std::uint32_t ioas_id, int fd, ByteCount offset, ByteCount length,
                                        Access access, std::optional<Iova> fixed = std::nullopt);
    /// Unmaps whole mappings. Answers the bytes unmapped, never 0. Error: ENOENT (nothing mapped, or part of a
    /// mapping).
    Result<ByteCount> unmap(std::uint32_t ioas_id, Iova iova, ByteCount length);

    [[nodiscard]] Result<RlimitMode> rlimit_mode();
    /// Before the first object is made. Errors: EPERM (needs CAP_SYS_RESOURCE), EBUSY (there are objects already).
    Result<void> set_rlimit_mode(RlimitMode mode);

    /// `device_id` is what VFIO_DEVICE_BIND_IOMMUFD answered. Errors: ENOENT, EOPNOTSUPP.
    [[nodiscard]] Result<HardwareInfo> hardware_info(std::uint32_t device_id);

    /// Where the memory at `iova` really is, and how far it is contiguous, at most `length` bytes: for the IOAS of a
    /// no-IOMMU device alone (Linux 7.3). Errors: ENOENT (nothing mapped there), ENOTTY (kernel too old), EOPNOTSUPP,
    /// EPERM, EPROTO (an answer that cannot be: 0 bytes or more than asked).
    [[nodiscard]] Result<Extent> physical(std::uint32_t ioas_id, Iova iova, ByteCount length);

  private:
    Iommufd(os::System& system, os::Fd fd) noexcept : system_{system}, fd_{std::move(fd)} {}

    os::System& system_;
    os::Fd fd_;
};

/// Who destroys the IOAS.
enum class IoasOwnership : std::uint8_t {
    owned,    ///< this object, at its end
    borrowed, ///< another process, or the last close of the iommufd
};

/// An IOAS as an AddressSpace. Maps memory and files; addresses are IOVAs, chosen by the kernel or drawn from a window.
///
/// Attach the device first: until then the kernel pins nothing, so that even memory that is not there can be mapped,
/// and EFAULT, EINVAL and ENOMEM (memlock) come from the attach, where nobody knows which mapping is meant.
///
/// Threads: any.
class IoasAddressSpace final : public AddressSpace {
  public:
    /// Makes an IOAS and owns it. Errors: as Iommufd::allocate_ioas and iova_ranges.
    [[nodiscard]] static Result<std::shared_ptr<IoasAddressSpace>> create(std::shared_ptr<Iommufd> iommufd);
    /// Uses an IOAS that exists already: its id came along with the iommufd, a guess would be another's or a fresh one.
    /// With a `window`, addresses come from it alone: processes that share an IOAS then never meet.
    /// Errors: ENOENT (no IOAS of this id), ENOSPC (the window is outside the aperture).
    [[nodiscard]] static Result<std::shared_ptr<IoasAddressSpace>>
    adopt(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership = IoasOwnership::borrowed,
          std::optional<IovaRange> window = std::nullopt);
    ~IoasAddressSpace() override;

    [[nodiscard]] AddressSpaceKind kind() const noexcept override { return AddressSpaceKind::iommufd; }
    [[nodiscard]] std::string describe() const override;
    [[nodiscard]] bool translating() const noexcept override { return true; }
    [[nodiscard]] Result<std::vector<IovaRange>> iova_ranges() override;
    [[nodiscard]] ByteCount granule() const noexcept override { return granule_; }

    [[nodiscard]] std::uint32_t ioas_id() const noexcept { return ioas_id_; }
    [[nodiscard]] const std::shared_ptr<Iommufd>& iommufd() const noexcept { return iommufd_; }

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, Access access) override;
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, Access access) override;
    Result<void> do_unmap(std::uint64_t token, ByteCount length) override;

  private:
    IoasAddressSpace(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership,
                     ByteCount granule, std::optional<IovaAllocator> window);
    template <class Map>
    Result<Mapped> place(ByteCount length, Map&& map);

    std::shared_ptr<Iommufd> iommufd_;
    std::uint32_t ioas_id_;
    IoasOwnership ownership_;
    ByteCount granule_;
    std::mutex mutex_; // guards window_
    std::optional<IovaAllocator> window_;
};

/// The IOAS of a no-IOMMU vfio cdev: memory is pinned by the kernel, and its physical runs are asked of the kernel with
/// IOMMU_IOAS_NOIOMMU_GET_PA (Linux 7.3). The IOVAs inside are bookkeeping and never leave this class.
///
/// Threads: any.
class NoIommuIoasAddressSpace final : public AddressSpace {
  public:
    /// Makes an IOAS and owns it. GET_PA is tried at the first mapping: it needs one. Errors: as
    /// Iommufd::allocate_ioas.
    [[nodiscard]] static Result<std::shared_ptr<NoIommuIoasAddressSpace>> create(std::shared_ptr<Iommufd> iommufd);
    /// As IoasAddressSpace::adopt.
    [[nodiscard]] static Result<std::shared_ptr<NoIommuIoasAddressSpace>>
    adopt(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership = IoasOwnership::borrowed);
    ~NoIommuIoasAddressSpace() override;

    [[nodiscard]] AddressSpaceKind kind() const noexcept override { return AddressSpaceKind::noiommu_ioas; }
    [[nodiscard]] std::string describe() const override;
    [[nodiscard]] bool translating() const noexcept override { return false; }
    /// Empty: addresses are physical.
    [[nodiscard]] Result<std::vector<IovaRange>> iova_ranges() override { return std::vector<IovaRange>{}; }
    [[nodiscard]] ByteCount granule() const noexcept override { return granule_; }

    [[nodiscard]] std::uint32_t ioas_id() const noexcept { return ioas_id_; }
    [[nodiscard]] const std::shared_ptr<Iommufd>& iommufd() const noexcept { return iommufd_; }

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, Access access) override;
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, Access access) override;
    Result<void> do_unmap(std::uint64_t token, ByteCount length) override;

  private:
    NoIommuIoasAddressSpace(std::shared_ptr<Iommufd> iommufd, std::uint32_t ioas_id, IoasOwnership ownership,
                            ByteCount granule);
    Result<Mapped> resolve(Result<Iova> iova, ByteCount length);

    std::shared_ptr<Iommufd> iommufd_;
    std::uint32_t ioas_id_;
    IoasOwnership ownership_;
    ByteCount granule_;
};

} // namespace upcie::iommu
