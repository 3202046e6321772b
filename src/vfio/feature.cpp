// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/feature.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include <uapi/vfio.hpp>

namespace upcie::vfio {

namespace {

const char* dmabuf_hint(int code) {
    switch (code) {
    case ENOTTY:
        return "This kernel cannot export a BAR: it needs Linux 6.19 and CONFIG_VFIO_PCI_DMABUF.";
    case EOPNOTSUPP:
        return "The vfio driver of this device, or the machine's peer-to-peer support, does not export BARs.";
    case ENODEV:
        return "There is no such memory BAR (I/O ports and the ROM cannot be exported).";
    case EINVAL:
        return "Every range must be whole pages, not empty, and inside the BAR.";
    case EMFILE:
        return "Too many open files: raise RLIMIT_NOFILE.";
    default:
        return "";
    }
}

FeatureState classify(int code) noexcept {
    switch (code) {
    case 0:
        return FeatureState::available;
    case ENOTTY:
        return FeatureState::kernel_too_old;
    case EOPNOTSUPP:
    case ENODEV:
        return FeatureState::not_supported_by_device;
    default:
        return FeatureState::refused;
    }
}

} // namespace

std::string_view to_string(FeatureState state) noexcept {
    switch (state) {
    case FeatureState::available:
        return "available";
    case FeatureState::kernel_too_old:
        return "kernel too old or built without it";
    case FeatureState::not_supported_by_device:
        return "not supported by this device";
    case FeatureState::refused:
        return "refused";
    }
    return "unknown";
}

FeatureAnswer probe_feature(os::System& system, int device, Feature feature, bool get) {
    uapi::VfioDeviceFeature request{};
    request.argsz = sizeof(request);
    request.flags = static_cast<std::uint32_t>(feature) | uapi::vfio_device_feature_probe |
                    (get ? uapi::vfio_device_feature_get : uapi::vfio_device_feature_set);
    const int code = system.ioctl(device, uapi::vfio_device_feature, &request) < 0 ? errno : 0;
    return {classify(code), code};
}

Result<os::Fd> export_dmabuf(os::System& system, int device, unsigned region, std::span<const DmaRange> ranges,
                             std::string_view subject) {
    // One message: the feature's head, the dma-buf's head, its ranges.
    uapi::VfioDeviceFeature head{};
    uapi::VfioDeviceFeatureDmaBuf body{};
    std::vector<std::byte> message(sizeof(head) + sizeof(body) + ranges.size() * sizeof(uapi::VfioRegionDmaRange));
    head.argsz = static_cast<std::uint32_t>(message.size());
    head.flags = uapi::vfio_device_feature_get | uapi::vfio_device_feature_dma_buf;
    body.region_index = region;
    body.open_flags = O_RDWR | O_CLOEXEC;
    body.nr_ranges = static_cast<std::uint32_t>(ranges.size());
    std::byte* place = message.data();
    const auto append = [&place](const auto& part) {
        std::memcpy(place, &part, sizeof(part));
        place += sizeof(part);
    };
    append(head);
    append(body);
    for (const auto& range : ranges) {
        append(uapi::VfioRegionDmaRange{range.offset.value(), range.length.value()});
    }
    const int number = system.ioctl(device, uapi::vfio_device_feature, message.data());
    if (number < 0) {
        const int code = errno;
        return fail(code, fmt::format("VFIO_DEVICE_FEATURE_DMA_BUF of region {}", region), std::string{subject},
                    dmabuf_hint(code));
    }
    return os::Fd{system, number};
}

} // namespace upcie::vfio
