// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>

#include <uapi/iommufd.hpp>
#include <uapi/vfio.hpp>

namespace upcie::probes {

/// Bytes: the smallest page of the machines that these probes run on, and the kernel's unit of mapping there.
constexpr std::uint64_t page = 4096;

/// What a system call answered: its errno (0: success) and, on success, what it gave.
template <class T>
struct Answered {
    int error = 0;
    T value{};
    [[nodiscard]] bool ok() const noexcept { return error == 0; }
};

/// The kernel's requests one by one, with nothing forbidden and nothing repaired: a probe asks what the library's own
/// classes refuse to ask. No function here closes, retries or hides anything.
///
/// Threads: any.
class Requests {
  public:
    explicit Requests(os::System& system) noexcept : system_{system} {}
    [[nodiscard]] os::System& system() const noexcept { return system_; }

    [[nodiscard]] Answered<os::Fd> open(const std::string& path) const;

    // vfio device
    /// Value: the device's id in that iommufd.
    [[nodiscard]] Answered<std::uint32_t> bind(int device, int iommufd) const;
    [[nodiscard]] Answered<uapi::VfioDeviceInfo> device_info(int device) const;
    [[nodiscard]] Answered<uapi::VfioRegionInfo> region_info(int device, std::uint32_t index) const;
    [[nodiscard]] int attach(int device, std::uint32_t ioas) const;
    [[nodiscard]] int detach(int device) const;
    [[nodiscard]] int reset(int device) const;
    /// A dma-buf over `ranges` of a region; they are {offset, length} in bytes.
    [[nodiscard]] Answered<os::Fd> export_dmabuf(int device, std::uint32_t region,
                                                 const std::vector<uapi::VfioRegionDmaRange>& ranges) const;
    /// PCI command register: sets and clears bits. Value: what it was before.
    [[nodiscard]] Answered<std::uint16_t> change_command(int device, std::uint16_t set, std::uint16_t clear) const;

    // iommufd
    [[nodiscard]] Answered<std::uint32_t> ioas_alloc(int iommufd) const;
    [[nodiscard]] int destroy(int iommufd, std::uint32_t id) const;
    [[nodiscard]] Answered<uapi::IommuHwInfo> hw_info(int iommufd, std::uint32_t device_id) const;
    [[nodiscard]] Answered<std::vector<uapi::IommuIovaRange>> iova_ranges(int iommufd, std::uint32_t ioas) const;
    /// Value: the IOVA that the kernel chose.
    [[nodiscard]] Answered<std::uint64_t> map(int iommufd, std::uint32_t ioas, const void* address,
                                              std::uint64_t length) const;
    [[nodiscard]] Answered<std::uint64_t> map_at(int iommufd, std::uint32_t ioas, const void* address,
                                                 std::uint64_t length, std::uint64_t iova) const;
    [[nodiscard]] Answered<std::uint64_t> map_file(int iommufd, std::uint32_t ioas, int fd, std::uint64_t start,
                                                   std::uint64_t length) const;
    /// Value: bytes that were unmapped.
    [[nodiscard]] Answered<std::uint64_t> unmap(int iommufd, std::uint32_t ioas, std::uint64_t iova,
                                                std::uint64_t length) const;
    struct PhysicalRun {
        std::uint64_t address = 0;
        std::uint64_t length = 0;
    };
    [[nodiscard]] Answered<PhysicalRun> noiommu_pa(int iommufd, std::uint32_t ioas, std::uint64_t iova,
                                                   std::uint64_t length) const;
    /// IOMMU_OPTION_RLIMIT_MODE: 0 accounts per user, 1 per process.
    [[nodiscard]] int set_rlimit_mode(int iommufd, std::uint64_t mode) const;
    [[nodiscard]] Answered<std::uint64_t> rlimit_mode(int iommufd) const;

    // memory
    [[nodiscard]] Answered<os::Fd> memfd(const char* name, unsigned flags, std::uint64_t length) const;
    [[nodiscard]] Answered<os::Mapping> map_shared(int fd, std::uint64_t offset, std::uint64_t length) const;
    [[nodiscard]] Answered<os::Mapping> anonymous(std::uint64_t length) const;
    /// A dma-buf over a whole memfd.
    [[nodiscard]] Answered<os::Fd> udmabuf(int control, int memfd, std::uint64_t length) const;

  private:
    template <class T>
    [[nodiscard]] int ask(int fd, unsigned long request, T& argument) const;
    [[nodiscard]] Answered<std::uint64_t> option(int iommufd, std::uint16_t operation, std::uint64_t value) const;

    os::System& system_;
};

} // namespace upcie::probes
