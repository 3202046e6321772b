// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/requests.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include <uapi/vfio.hpp>
#include <uapi/vfio_info_chain.hpp>

namespace upcie::vfio {

namespace {

constexpr const char* gone = "The device is gone or being removed.";
constexpr const char* not_bound = "A cdev answers nothing before VFIO_DEVICE_BIND_IOMMUFD, and a request may name only "
                                  "what VFIO_DEVICE_GET_INFO counts.";
// The kernel's own answers are some hundred bytes; a chain that claims more is not believed.
constexpr std::uint32_t largest_answer = 1U << 20;

const char* info_hint(int code) {
    switch (code) {
    case EINVAL:
        return not_bound;
    case ENODEV:
    case EIO:
        return gone;
    default:
        return "";
    }
}

/// Asks until the buffer is as large as the kernel wants it: argsz comes back larger than given when the capabilities
/// did not fit.
Result<std::vector<std::byte>> ask_region(os::System& system, int device, unsigned index, std::string_view subject) {
    std::uint32_t size = sizeof(uapi::VfioRegionInfo);
    for (int attempt = 0; attempt < 4; ++attempt) {
        std::vector<std::byte> answer(size);
        uapi::VfioRegionInfo info{};
        info.argsz = size;
        info.index = index;
        std::memcpy(answer.data(), &info, sizeof(info));
        if (system.ioctl(device, uapi::vfio_device_get_region_info, answer.data()) < 0) {
            const int code = errno;
            return fail(code, fmt::format("VFIO_DEVICE_GET_REGION_INFO of region {}", index), std::string{subject},
                        info_hint(code));
        }
        std::memcpy(&info, answer.data(), sizeof(info));
        if (info.argsz <= size) {
            return answer;
        }
        if (info.argsz > largest_answer) {
            break;
        }
        size = info.argsz;
    }
    return fail(EPROTO, fmt::format("VFIO_DEVICE_GET_REGION_INFO of region {}", index), std::string{subject},
                "The kernel keeps asking for a larger buffer.");
}

/// The sparse-mmap areas of the answer, if there is such a capability. False when the chain does not hold together.
bool read_sparse_areas(std::span<const std::byte> answer, std::uint32_t first,
                       std::vector<uapi::VfioRegionSparseMmapArea>& areas, bool& found) {
    bool intact = true;
    const bool walked = uapi::walk_info_chain(
        answer, sizeof(uapi::VfioRegionInfo), first, [&](const uapi::VfioInfoCapHeader& header, std::size_t offset) {
            if (header.id != uapi::vfio_region_info_cap_sparse_mmap || found) {
                return;
            }
            uapi::VfioRegionInfoCapSparseMmap capability{};
            found = true;
            intact = uapi::read_at(answer, offset, capability) &&
                     uapi::read_array(answer, offset + sizeof(capability), capability.nr_areas, areas);
        });
    return walked && intact;
}

} // namespace

Result<DeviceInfo> get_info(os::System& system, int device, std::string_view subject) {
    uapi::VfioDeviceInfo info{};
    info.argsz = sizeof(info);
    if (system.ioctl(device, uapi::vfio_device_get_info, &info) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_GET_INFO", std::string{subject}, info_hint(code));
    }
    DeviceInfo answer;
    answer.pci = (info.flags & uapi::vfio_device_flags_pci) != 0;
    answer.can_reset = (info.flags & uapi::vfio_device_flags_reset) != 0;
    answer.region_count = info.num_regions;
    answer.interrupt_index_count = info.num_irqs;
    return answer;
}

Result<Region> get_region(os::System& system, int device, unsigned index, std::string_view subject) {
    auto answer = ask_region(system, device, index, subject);
    if (!answer) {
        return tl::unexpected{std::move(answer.error())};
    }
    const auto malformed = [&](const char* what) {
        return fail(EPROTO, fmt::format("VFIO_DEVICE_GET_REGION_INFO of region {}", index), std::string{subject},
                    fmt::format("The kernel's answer does not hold together: {}.", what));
    };
    uapi::VfioRegionInfo info{};
    std::memcpy(&info, answer->data(), sizeof(info));

    Region region;
    region.info.index = index;
    region.info.size = ByteCount{info.size};
    region.info.readable = (info.flags & uapi::vfio_region_info_flag_read) != 0;
    region.info.writable = (info.flags & uapi::vfio_region_info_flag_write) != 0;
    region.file_offset = info.offset;
    if (info.offset + info.size < info.offset) {
        return malformed("offset and size overflow");
    }
    if ((info.flags & uapi::vfio_region_info_flag_mmap) == 0 || info.size == 0) {
        return region;
    }

    std::vector<uapi::VfioRegionSparseMmapArea> areas;
    bool sparse = false;
    // argsz is what the kernel filled, which may be less than was offered.
    const auto filled = std::span{*answer}.first(std::clamp<std::size_t>(info.argsz, sizeof(info), answer->size()));
    if ((info.flags & uapi::vfio_region_info_flag_caps) != 0 &&
        !read_sparse_areas(filled, info.cap_offset, areas, sparse)) {
        return malformed("its capability chain leaves the buffer or runs in a circle");
    }
    if (!sparse) {
        region.info.areas.push_back({ByteCount{0}, region.info.size});
        return region;
    }
    for (const auto& area : areas) {
        if (area.size > info.size || area.offset > info.size - area.size) {
            return malformed("a mappable area lies outside its region");
        }
        if (area.size > 0) {
            region.info.areas.push_back({ByteCount{area.offset}, ByteCount{area.size}});
        }
    }
    std::sort(region.info.areas.begin(), region.info.areas.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    return region;
}

Result<unsigned> get_interrupt_count(os::System& system, int device, InterruptKind kind, std::string_view subject) {
    uapi::VfioIrqInfo info{};
    info.argsz = sizeof(info);
    info.index = static_cast<std::uint32_t>(kind);
    if (system.ioctl(device, uapi::vfio_device_get_irq_info, &info) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_GET_IRQ_INFO", std::string{subject}, info_hint(code));
    }
    return (info.flags & uapi::vfio_irq_info_eventfd) != 0 ? info.count : 0U;
}

Result<void> set_interrupts(os::System& system, int device, InterruptKind kind, std::span<const int> eventfds,
                            std::string_view subject) {
    uapi::VfioIrqSet request{};
    std::vector<std::byte> message(sizeof(request) + eventfds.size_bytes());
    request.argsz = static_cast<std::uint32_t>(message.size());
    request.flags = uapi::vfio_irq_set_data_eventfd | uapi::vfio_irq_set_action_trigger;
    request.index = static_cast<std::uint32_t>(kind);
    request.count = static_cast<std::uint32_t>(eventfds.size());
    std::memcpy(message.data(), &request, sizeof(request));
    static_assert(sizeof(int) == sizeof(std::int32_t));
    if (!eventfds.empty()) {
        std::memcpy(message.data() + sizeof(request), eventfds.data(), eventfds.size_bytes());
    }
    const int result = system.ioctl(device, uapi::vfio_device_set_irqs, message.data());
    if (result < 0) {
        const int code = errno;
        const char* hint = "";
        if (code == EINVAL) {
            hint = "More vectors were asked for than the function has, or interrupts are enabled already.";
        } else if (code == EBADF) {
            hint = "One of the descriptors is no open eventfd.";
        } else if (code == ENOSPC) {
            hint = "The machine has no interrupt vectors left to give: ask for fewer.";
        }
        return fail(code, "VFIO_DEVICE_SET_IRQS", std::string{subject}, hint);
    }
    // vfio_msi_enable() answers how many vectors it could have had when that is fewer than asked, and enables none.
    if (result > 0) {
        return fail(ENOSPC, "VFIO_DEVICE_SET_IRQS", std::string{subject},
                    fmt::format("{} vectors were asked for, the machine has {} to give: ask for that many.",
                                eventfds.size(), result));
    }
    return {};
}

Result<void> clear_interrupts(os::System& system, int device, InterruptKind kind, std::string_view subject) {
    uapi::VfioIrqSet request{};
    request.argsz = sizeof(request);
    request.flags = uapi::vfio_irq_set_data_none | uapi::vfio_irq_set_action_trigger;
    request.index = static_cast<std::uint32_t>(kind);
    if (system.ioctl(device, uapi::vfio_device_set_irqs, &request) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_SET_IRQS (disable)", std::string{subject}, code == ENODEV ? gone : "");
    }
    return {};
}

Result<void> reset(os::System& system, int device, std::string_view subject) {
    if (system.ioctl(device, uapi::vfio_device_reset, nullptr) < 0) {
        const int code = errno;
        const char* hint = "";
        if (code == EINVAL || code == ENOTTY) {
            hint = "The function has no reset of its own; a hot reset of its bus may be possible.";
        } else if (code == EAGAIN) {
            hint = "The kernel holds the device's lock: try again.";
        } else if (code == ENODEV) {
            hint = gone;
        }
        return fail(code, "VFIO_DEVICE_RESET", std::string{subject}, hint);
    }
    return {};
}

Result<HotResetInfo> get_hot_reset_info(os::System& system, int device, std::string_view subject) {
    std::uint32_t room = 8;
    for (int attempt = 0; attempt < 4; ++attempt) {
        uapi::VfioPciHotResetInfo head{};
        std::vector<std::byte> answer(sizeof(head) + room * sizeof(uapi::VfioPciDependentDevice));
        head.argsz = static_cast<std::uint32_t>(answer.size());
        std::memcpy(answer.data(), &head, sizeof(head));
        const int result = system.ioctl(device, uapi::vfio_device_get_pci_hot_reset_info, answer.data());
        const int code = errno;
        std::memcpy(&head, answer.data(), sizeof(head));
        if (result < 0 && code == ENOSPC && head.count > room && head.count < largest_answer / 8) {
            room = head.count; // more functions may even have appeared: hence the loop
            continue;
        }
        if (result < 0) {
            return fail(code, "VFIO_DEVICE_GET_PCI_HOT_RESET_INFO", std::string{subject},
                        code == ENODEV ? "Neither the slot nor the bus of this function can be reset." : "");
        }
        std::vector<uapi::VfioPciDependentDevice> devices;
        if (!uapi::read_array(std::span<const std::byte>{answer}, sizeof(head), head.count, devices)) {
            return fail(EPROTO, "VFIO_DEVICE_GET_PCI_HOT_RESET_INFO", std::string{subject},
                        "The kernel counts more functions than it was given room for.");
        }
        HotResetInfo info;
        info.by_device_id = (head.flags & uapi::vfio_pci_hot_reset_flag_dev_id) != 0;
        info.all_owned = (head.flags & uapi::vfio_pci_hot_reset_flag_dev_id_owned) != 0;
        for (const auto& device_entry : devices) {
            AffectedFunction function;
            function.bdf = {device_entry.segment, device_entry.bus, static_cast<std::uint8_t>(device_entry.devfn >> 3),
                            static_cast<std::uint8_t>(device_entry.devfn & 7)};
            function.id = device_entry.group_or_device_id;
            function.owned = info.by_device_id && device_entry.group_or_device_id != uapi::vfio_pci_devid_not_owned;
            info.affected.push_back(function);
        }
        return info;
    }
    return fail(ENOSPC, "VFIO_DEVICE_GET_PCI_HOT_RESET_INFO", std::string{subject},
                "The number of functions on the bus keeps growing.");
}

Result<void> hot_reset(os::System& system, int device, std::span<const int> groups, std::string_view subject) {
    uapi::VfioPciHotReset request{};
    std::vector<std::byte> message(sizeof(request) + groups.size_bytes());
    request.argsz = static_cast<std::uint32_t>(message.size());
    request.count = static_cast<std::uint32_t>(groups.size());
    std::memcpy(message.data(), &request, sizeof(request));
    if (!groups.empty()) {
        std::memcpy(message.data() + sizeof(request), groups.data(), groups.size_bytes());
    }
    if (system.ioctl(device, uapi::vfio_device_pci_hot_reset, message.data()) < 0) {
        const int code = errno;
        const char* hint = "";
        if (code == EINVAL || code == EPERM) {
            hint =
                "Another function on the same bus or slot is not yours: VFIO_DEVICE_GET_PCI_HOT_RESET_INFO lists them. "
                "All must be bound to vfio and opened by you.";
        } else if (code == ENODEV) {
            hint = "Neither the slot nor the bus of this function can be reset.";
        } else if (code == ENOTTY) {
            hint =
                "The bus was reset, but the kernel did not see the link come up again in time (its log says so): the "
                "functions may work all the same.";
        }
        return fail(code, "VFIO_DEVICE_PCI_HOT_RESET", std::string{subject}, hint);
    }
    return {};
}

} // namespace upcie::vfio
