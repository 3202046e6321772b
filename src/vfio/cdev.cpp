// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/cdev.hpp>

#include <cerrno>

#include <fcntl.h>

#include <uapi/vfio.hpp>

namespace upcie::vfio {

namespace {

const char* open_hint(int code) {
    switch (code) {
    case EACCES:
        return "You may not open this node: change its owner or mode (docs/permissions.md has a udev rule), or run as "
               "root.";
    case EPERM:
        return "A no-IOMMU device gives access to all of memory: opening it needs CAP_SYS_RAWIO.";
    case ENOENT:
        return "There is no such node: bind the device to vfio-pci; if it is bound, this kernel lacks "
               "CONFIG_VFIO_DEVICE_CDEV and only the group path (/dev/vfio/N) is left.";
    case ENODEV:
        return "The device is being unbound or removed.";
    default:
        return "";
    }
}

const char* bind_hint(int code) {
    switch (code) {
    case EINVAL:
        return "The device is bound already, by this process or another: it has one owner at a time. Find the other "
               "with `fuser -v` on the node, or let it pass you its descriptor.";
    case EBUSY:
        return "The device or its group is open through the group path (/dev/vfio/N): cdev and group exclude each "
               "other. Find the opener with `fuser -v /dev/vfio/*`.";
    case EPERM:
        return "A device of the same IOMMU group still belongs to a kernel driver, or the IOMMU cannot isolate "
               "interrupts (iommufd's allow_unsafe_interrupts parameter overrides that).";
    case EBADF:
    case EBADFD:
        return "The descriptor given as iommufd is not an open /dev/iommu.";
    case ENOTTY:
        return "This kernel does not know the request: cdev access needs Linux 6.6 and a descriptor of "
               "/dev/vfio/devices.";
    case ENODEV:
        return "The device is being unbound or removed.";
    case ENOMEM:
        return "The kernel is out of memory.";
    default:
        return "";
    }
}

const char* attach_hint(int code) {
    switch (code) {
    case EINVAL:
        return "The device is not bound to an iommufd, a device of its IOMMU group is attached elsewhere or belongs to "
               "a kernel driver, or the address space has a mapping where this device has a reserved range.";
    case ENOENT:
        return "The iommufd that the device is bound to has no object of this id: an id belongs to one iommufd and "
               "must "
               "travel with it.";
    case EBUSY:
        return "The device or one of its IOMMU group is being reset: try again.";
    case EADDRINUSE:
        return "The address space has a mapping where this device has a reserved range (an MSI window, say).";
    case ENOTTY:
        return "This kernel does not know the request: it needs Linux 6.6 and a descriptor of /dev/vfio/devices.";
    default:
        return "";
    }
}

} // namespace

Result<os::Fd> open_cdev(os::System& system, const std::string& path) {
    const int number = system.open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (number < 0) {
        const int code = errno;
        return fail(code, "open", path, open_hint(code));
    }
    return os::Fd{system, number};
}

Result<std::uint32_t> bind_iommufd(os::System& system, int device, int iommufd, std::string_view subject) {
    uapi::VfioDeviceBindIommufd request{};
    request.argsz = uapi::vfio_device_bind_iommufd_v1_size;
    request.iommufd = iommufd;
    if (system.ioctl(device, uapi::vfio_device_bind_iommufd, &request) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_BIND_IOMMUFD", std::string{subject}, bind_hint(code));
    }
    return request.out_devid;
}

Result<std::uint32_t> attach_ioas(os::System& system, int device, std::uint32_t ioas_id, std::string_view subject) {
    uapi::VfioDeviceAttachIommufdPt request{};
    request.argsz = uapi::vfio_device_attach_iommufd_pt_v1_size;
    request.pt_id = ioas_id;
    if (system.ioctl(device, uapi::vfio_device_attach_iommufd_pt, &request) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_ATTACH_IOMMUFD_PT", std::string{subject}, attach_hint(code));
    }
    return request.pt_id;
}

Result<void> detach_ioas(os::System& system, int device, std::string_view subject) {
    uapi::VfioDeviceDetachIommufdPt request{};
    request.argsz = uapi::vfio_device_detach_iommufd_pt_v1_size;
    if (system.ioctl(device, uapi::vfio_device_detach_iommufd_pt, &request) < 0) {
        const int code = errno;
        return fail(code, "VFIO_DEVICE_DETACH_IOMMUFD_PT", std::string{subject},
                    code == EINVAL ? "The device is not bound to an iommufd." : "");
    }
    return {};
}

} // namespace upcie::vfio
