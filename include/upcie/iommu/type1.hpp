// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/iommu/iova_allocator.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

/// What VFIO_IOMMU_GET_INFO tells of a container whose IOMMU is set.
struct Type1Info {
    std::uint64_t page_sizes = 0;                    ///< a bit for every size
    std::vector<IovaRange> ranges;                   ///< ascending
    std::optional<std::uint32_t> available_mappings; ///< how many more mappings fit; none before Linux 5.10
};

/// A vfio container with the type1 IOMMU: the way before iommufd. Maps memory by address; the aperture is what the
/// kernel reports for the groups attached, IOVAs are drawn from it.
///
/// Nothing can be mapped before a group is attached: the kernel answers a bare EINVAL then, this class says why.
/// Threads: any.
class Type1Container final : public AddressSpace {
  public:
    /// Opens /dev/vfio/vfio and checks version and extension. Errors: ENOENT, EACCES, ENODEV (open), EPROTO (another
    /// API version), EOPNOTSUPP (the kernel has no type1 IOMMU: the hint names the module).
    [[nodiscard]] static Result<std::shared_ptr<Type1Container>> open(os::System& system);

    /// Puts a viable group (an open /dev/vfio/N) into this container; the first one also sets the IOMMU type. The
    /// group's descriptor stays the caller's. Errors: EINVAL (not viable, in another container, or a no-IOMMU group),
    /// EBUSY, EPERM (no safe interrupt remapping), ENODEV; those of reading the aperture.
    Result<void> attach_group(int group_fd);
    /// Takes a group out again, after its devices are closed. With the last one the kernel drops every mapping.
    /// Errors: EINVAL (not in this container), EBUSY (a device of it is open).
    Result<void> detach_group(int group_fd);

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    /// Asks the kernel now. Errors: EINVAL (no group is attached), EPROTO (an answer that does not hold together).
    [[nodiscard]] Result<Type1Info> info();

    [[nodiscard]] AddressSpaceKind kind() const noexcept override { return AddressSpaceKind::type1; }
    [[nodiscard]] std::string describe() const override { return "vfio container with type1"; }
    [[nodiscard]] bool translating() const noexcept override { return true; }
    [[nodiscard]] Result<std::vector<IovaRange>> iova_ranges() override;
    /// A page until the first group is attached, then what the IOMMU has, and a page at least.
    [[nodiscard]] ByteCount granule() const noexcept override;

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, Access access) override;
    /// EOPNOTSUPP always: type1 maps by address alone.
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, Access access) override;
    Result<void> do_unmap(std::uint64_t token, ByteCount length) override;

  private:
    Type1Container(os::System& system, os::Fd fd) noexcept;
    Result<Type1Info> read_info();
    Result<void> renew_allocator();

    os::System& system_;
    os::Fd fd_;
    mutable std::mutex mutex_; // guards what follows
    unsigned groups_ = 0;
    ByteCount granule_;
    std::optional<IovaAllocator> allocator_;
    // By a number of our own: an IOVA comes again after every group went and took its mappings along.
    std::map<std::uint64_t, std::pair<Iova, ByteCount>> live_;
    std::uint64_t next_token_ = 0;
};

} // namespace upcie::iommu
