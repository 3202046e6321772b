// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/gpu/runtime.hpp>
#include <upcie/iommu/address_space.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>

namespace upcie {

/// The ways to a real function, the preferred ones first.
enum class Path : std::uint8_t {
    automatic,    ///< the first of the others that is open
    cdev,         ///< /dev/vfio/devices/vfioN and iommufd
    group,        ///< /dev/vfio/N and a type1 container
    noiommu_cdev, ///< /dev/vfio/devices/noiommu-vfioN and iommufd: physical addresses, no protection
    uio,          ///< uio_pci_generic, hugepages and pagemap: physical addresses, no protection
};
/// "automatic", "cdev", "group", "noiommu", "uio"
[[nodiscard]] std::string_view to_string(Path path) noexcept;

struct OpenOptions {
    Path path = Path::automatic;
    /// Shared with the devices that use it already; null: the function gets one of its own. Its kind decides the path.
    std::shared_ptr<iommu::AddressSpace> address_space;
    pci::Roots roots;
};

/// Whether a path is open now, without trying it.
struct PathVerdict {
    Path path = Path::automatic;
    bool usable = false;
    std::string reason; ///< why, or why not: a clause without a full stop
    std::string fix;    ///< what to do about it; empty when usable
};
/// Each path in the order of preference, judged by what is bound, which nodes exist and whether they may be opened.
/// Opens nothing. Threads: any.
[[nodiscard]] std::vector<PathVerdict> examine_paths(os::System& system, const pci::FunctionInfo& function,
                                                     const pci::Roots& roots = {});

/// Which path open_function() would take, and what it says against the others.
struct PathChoice {
    Path path = Path::automatic;
    std::string reason; ///< "/dev/vfio/devices/vfio0 and /dev/iommu may be opened; not group: ...; not uio: ..."
};
/// Errors: ENODEV (no path is open; the hint has the reason for each), EINVAL (the path asked for does not go with the
/// address space to share). Threads: any.
[[nodiscard]] Result<PathChoice> choose_path(os::System& system, const pci::FunctionInfo& function,
                                             const OpenOptions& options);

/// Opens the function called `name`:
/// - a PCI address: "0000:01:00.0", "01:00.0";
/// - a vfio device by its node: "/dev/vfio/devices/vfio0", "vfio0", "noiommu-vfio0" (that path and no other);
/// - "sim:key=value,...": a simulated controller (sim::Options).
/// Which path was taken and why it was that one, the answer says itself: path(), path_reason(). When the chosen path
/// then fails, no other is tried: the error is that path's. Errors: EINVAL (no such form of name, or options that
/// contradict it), ENODEV (no such function; no path to it), and those of vfio::VfioFunction::open_*,
/// pci::UioFunction::open, sim::open_function. Threads: any.
[[nodiscard]] Result<std::unique_ptr<pci::Function>> open_function(os::System& system, std::string_view name,
                                                                   const OpenOptions& options = {});

/// Who tells where a GPU's memory is for the DMA of `function`, for DeviceExports::Options: nobody where an IOMMU
/// translates, since the kernel maps dma-bufs itself; for a simulated function copies of the runtime; else the kernel
/// module upcie_dmabuf_import. Keeps `runtime`, and `system` as long as the answer lives. Errors: those of
/// dmabuf::Importer::open, ENOTSUP (no PCI function to import as). Threads: any.
[[nodiscard]] Result<memory::DeviceExports::Importer> importer_for(os::System& system, pci::Function& function,
                                                                   const std::shared_ptr<gpu::Runtime>& runtime);

} // namespace upcie
