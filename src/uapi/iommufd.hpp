// SPDX-License-Identifier: BSD-3-Clause
// The part of <linux/iommufd.h> (Linux 7.3) that this library uses, declared anew: the build machine's header may be
// older or absent. tests/uapi/check_iommufd.cpp compares every size, offset and number with the VM kernel's own header.
#pragma once

#include <cstddef>
#include <cstdint>

#include <linux/ioctl.h>

namespace upcie::uapi {

/// Every iommufd request is an _IO(): the structure's size travels in its first member. A shorter structure than the
/// kernel's own is taken with zeros for the rest, so that growth of the kernel's structures does not matter here.
constexpr unsigned long iommufd_request(unsigned number) noexcept {
    return _IO(';', number);
}

struct IommuDestroy {
    std::uint32_t size;
    std::uint32_t id;
};
constexpr unsigned long iommu_destroy = iommufd_request(0x80);

struct IommuIoasAlloc {
    std::uint32_t size;
    std::uint32_t flags;
    std::uint32_t out_ioas_id;
};
constexpr unsigned long iommu_ioas_alloc = iommufd_request(0x81);

struct IommuIovaRange {
    std::uint64_t start;
    std::uint64_t last; ///< included
};

struct IommuIoasAllowIovas {
    std::uint32_t size;
    std::uint32_t ioas_id;
    std::uint32_t num_iovas;
    std::uint32_t reserved;
    std::uint64_t allowed_iovas; ///< IommuIovaRange*
};
constexpr unsigned long iommu_ioas_allow_iovas = iommufd_request(0x82);

struct IommuIoasIovaRanges {
    std::uint32_t size;
    std::uint32_t ioas_id;
    std::uint32_t num_iovas; ///< in: room in the array; out: how many there are
    std::uint32_t reserved;
    std::uint64_t allowed_iovas; ///< IommuIovaRange*
    std::uint64_t out_iova_alignment;
};
constexpr unsigned long iommu_ioas_iova_ranges = iommufd_request(0x84);

constexpr std::uint32_t iommu_ioas_map_fixed_iova = 1U << 0;
constexpr std::uint32_t iommu_ioas_map_writeable = 1U << 1;
constexpr std::uint32_t iommu_ioas_map_readable = 1U << 2;

struct IommuIoasMap {
    std::uint32_t size;
    std::uint32_t flags;
    std::uint32_t ioas_id;
    std::uint32_t reserved;
    std::uint64_t user_va;
    std::uint64_t length;
    std::uint64_t iova;
};
constexpr unsigned long iommu_ioas_map = iommufd_request(0x85);

struct IommuIoasUnmap {
    std::uint32_t size;
    std::uint32_t ioas_id;
    std::uint64_t iova;
    std::uint64_t length; ///< out: the bytes that were unmapped
};
constexpr unsigned long iommu_ioas_unmap = iommufd_request(0x86);

constexpr std::uint32_t iommu_option_rlimit_mode = 0;
constexpr std::uint16_t iommu_option_op_set = 0;
constexpr std::uint16_t iommu_option_op_get = 1;

struct IommuOption {
    std::uint32_t size;
    std::uint32_t option_id;
    std::uint16_t op;
    std::uint16_t reserved;
    std::uint32_t object_id;
    std::uint64_t val64;
};
constexpr unsigned long iommu_option = iommufd_request(0x87);

constexpr std::uint32_t iommu_hw_info_type_none = 0;
constexpr std::uint32_t iommu_hw_info_type_intel_vtd = 1;
constexpr std::uint32_t iommu_hw_info_type_arm_smmuv3 = 2;
constexpr std::uint32_t iommu_hw_info_type_amd = 4;

struct IommuHwInfo {
    std::uint32_t size;
    std::uint32_t flags;
    std::uint32_t dev_id;
    std::uint32_t data_len; ///< in: room at data_uptr; out: the length that the kernel has
    std::uint64_t data_uptr;
    std::uint32_t out_data_type;
    std::uint8_t out_max_pasid_log2;
    std::uint8_t reserved[3];
    std::uint64_t out_capabilities;
};
constexpr unsigned long iommu_get_hw_info = iommufd_request(0x8a);

/// Since Linux 6.13; vfio dma-bufs since 7.x.
struct IommuIoasMapFile {
    std::uint32_t size;
    std::uint32_t flags;
    std::uint32_t ioas_id;
    std::int32_t fd;
    std::uint64_t start;
    std::uint64_t length;
    std::uint64_t iova;
};
constexpr unsigned long iommu_ioas_map_file = iommufd_request(0x8f);

/// Since Linux 7.3, for the IOAS of a no-IOMMU vfio cdev only.
struct IommuIoasNoiommuGetPa {
    std::uint32_t size;
    std::uint32_t flags;
    std::uint32_t ioas_id;
    std::uint32_t reserved;
    std::uint64_t iova;
    std::uint64_t length; ///< in: bytes asked about, not 0; out: bytes contiguous from out_phys
    std::uint64_t out_phys;
};
constexpr unsigned long iommu_ioas_noiommu_get_pa = iommufd_request(0x95);

} // namespace upcie::uapi
