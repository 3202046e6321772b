// SPDX-License-Identifier: BSD-3-Clause
// Compiled, never run: src/uapi/iommufd.hpp must agree with the real <linux/iommufd.h> of the kernel the VM tests boot.
#include <linux/iommufd.h>

#include <cstddef>

#include <uapi/iommufd.hpp>

namespace ours = upcie::uapi;

#define SAME_SIZE(own, kernel) static_assert(sizeof(ours::own) == sizeof(struct ::kernel))
#define SAME_MEMBER(own, own_member, kernel, member)                                                                   \
    static_assert(offsetof(ours::own, own_member) == offsetof(struct ::kernel, member) &&                              \
                  sizeof(ours::own::own_member) == sizeof(::kernel::member))
#define SAME_VALUE(own, kernel)                                                                                        \
    static_assert(static_cast<unsigned long long>(ours::own) == static_cast<unsigned long long>(kernel))

SAME_VALUE(iommu_destroy, IOMMU_DESTROY);
SAME_SIZE(IommuDestroy, iommu_destroy);
SAME_MEMBER(IommuDestroy, size, iommu_destroy, size);
SAME_MEMBER(IommuDestroy, id, iommu_destroy, id);

SAME_VALUE(iommu_ioas_alloc, IOMMU_IOAS_ALLOC);
SAME_SIZE(IommuIoasAlloc, iommu_ioas_alloc);
SAME_MEMBER(IommuIoasAlloc, size, iommu_ioas_alloc, size);
SAME_MEMBER(IommuIoasAlloc, flags, iommu_ioas_alloc, flags);
SAME_MEMBER(IommuIoasAlloc, out_ioas_id, iommu_ioas_alloc, out_ioas_id);

SAME_SIZE(IommuIovaRange, iommu_iova_range);
SAME_MEMBER(IommuIovaRange, start, iommu_iova_range, start);
SAME_MEMBER(IommuIovaRange, last, iommu_iova_range, last);

SAME_VALUE(iommu_ioas_allow_iovas, IOMMU_IOAS_ALLOW_IOVAS);
SAME_SIZE(IommuIoasAllowIovas, iommu_ioas_allow_iovas);
SAME_MEMBER(IommuIoasAllowIovas, size, iommu_ioas_allow_iovas, size);
SAME_MEMBER(IommuIoasAllowIovas, ioas_id, iommu_ioas_allow_iovas, ioas_id);
SAME_MEMBER(IommuIoasAllowIovas, num_iovas, iommu_ioas_allow_iovas, num_iovas);
SAME_MEMBER(IommuIoasAllowIovas, allowed_iovas, iommu_ioas_allow_iovas, allowed_iovas);

SAME_VALUE(iommu_ioas_iova_ranges, IOMMU_IOAS_IOVA_RANGES);
SAME_SIZE(IommuIoasIovaRanges, iommu_ioas_iova_ranges);
SAME_MEMBER(IommuIoasIovaRanges, size, iommu_ioas_iova_ranges, size);
SAME_MEMBER(IommuIoasIovaRanges, ioas_id, iommu_ioas_iova_ranges, ioas_id);
SAME_MEMBER(IommuIoasIovaRanges, num_iovas, iommu_ioas_iova_ranges, num_iovas);
SAME_MEMBER(IommuIoasIovaRanges, allowed_iovas, iommu_ioas_iova_ranges, allowed_iovas);
SAME_MEMBER(IommuIoasIovaRanges, out_iova_alignment, iommu_ioas_iova_ranges, out_iova_alignment);

SAME_VALUE(iommu_ioas_map_fixed_iova, IOMMU_IOAS_MAP_FIXED_IOVA);
SAME_VALUE(iommu_ioas_map_writeable, IOMMU_IOAS_MAP_WRITEABLE);
SAME_VALUE(iommu_ioas_map_readable, IOMMU_IOAS_MAP_READABLE);
SAME_VALUE(iommu_ioas_map, IOMMU_IOAS_MAP);
SAME_SIZE(IommuIoasMap, iommu_ioas_map);
SAME_MEMBER(IommuIoasMap, size, iommu_ioas_map, size);
SAME_MEMBER(IommuIoasMap, flags, iommu_ioas_map, flags);
SAME_MEMBER(IommuIoasMap, ioas_id, iommu_ioas_map, ioas_id);
SAME_MEMBER(IommuIoasMap, user_va, iommu_ioas_map, user_va);
SAME_MEMBER(IommuIoasMap, length, iommu_ioas_map, length);
SAME_MEMBER(IommuIoasMap, iova, iommu_ioas_map, iova);

