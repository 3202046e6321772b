// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "report.hpp"

namespace upcie::probes {

/// Whether `name` is a BDF, "vfio0", or a cdev's path; there need not be such a device.
[[nodiscard]] bool is_device_name(const std::string& name, const pci::Roots& roots = {});

/// The function that `name` means: a BDF, "vfio0", or a cdev's path.
/// Error: EINVAL for another text, ENODEV where there is no such device.
[[nodiscard]] Result<pci::FunctionInfo> find_device(os::System& system, const std::string& name,
                                                    const pci::Roots& roots = {});

/// Versions of this tool and of the kernel: what can be said before there is a device.
[[nodiscard]] Environment describe_kernel();
/// Kernel, IOMMU, drivers and the device itself.
[[nodiscard]] Environment describe_machine(os::System& system, const pci::FunctionInfo& function,
                                           const pci::Roots& roots = {});

/// What stands in the way of a probe that needs the device's cdev.
struct Obstacle {
    std::string reason; ///< empty: nothing does
    std::string remedy;
};
[[nodiscard]] Obstacle cdev_obstacle(os::System& system, const pci::FunctionInfo& function,
                                     const pci::Roots& roots = {});

/// The same for a probe that has the device do DMA to IOVAs: without an IOMMU that would be someone's physical memory.
[[nodiscard]] Obstacle translation_obstacle(os::System& system, const pci::FunctionInfo& function,
                                            const pci::Roots& roots = {});

/// The same for a probe of physical addresses, which only the no-IOMMU cdev gives out.
[[nodiscard]] Obstacle noiommu_obstacle(os::System& system, const pci::FunctionInfo& function,
                                        const pci::Roots& roots = {});

/// One of the three above.
using Precondition = Obstacle (*)(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots);
/// Finds the device that a probe is to ask and describes it, with the machine, in the report. Nothing where there is no
/// such device or something stands in the way: the report then says so.
[[nodiscard]] std::optional<pci::FunctionInfo> device_to_ask(Report& report, os::System& system,
                                                             const std::string& name, Precondition precondition);

} // namespace upcie::probes
