// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <support/mock_system.hpp>
#include <uapi/iommufd.hpp>
#include <uapi/vfio.hpp>

namespace upcie::test {

/// A vfio-pci device of a few lines behind MockSystem: one BAR, MSI-X, config space; each request able to fail. Writes
/// down what is done to it, in order.
class FakeVfioDevice {
  public:
    static constexpr int fd = 800;
    static constexpr std::uint64_t config_offset = 7ULL << 40; // where vfio-pci has it

    FakeVfioDevice(MockSystem& system, const std::string& node) {
        using testing::_;
        ON_CALL(system, open(testing::StrEq(node), _, _)).WillByDefault(testing::Return(fd));
        ON_CALL(system, close(fd)).WillByDefault([this](int) {
            events.emplace_back("close device");
            return 0;
        });
        ON_CALL(system, ioctl(fd, _, _)).WillByDefault([this](int, unsigned long request, void* argument) {
            return answer(request, argument);
        });
        ON_CALL(system, pread(fd, _, _, _)).WillByDefault([this](int, void* data, std::size_t length, off_t offset) {
            std::memcpy(data, config.data() + (static_cast<std::uint64_t>(offset) - config_offset), length);
            return static_cast<ssize_t>(length);
        });
        ON_CALL(system, pwrite(fd, _, _, _))
            .WillByDefault([this](int, const void* data, std::size_t length, off_t offset) {
                std::memcpy(config.data() + (static_cast<std::uint64_t>(offset) - config_offset), data, length);
                events.emplace_back((config[4] & 4) != 0 ? "bus master on" : "bus master off");
                return static_cast<ssize_t>(length);
            });
        config[0] = 0x36;
        config[1] = 0x1b;
        config[2] = 0x10;
        config[9] = 0x02;
        config[10] = 0x08;
        config[11] = 0x01;
    }

    std::map<unsigned long, int> failures; ///< request -> errno, as long as it is there
    std::vector<std::string> events;
    std::array<std::uint8_t, 4096> config{};
    std::uint32_t msix_count = 4;
    std::uint32_t msi_count = 1;
    std::uint32_t region_flags = 7; ///< of BAR 0: read, write, mmap
    std::uint32_t hot_reset_devid = 0;
    std::uint32_t bound_to = 0;
    std::uint32_t attached_to = 0;

  private:
    template <class T>
    static T& as(void* argument) {
        return *static_cast<T*>(argument);
    }

    int answer(unsigned long request, void* argument) {
        if (const auto failure = failures.find(request); failure != failures.end()) {
            errno = failure->second;
            return -1;
        }
        switch (request) {
        case uapi::vfio_device_bind_iommufd:
            bound_to = static_cast<std::uint32_t>(as<uapi::VfioDeviceBindIommufd>(argument).iommufd);
            as<uapi::VfioDeviceBindIommufd>(argument).out_devid = 11;
            return 0;
        case uapi::vfio_device_attach_iommufd_pt:
            attached_to = as<uapi::VfioDeviceAttachIommufdPt>(argument).pt_id;
            return 0;
        case uapi::vfio_device_get_info:
            as<uapi::VfioDeviceInfo>(argument).flags = uapi::vfio_device_flags_pci | uapi::vfio_device_flags_reset;
            as<uapi::VfioDeviceInfo>(argument).num_regions = 9;
            as<uapi::VfioDeviceInfo>(argument).num_irqs = 5;
            return 0;
        case uapi::vfio_device_get_region_info: {
            auto& info = as<uapi::VfioRegionInfo>(argument);
            info.offset = static_cast<std::uint64_t>(info.index) << 40;
            if (info.index == 0) {
                info.flags = region_flags;
                info.size = 0x4000;
            } else if (info.index == uapi::vfio_pci_config_region_index) {
                info.flags = 3;
                info.size = config.size();
            }
            return 0;
        }
        case uapi::vfio_device_get_irq_info: {
            auto& info = as<uapi::VfioIrqInfo>(argument);
            info.flags = uapi::vfio_irq_info_eventfd;
            info.count = info.index == uapi::vfio_pci_msix_irq_index ? msix_count : msi_count;
            return 0;
        }
        case uapi::vfio_device_set_irqs: {
            const auto& set = as<uapi::VfioIrqSet>(argument);
            events.push_back((set.count == 0 ? "interrupts off " : "interrupts on ") + std::to_string(set.index));
            return 0;
        }
        case uapi::vfio_device_get_pci_hot_reset_info: {
            auto& head = as<uapi::VfioPciHotResetInfo>(argument);
            head.flags = uapi::vfio_pci_hot_reset_flag_dev_id;
            head.count = 2;
            const std::array entries{uapi::VfioPciDependentDevice{11, 0, 1, 0},
                                     uapi::VfioPciDependentDevice{hot_reset_devid, 0, 1, 1}};
            std::memcpy(static_cast<char*>(argument) + sizeof(head), entries.data(), sizeof(entries));
            return 0;
        }
        case uapi::vfio_device_pci_hot_reset:
            events.emplace_back("hot reset");
            return 0;
        case uapi::vfio_device_reset:
            events.emplace_back("reset");
            return 0;
        default:
            errno = ENOTTY;
            return -1;
        }
    }
};

} // namespace upcie::test
