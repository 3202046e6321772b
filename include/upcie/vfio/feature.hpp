// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

/// Optional abilities of a vfio device (VFIO_DEVICE_FEATURE, linux/vfio.h). Threads: any.
namespace upcie::vfio {

/// Why a feature can be used or not. The kernel tells these apart only by errno.
enum class FeatureState : std::uint8_t {
    available,
    kernel_too_old,          ///< ENOTTY: the kernel does not know it, or was built without it
    not_supported_by_device, ///< EOPNOTSUPP, ENODEV: the kernel knows it, this device's driver or hardware does not
    refused,                 ///< anything else: known and supported, but not now, not so, or not for you
};
[[nodiscard]] std::string_view to_string(FeatureState state) noexcept;

struct FeatureAnswer {
    FeatureState state = FeatureState::refused;
    int code = 0; ///< errno; 0 when available
};

/// Feature numbers of linux/vfio.h that are asked for here.
enum class Feature : std::uint32_t { low_power_entry = 3, dma_buf = 11 };

/// Asks with VFIO_DEVICE_FEATURE_PROBE | GET (`get`) or | SET, which changes nothing.
[[nodiscard]] FeatureAnswer probe_feature(os::System& system, int device, Feature feature, bool get = true);

struct DmaRange {
    ByteCount offset;
    ByteCount length;
};
/// VFIO_DEVICE_FEATURE_DMA_BUF: slices of BAR `region` as one dma-buf, read-write. The dma-buf is revoked by a reset,
/// by memory decode going off, and when the device is closed. iommufd maps only one of a single range. Errors: ENOTTY
/// (kernel too old: Linux 6.19, CONFIG_VFIO_PCI_DMABUF), EOPNOTSUPP (not this device), ENODEV (no such BAR, or I/O
/// ports), EINVAL (empty, unaligned to pages, or outside the BAR), EMFILE.
[[nodiscard]] Result<os::Fd> export_dmabuf(os::System& system, int device, unsigned region,
                                           std::span<const DmaRange> ranges, std::string_view subject);

} // namespace upcie::vfio
