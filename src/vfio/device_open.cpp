// SPDX-License-Identifier: BSD-3-Clause
// The ways in: from a function that sysfs describes, or a descriptor that somebody passed, to a VfioFunction.
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <uapi/vfio.hpp>
#include <upcie/vfio/cdev.hpp>
#include <upcie/vfio/device.hpp>
#include <upcie/vfio/group.hpp>

namespace upcie::vfio {

namespace {

Result<void> check_bound(const pci::FunctionInfo& function) {
    if (function.driver.find("vfio") != std::string::npos) {
        return {};
    }
    return fail(ENODEV, "open through vfio", function.bdf.to_string(),
                fmt::format("It is bound to {}, not to vfio-pci: `upcie bind {}` changes that.",
                            function.driver.empty() ? "no driver" : function.driver, function.bdf.to_string()));
}

/// The kernel's EPERM has two causes that it does not tell apart; sysfs knows whether it is the first.
void name_obstacles(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots, Error& error) {
    if (!error.is(EPERM) && !error.is(EINVAL)) {
        return;
    }
    const std::string others = describe(group_obstacles(system, function, roots));
    if (!others.empty()) {
        error.hint =
            fmt::format("{} of the same IOMMU group ({}) belong to a kernel driver: unbind them or bind them to "
                        "vfio-pci as well.",
                        others, function.iommu_group->number);
    }
}

template <class Space>
Result<std::shared_ptr<Space>> make_space(os::System& system, std::shared_ptr<Space> space) {
    if (space) {
        return space;
    }
    auto iommufd = iommu::Iommufd::open(system);
    if (!iommufd) {
        return tl::unexpected{std::move(iommufd.error())};
    }
    return Space::create(std::move(*iommufd));
}

} // namespace

Result<std::unique_ptr<VfioFunction>> VfioFunction::finish(os::System& system, const pci::FunctionInfo& function,
                                                           Parts parts) {
    // From here on the destructor undoes what was done.
    std::unique_ptr<VfioFunction> opened{new VfioFunction{system, function.identity(), std::move(parts)}};
    auto info = get_info(system, opened->device_fd(), function.bdf.to_string());
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    if (!info->pci || info->region_count <= uapi::vfio_pci_config_region_index) {
        return fail(ENODEV, "open through vfio", function.bdf.to_string(), "vfio does not take it for a PCI function.");
    }
    return opened;
}

template <class Space>
Result<std::unique_ptr<VfioFunction>> VfioFunction::open_node(os::System& system, const pci::FunctionInfo& function,
                                                              std::shared_ptr<Space> space, const pci::Roots& roots,
                                                              const char* path) {
    if (auto bound = check_bound(function); !bound) {
        return tl::unexpected{std::move(bound.error())};
    }
    const std::string node =
        roots.dev + "/vfio/devices/" + (function.vfio_name.empty() ? std::string{"?"} : function.vfio_name);
    auto made = make_space(system, std::move(space));
    if (!made) {
        return tl::unexpected{std::move(made.error())};
    }
    auto device = vfio::open_cdev(system, node);
    if (!device) {
        return tl::unexpected{std::move(device.error())};
    }
    auto id = bind_iommufd(system, device->get(), (*made)->iommufd()->fd(), node);
    if (!id) {
        name_obstacles(system, function, roots, id.error());
        return tl::unexpected{std::move(id.error())};
    }
    if (auto attached = attach_ioas(system, device->get(), (*made)->ioas_id(), node); !attached) {
        name_obstacles(system, function, roots, attached.error());
        return tl::unexpected{std::move(attached.error())};
    }
    Parts parts;
    parts.space = std::move(*made);
    parts.device = std::move(*device);
    parts.device_id = *id;
    parts.path = path;
    return finish(system, function, std::move(parts));
}

Result<std::unique_ptr<VfioFunction>> VfioFunction::open_cdev(os::System& system, const pci::FunctionInfo& function,
                                                              std::shared_ptr<iommu::IoasAddressSpace> space,
                                                              const pci::Roots& roots) {
    return open_node(system, function, std::move(space), roots, "vfio cdev + iommufd");
}

Result<std::unique_ptr<VfioFunction>>
VfioFunction::open_noiommu_cdev(os::System& system, const pci::FunctionInfo& function,
                                std::shared_ptr<iommu::NoIommuIoasAddressSpace> space, const pci::Roots& roots) {
    return open_node(system, function, std::move(space), roots, "vfio no-IOMMU cdev + iommufd");
}

Result<std::unique_ptr<VfioFunction>> VfioFunction::open_group(os::System& system, const pci::FunctionInfo& function,
                                                               std::shared_ptr<iommu::Type1Container> container,
                                                               const pci::Roots& roots) {
    if (auto bound = check_bound(function); !bound) {
        return tl::unexpected{std::move(bound.error())};
    }
    // The group first: what is wrong with it is what people need to hear.
    auto group = Group::open(system, function, roots);
    if (!group) {
        return tl::unexpected{std::move(group.error())};
    }
    if (!container) {
        auto opened = iommu::Type1Container::open(system);
        if (!opened) {
            return tl::unexpected{std::move(opened.error())};
        }
        container = std::move(*opened);
    }
    if (auto attached = container->attach_group(group->fd()); !attached) {
        name_obstacles(system, function, roots, attached.error());
        return tl::unexpected{std::move(attached.error())};
    }
    auto device = group->open_device(function.bdf);
    if (!device) {
        (void)container->detach_group(group->fd());
        return tl::unexpected{std::move(device.error())};
    }
    Parts parts;
    parts.container = container.get();
    parts.space = std::move(container);
    parts.group = std::move(*group);
    parts.device = std::move(*device);
    parts.path = "vfio group + type1 container";
    return finish(system, function, std::move(parts));
}

Result<std::unique_ptr<VfioFunction>>
VfioFunction::adopt(os::System& system, os::Fd device, std::shared_ptr<iommu::AddressSpace> space, std::string name) {
    if (!space) {
        return fail(EINVAL, "adopt", name,
                    "There is no address space: its owner passes the iommufd and the IOAS's id along.");
    }
    auto info = get_info(system, device.get(), name);
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    Parts parts;
    parts.space = std::move(space);
    parts.device = std::move(device);
    parts.path = "vfio device passed by its owner";
    parts.owner = false;
    pci::Identity identity;
    identity.name = std::move(name);
    if (auto bdf = pci::Bdf::parse(identity.name)) {
        identity.bdf = *bdf;
    }
    std::unique_ptr<VfioFunction> function{new VfioFunction{system, std::move(identity), std::move(parts)}};
    // Config space, first 16 bytes: vendor, device, command, status, revision, class (PCI Base 3.0, 6.1).
    auto ids = function->read_config(0, 4);
    auto revision_and_class = function->read_config(8, 4);
    if (!ids || !revision_and_class) {
        return tl::unexpected{std::move(ids ? revision_and_class.error() : ids.error())};
    }
    function->identity_.vendor = static_cast<std::uint16_t>(*ids & 0xffff);
    function->identity_.device = static_cast<std::uint16_t>(*ids >> 16);
    function->identity_.class_code = *revision_and_class >> 8;
    function->path_reason_ = "its owner bound and attached it and passed the descriptor";
    return function;
}

} // namespace upcie::vfio