SAME_VALUE(iommu_ioas_unmap, IOMMU_IOAS_UNMAP);
SAME_SIZE(IommuIoasUnmap, iommu_ioas_unmap);
SAME_MEMBER(IommuIoasUnmap, size, iommu_ioas_unmap, size);
SAME_MEMBER(IommuIoasUnmap, ioas_id, iommu_ioas_unmap, ioas_id);
SAME_MEMBER(IommuIoasUnmap, iova, iommu_ioas_unmap, iova);
SAME_MEMBER(IommuIoasUnmap, length, iommu_ioas_unmap, length);

SAME_VALUE(iommu_option_rlimit_mode, IOMMU_OPTION_RLIMIT_MODE);
SAME_VALUE(iommu_option_op_set, IOMMU_OPTION_OP_SET);
SAME_VALUE(iommu_option_op_get, IOMMU_OPTION_OP_GET);
SAME_VALUE(iommu_option, IOMMU_OPTION);
SAME_SIZE(IommuOption, iommu_option);
SAME_MEMBER(IommuOption, size, iommu_option, size);
SAME_MEMBER(IommuOption, option_id, iommu_option, option_id);
SAME_MEMBER(IommuOption, op, iommu_option, op);
SAME_MEMBER(IommuOption, object_id, iommu_option, object_id);
SAME_MEMBER(IommuOption, val64, iommu_option, val64);

SAME_VALUE(iommu_hw_info_type_none, IOMMU_HW_INFO_TYPE_NONE);
SAME_VALUE(iommu_hw_info_type_intel_vtd, IOMMU_HW_INFO_TYPE_INTEL_VTD);
SAME_VALUE(iommu_hw_info_type_arm_smmuv3, IOMMU_HW_INFO_TYPE_ARM_SMMUV3);
SAME_VALUE(iommu_hw_info_type_amd, IOMMU_HW_INFO_TYPE_AMD);
SAME_VALUE(iommu_get_hw_info, IOMMU_GET_HW_INFO);
SAME_SIZE(IommuHwInfo, iommu_hw_info);
SAME_MEMBER(IommuHwInfo, size, iommu_hw_info, size);
SAME_MEMBER(IommuHwInfo, flags, iommu_hw_info, flags);
SAME_MEMBER(IommuHwInfo, dev_id, iommu_hw_info, dev_id);
SAME_MEMBER(IommuHwInfo, data_len, iommu_hw_info, data_len);
SAME_MEMBER(IommuHwInfo, data_uptr, iommu_hw_info, data_uptr);
SAME_MEMBER(IommuHwInfo, out_data_type, iommu_hw_info, out_data_type);
SAME_MEMBER(IommuHwInfo, out_max_pasid_log2, iommu_hw_info, out_max_pasid_log2);
SAME_MEMBER(IommuHwInfo, out_capabilities, iommu_hw_info, out_capabilities);

SAME_VALUE(iommu_ioas_map_file, IOMMU_IOAS_MAP_FILE);
SAME_SIZE(IommuIoasMapFile, iommu_ioas_map_file);
SAME_MEMBER(IommuIoasMapFile, size, iommu_ioas_map_file, size);
SAME_MEMBER(IommuIoasMapFile, flags, iommu_ioas_map_file, flags);
SAME_MEMBER(IommuIoasMapFile, ioas_id, iommu_ioas_map_file, ioas_id);
SAME_MEMBER(IommuIoasMapFile, fd, iommu_ioas_map_file, fd);
SAME_MEMBER(IommuIoasMapFile, start, iommu_ioas_map_file, start);
SAME_MEMBER(IommuIoasMapFile, length, iommu_ioas_map_file, length);
SAME_MEMBER(IommuIoasMapFile, iova, iommu_ioas_map_file, iova);

SAME_VALUE(iommu_ioas_noiommu_get_pa, IOMMU_IOAS_NOIOMMU_GET_PA);
SAME_SIZE(IommuIoasNoiommuGetPa, iommu_ioas_noiommu_get_pa);
SAME_MEMBER(IommuIoasNoiommuGetPa, size, iommu_ioas_noiommu_get_pa, size);
SAME_MEMBER(IommuIoasNoiommuGetPa, flags, iommu_ioas_noiommu_get_pa, flags);
SAME_MEMBER(IommuIoasNoiommuGetPa, ioas_id, iommu_ioas_noiommu_get_pa, ioas_id);
SAME_MEMBER(IommuIoasNoiommuGetPa, iova, iommu_ioas_noiommu_get_pa, iova);
SAME_MEMBER(IommuIoasNoiommuGetPa, length, iommu_ioas_noiommu_get_pa, length);
SAME_MEMBER(IommuIoasNoiommuGetPa, out_phys, iommu_ioas_noiommu_get_pa, out_phys);
