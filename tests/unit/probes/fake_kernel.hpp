// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/os/fd.hpp>
#include <upcie/pci/enumeration.hpp>

#include "support/mock_system.hpp"

namespace upcie::test {

/// What the GPU probes meet in a kernel: an iommufd, a vfio device with one BAR, /dev/udmabuf. It answers as Linux 7.3
/// was seen to (shared/vm.md); a test changes what it wants otherwise. What is none of these goes to the real kernel.
class FakeKernel : public testing::NiceMock<MockSystemBase> {
  public:
    static constexpr std::uint64_t bar_bytes = 16384;

    FakeKernel();
    ~FakeKernel() override;

    /// Whose file MAP_FILE is asked to take.
    enum class Kind : std::uint8_t { gpu, memfd, bar, udmabuf };

    // ---- answers: 0, or the errno
    int open_iommufd = 0;
    int open_udmabuf = 0;
    int bind = 0;
    int export_bar = 0;
    int mmap_of_region = 0;
    int mmap_of_bar_dma_buf = EINVAL;
    int map_address = EFAULT;
    bool no_file_is_taken = false; ///< MAP_FILE of descriptor -1 succeeds
    std::map<Kind, int> map_file{
        {Kind::gpu, EOPNOTSUPP}, {Kind::memfd, 0}, {Kind::bar, 0}, {Kind::udmabuf, EOPNOTSUPP}};
    int map_part = 0; ///< of the GPU's, for less than all of it
    std::map<Kind, int> get_pa{{Kind::gpu, 0}, {Kind::memfd, 0}, {Kind::bar, 0}, {Kind::udmabuf, 0}};
    bool get_pa_stops_half_way = false;
    std::string exporter = "nv_dmabuf"; ///< as fdinfo names it; empty: descriptors are no dma-bufs
    std::uint64_t region_bytes = bar_bytes;

    /// The first eight bytes of the BAR, and of its dma-bufs from now on.
    void set_register(std::uint64_t value);
    void set_register_of_dma_bufs(std::uint64_t value) { in_dma_bufs_ = value; }

    // ---- what was asked
    std::vector<std::uint32_t> exported_regions;
    int writeable_maps_of_the_region = 0;
    int still_mapped() const { return static_cast<int>(mappings_.size()); }

    /// A drive at 0000:01:00.0 that this kernel offers as a cdev, with an IOMMU or without.
    [[nodiscard]] static pci::FunctionInfo function(bool noiommu = false);

  private:
    int answer(int fd, unsigned long request, void* argument);
    int take_file(void* argument);
    int tell_address(void* argument);
    int export_range(void* argument);
    [[nodiscard]] Kind kind_of(int fd);
    [[nodiscard]] int make_file(Kind kind, std::uint64_t length);

    os::Fd registers_;
    std::uint64_t in_bar_ = 0x0102030405060708;
    std::uint64_t in_dma_bufs_ = in_bar_;
    std::map<ino_t, Kind> files_; ///< what is not here is the GPU's
    struct Mapped {
        Kind kind;
        std::uint64_t length;
    };
    std::map<std::uint64_t, Mapped> mappings_; ///< by IOVA
    std::uint64_t next_iova_ = 0x100000;
};

} // namespace upcie::test
