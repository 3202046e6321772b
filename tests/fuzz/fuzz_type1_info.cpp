// SPDX-License-Identifier: BSD-3-Clause
// The answer of VFIO_IOMMU_GET_INFO: sizes, offsets and counts are the kernel's word, and are not trusted.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "iommu/type1_info.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto info = upcie::iommu::parse_type1_info(std::as_bytes(std::span{data, size}));
    // A range list that was accepted must be usable as it stands.
    if (info) {
        for (const auto& range : info->ranges) {
            if (range.first > range.last) {
                std::abort();
            }
        }
    }
    return 0;
}
