// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/open.hpp>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <upcie/dmabuf/importer.hpp>
#include <upcie/iommu/pagemap.hpp>
#include <upcie/pci/uio_function.hpp>
#include <upcie/sim/device_memory.hpp>
#include <upcie/sim/function.hpp>
#include <upcie/vfio/device.hpp>

namespace upcie {

namespace {

using Opened = Result<std::unique_ptr<pci::Function>>;

bool starts_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

/// The shared address space as the kind that a path works with; null stays null.
template <class Space>
Result<std::shared_ptr<Space>> as(const std::shared_ptr<iommu::AddressSpace>& space, const std::string& name) {
    auto typed = std::dynamic_pointer_cast<Space>(space);
    if (space && !typed) {
        return fail(EINVAL, "open", name, fmt::format("It cannot share {}.", space->describe()));
    }
    return typed;
}

template <class Space, class Open>
Opened open_with(const pci::FunctionInfo& function, const OpenOptions& options, const PathChoice& choice, Open&& open) {
    auto space = as<Space>(options.address_space, function.bdf.to_string());
    if (!space) {
        return tl::unexpected{std::move(space.error())};
    }
    auto opened = open(std::move(*space));
    if (!opened) {
        return tl::unexpected{std::move(opened.error())};
    }
    (*opened)->set_path_reason(choice.reason);
    return std::unique_ptr<pci::Function>{std::move(*opened)};
}

Opened open_chosen(os::System& system, const pci::FunctionInfo& function, const OpenOptions& options,
                   const PathChoice& choice) {
    using vfio::VfioFunction;
    switch (choice.path) {
    case Path::cdev:
        return open_with<iommu::IoasAddressSpace>(function, options, choice, [&](auto space) {
            return VfioFunction::open_cdev(system, function, std::move(space), options.roots);
        });
    case Path::group:
        return open_with<iommu::Type1Container>(function, options, choice, [&](auto space) {
            return VfioFunction::open_group(system, function, std::move(space), options.roots);
        });
    case Path::noiommu_cdev:
        return open_with<iommu::NoIommuIoasAddressSpace>(function, options, choice, [&](auto space) {
            return VfioFunction::open_noiommu_cdev(system, function, std::move(space), options.roots);
        });
    case Path::uio:
        return open_with<iommu::AddressSpace>(
            function, options, choice, [&](auto space) -> Result<std::unique_ptr<pci::UioFunction>> {
                if (!space) { // the one kind whose device does not bring an address space along
                    auto made = iommu::PagemapAddressSpace::create(system);
                    if (!made) {
                        return tl::unexpected{std::move(made.error())};
                    }
                    space = std::move(*made);
                }
                return pci::UioFunction::open(system, function, std::move(space), options.roots);
            });
    case Path::automatic:
        break;
    }
    return fail(EINVAL, "open", function.bdf.to_string(), "There is no such path.");
}

Opened open_real(os::System& system, const pci::FunctionInfo& function, const OpenOptions& options) {
    auto choice = choose_path(system, function, options);
    if (!choice) {
        return tl::unexpected{std::move(choice.error())};
    }
    return open_chosen(system, function, options, *choice);
}

Opened open_simulated(os::System& system, std::string_view name, const OpenOptions& options) {
    if (options.path != Path::automatic) {
        return fail(EINVAL, "open", std::string{name}, "A simulated device has no path to choose.");
    }
    auto space = as<sim::AddressSpace>(options.address_space, std::string{name});
    if (!space) {
        return tl::unexpected{std::move(space.error())};
    }
    if (!*space) {
        return sim::open_function(name, system);
    }
    auto parsed = sim::Options::parse(name);
    if (!parsed) {
        return tl::unexpected{std::move(parsed.error())};
    }
    auto function = sim::Function::create(*parsed, std::string{name}, std::move(*space), system);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    return std::unique_ptr<pci::Function>{std::move(*function)};
}

/// "vfio0" or "noiommu-vfio0" out of a node's path or by itself; empty when `name` is neither.
std::string_view node_name(std::string_view name, const pci::Roots& roots) {
    const std::string directory = roots.dev + "/vfio/devices/";
    if (starts_with(name, directory)) {
        return name.substr(directory.size());
    }
    return starts_with(name, "vfio") || starts_with(name, "noiommu-vfio") ? name : std::string_view{};
}

Opened open_node(os::System& system, std::string_view node, OpenOptions options) {
    auto function = pci::find_by_vfio_name(system, std::string{node}, options.roots);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    const Path named = starts_with(node, "noiommu-") ? Path::noiommu_cdev : Path::cdev;
    if (options.path != Path::automatic && options.path != named) {
        return fail(EINVAL, "open", std::string{node},
                    fmt::format("A vfio node is the path {}, not {}: name the device by its PCI address ({}) for that.",
                                to_string(named), to_string(options.path), function->bdf.to_string()));
    }
    options.path = named;
    return open_real(system, *function, options);
}

} // namespace

Result<std::unique_ptr<pci::Function>> open_function(os::System& system, std::string_view name,
                                                     const OpenOptions& options) {
    if (starts_with(name, "sim:")) {
        return open_simulated(system, name, options);
    }
    if (const auto node = node_name(name, options.roots); !node.empty()) {
        return open_node(system, node, options);
    }
    const auto bdf = pci::Bdf::parse(name);
    if (!bdf) {
        return fail(
            EINVAL, "open", fmt::format("\"{}\"", name),
            "A device is named by its PCI address (0000:01:00.0), its vfio node (/dev/vfio/devices/vfio0, vfio0) or, "
            "simulated, as sim:size=1G,lba=4096.");
    }
    auto function = pci::find_function(system, *bdf, options.roots);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    return open_real(system, *function, options);
}

Result<memory::DeviceExports::Importer> importer_for(os::System& system, pci::Function& function,
                                                     const std::shared_ptr<gpu::Runtime>& runtime) {
    const auto space = function.address_space();
    if (auto simulated = std::dynamic_pointer_cast<sim::AddressSpace>(space)) {
        return sim::import_by_copies(std::move(simulated), runtime);
    }
    if (space->translating()) {
        return memory::DeviceExports::Importer{};
    }
    const auto& bdf = function.identity().bdf;
    if (!bdf) {
        return fail(ENOTSUP, "find an importer", function.identity().name,
                    "A GPU's memory is found on the bus for a PCI function, and this is none.");
    }
    auto importer = dmabuf::Importer::open(system);
    if (!importer) {
        return tl::unexpected{std::move(importer.error())};
    }
    return memory::import_by_kernel(system, std::make_shared<const dmabuf::Importer>(std::move(*importer)),
                                    dmabuf::PciFunction{bdf->domain, bdf->bus, bdf->device, bdf->function});
}

} // namespace upcie
