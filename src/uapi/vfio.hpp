// SPDX-License-Identifier: BSD-3-Clause
// The part of <linux/vfio.h> (Linux 7.3) that this library uses, declared anew: the build machine's header may be
// older. tests/uapi/check_vfio.cpp compares every size, offset and number with the VM kernel's own header.
#pragma once

#include <cstddef>
#include <cstdint>

#include <linux/ioctl.h>

namespace upcie::uapi {

/// Every vfio request is an _IO(): the structure's size travels in `argsz`, not in the number.
constexpr unsigned long vfio_request(unsigned number) noexcept {
    return _IO(';', 100 + number);
}

// ---- container (/dev/vfio/vfio) and type1 ----
constexpr int vfio_api_version = 0;
constexpr unsigned long vfio_type1v2_iommu = 3;
constexpr unsigned long vfio_noiommu_iommu = 8;

constexpr unsigned long vfio_get_api_version = vfio_request(0);
constexpr unsigned long vfio_check_extension = vfio_request(1);
constexpr unsigned long vfio_set_iommu = vfio_request(2);

struct VfioInfoCapHeader {
    std::uint16_t id;
    std::uint16_t version;
    std::uint32_t next; ///< from the start of the info structure; 0 ends the chain
};

struct VfioIommuType1Info {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint64_t iova_pgsizes;
    std::uint32_t cap_offset;
    std::uint32_t pad;
};
constexpr std::uint32_t vfio_iommu_info_pgsizes = 1U << 0;
constexpr std::uint32_t vfio_iommu_info_caps = 1U << 1;
constexpr unsigned long vfio_iommu_get_info = vfio_request(12);

struct VfioIovaRange {
    std::uint64_t start;
    std::uint64_t end; ///< the last address, included
};
struct VfioType1CapIovaRange {
    VfioInfoCapHeader header;
    std::uint32_t nr_iovas;
    std::uint32_t reserved;
    // VfioIovaRange[nr_iovas] follow
};
constexpr std::uint16_t vfio_type1_cap_iova_range = 1;

struct VfioType1CapDmaAvail {
    VfioInfoCapHeader header;
    std::uint32_t avail;
};
constexpr std::uint16_t vfio_type1_cap_dma_avail = 3;

struct VfioDmaMap {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint64_t vaddr;
    std::uint64_t iova;
    std::uint64_t size;
};
constexpr std::uint32_t vfio_dma_map_flag_read = 1U << 0;
constexpr std::uint32_t vfio_dma_map_flag_write = 1U << 1;
constexpr unsigned long vfio_iommu_map_dma = vfio_request(13);

struct VfioDmaUnmap {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint64_t iova;
    std::uint64_t size; ///< answered with the bytes that really were unmapped
};
constexpr unsigned long vfio_iommu_unmap_dma = vfio_request(14);

// ---- group (/dev/vfio/N) ----
struct VfioGroupStatus {
    std::uint32_t argsz;
    std::uint32_t flags;
};
constexpr std::uint32_t vfio_group_flags_viable = 1U << 0;
constexpr std::uint32_t vfio_group_flags_container_set = 1U << 1;
constexpr unsigned long vfio_group_get_status = vfio_request(3);
constexpr unsigned long vfio_group_set_container = vfio_request(4);
constexpr unsigned long vfio_group_unset_container = vfio_request(5);
constexpr unsigned long vfio_group_get_device_fd = vfio_request(6);

// ---- device ----
struct VfioDeviceInfo {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t num_regions;
    std::uint32_t num_irqs;
    std::uint32_t cap_offset;
    std::uint32_t pad;
};
constexpr std::uint32_t vfio_device_flags_reset = 1U << 0;
constexpr std::uint32_t vfio_device_flags_pci = 1U << 1;
constexpr unsigned long vfio_device_get_info = vfio_request(7);

struct VfioRegionInfo {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t index;
    std::uint32_t cap_offset;
    std::uint64_t size;
    std::uint64_t offset;
};
constexpr std::uint32_t vfio_region_info_flag_read = 1U << 0;
constexpr std::uint32_t vfio_region_info_flag_write = 1U << 1;
constexpr std::uint32_t vfio_region_info_flag_mmap = 1U << 2;
constexpr std::uint32_t vfio_region_info_flag_caps = 1U << 3;
constexpr unsigned long vfio_device_get_region_info = vfio_request(8);

struct VfioRegionSparseMmapArea {
    std::uint64_t offset;
    std::uint64_t size;
};
struct VfioRegionInfoCapSparseMmap {
    VfioInfoCapHeader header;
    std::uint32_t nr_areas;
    std::uint32_t reserved;
    // VfioRegionSparseMmapArea[nr_areas] follow
};
constexpr std::uint16_t vfio_region_info_cap_sparse_mmap = 1;

// vfio-pci's fixed region and interrupt indices.
constexpr std::uint32_t vfio_pci_rom_region_index = 6;
constexpr std::uint32_t vfio_pci_config_region_index = 7;
constexpr std::uint32_t vfio_pci_msi_irq_index = 1;
constexpr std::uint32_t vfio_pci_msix_irq_index = 2;

struct VfioIrqInfo {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t index;
    std::uint32_t count;
};
constexpr std::uint32_t vfio_irq_info_eventfd = 1U << 0;
constexpr std::uint32_t vfio_irq_info_noresize = 1U << 3;
constexpr unsigned long vfio_device_get_irq_info = vfio_request(9);

struct VfioIrqSet {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t index;
    std::uint32_t start;
    std::uint32_t count;
    // std::int32_t[count] follow when the data are eventfds
};
constexpr std::uint32_t vfio_irq_set_data_none = 1U << 0;
constexpr std::uint32_t vfio_irq_set_data_eventfd = 1U << 2;
constexpr std::uint32_t vfio_irq_set_action_trigger = 1U << 5;
constexpr unsigned long vfio_device_set_irqs = vfio_request(10);

constexpr unsigned long vfio_device_reset = vfio_request(11);

struct VfioPciDependentDevice {
    std::uint32_t group_or_device_id; ///< a group number, or a devid where the flag below says so
    std::uint16_t segment;
    std::uint8_t bus;
    std::uint8_t devfn;
};
constexpr std::uint32_t vfio_pci_devid_owned = 0;
constexpr std::uint32_t vfio_pci_devid_not_owned = 0xffffffff;
struct VfioPciHotResetInfo {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t count;
    // VfioPciDependentDevice[count] follow
};
constexpr std::uint32_t vfio_pci_hot_reset_flag_dev_id = 1U << 0;
constexpr std::uint32_t vfio_pci_hot_reset_flag_dev_id_owned = 1U << 1;
constexpr unsigned long vfio_device_get_pci_hot_reset_info = vfio_request(12);

struct VfioPciHotReset {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t count;
    // std::int32_t group_fds[count] follow; none through a cdev
};
constexpr unsigned long vfio_device_pci_hot_reset = vfio_request(13);

struct VfioDeviceFeature {
    std::uint32_t argsz;
    std::uint32_t flags; ///< feature number and the method bits below
    // the feature's data follow
};
constexpr std::uint32_t vfio_device_feature_mask = 0xffff;
constexpr std::uint32_t vfio_device_feature_get = 1U << 16;
constexpr std::uint32_t vfio_device_feature_set = 1U << 17;
constexpr std::uint32_t vfio_device_feature_probe = 1U << 18;
constexpr unsigned long vfio_device_feature = vfio_request(17);

constexpr std::uint32_t vfio_device_feature_low_power_entry = 3;
constexpr std::uint32_t vfio_device_feature_dma_buf = 11;
struct VfioRegionDmaRange {
    std::uint64_t offset;
    std::uint64_t length;
};
struct VfioDeviceFeatureDmaBuf {
    std::uint32_t region_index;
    std::uint32_t open_flags;
    std::uint32_t flags;
    std::uint32_t nr_ranges;
    // VfioRegionDmaRange[nr_ranges] follow
};

struct VfioDeviceBindIommufd {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::int32_t iommufd;
    std::uint32_t out_devid;
    std::uint64_t token_uuid_ptr;
};
/// The structure as it was before the token: what every kernel with the cdev accepts.
constexpr std::uint32_t vfio_device_bind_iommufd_v1_size = offsetof(VfioDeviceBindIommufd, token_uuid_ptr);
constexpr unsigned long vfio_device_bind_iommufd = vfio_request(18);

struct VfioDeviceAttachIommufdPt {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t pt_id;
    std::uint32_t pasid;
};
constexpr std::uint32_t vfio_device_attach_iommufd_pt_v1_size = offsetof(VfioDeviceAttachIommufdPt, pasid);
constexpr unsigned long vfio_device_attach_iommufd_pt = vfio_request(19);

struct VfioDeviceDetachIommufdPt {
    std::uint32_t argsz;
    std::uint32_t flags;
    std::uint32_t pasid;
};
constexpr std::uint32_t vfio_device_detach_iommufd_pt_v1_size = offsetof(VfioDeviceDetachIommufdPt, pasid);
constexpr unsigned long vfio_device_detach_iommufd_pt = vfio_request(20);

} // namespace upcie::uapi
