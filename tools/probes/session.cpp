// SPDX-License-Identifier: BSD-3-Clause
#include "session.hpp"

#include <cerrno>

namespace upcie::probes {

Result<Session> open_session(const Requests& requests, const std::string& cdev,
                             std::optional<std::uint64_t> rlimit_mode) {
    Session result;
    Answered<os::Fd> iommufd = requests.open("/dev/iommu");
    if (!iommufd.ok()) {
        return fail(iommufd.error, "open", "/dev/iommu",
                    "Give this user read and write access to it, and load the module iommufd.");
    }
    result.iommufd = std::move(iommufd.value);
    if (rlimit_mode) {
        if (const int error = requests.set_rlimit_mode(result.iommufd.get(), *rlimit_mode); error != 0) {
            return fail(error, "IOMMU_OPTION_RLIMIT_MODE", "/dev/iommu", "Setting it takes CAP_SYS_RESOURCE.");
        }
    }
    Answered<os::Fd> device = requests.open(cdev);
    if (!device.ok()) {
        return fail(device.error, "open", cdev, "Give this user read and write access to it (a udev rule, or chown).");
    }
    result.device = std::move(device.value);
    const Answered<std::uint32_t> bound = requests.bind(result.device.get(), result.iommufd.get());
    if (!bound.ok()) {
        return fail(bound.error, "VFIO_DEVICE_BIND_IOMMUFD", cdev,
                    "Another process may have it (EINVAL), its group may be open (EBUSY), or another device of its "
                    "IOMMU group be on a kernel driver (EPERM).");
    }
    result.device_id = bound.value;
    const Answered<std::uint32_t> ioas = requests.ioas_alloc(result.iommufd.get());
    if (!ioas.ok()) {
        return fail(ioas.error, "IOMMU_IOAS_ALLOC", "/dev/iommu", "This is unexpected: see dmesg.");
    }
    result.ioas = ioas.value;
    if (const int error = requests.attach(result.device.get(), result.ioas); error != 0) {
        return fail(error, "VFIO_DEVICE_ATTACH_IOMMUFD_PT", cdev,
                    "Every device of its IOMMU group must be bound to vfio-pci or to no driver.");
    }
    return result;
}

Result<SharedMemory> make_shared_memory(const Requests& requests, const char* name, std::uint64_t length,
                                        unsigned flags) {
    Answered<os::Fd> file = requests.memfd(name, flags, length);
    if (!file.ok()) {
        return fail(file.error, "memfd_create", name, "Is there memory left, and may this user open more files?");
    }
    Answered<os::Mapping> view = requests.map_shared(file.value.get(), 0, length);
    if (!view.ok()) {
        return fail(view.error, "mmap", name, "ENOMEM on a hugetlb memfd: reserve huge pages (vm.nr_hugepages).");
    }
    return SharedMemory{std::move(file.value), std::move(view.value)};
}

} // namespace upcie::probes
