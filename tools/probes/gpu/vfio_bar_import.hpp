// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "../report.hpp"
#include "../requests.hpp"
#include "probed_gpu.hpp"

// The question of upcie_probe_vfio_bar_import_*: will a GPU runtime import the MMIO of another device?
namespace upcie::probes {

extern const char* const vfio_bar_import_question;

/// A piece of a device's region, in bytes, whole pages. As it is here: the page of an NVMe controller's CAP.
struct BarRange {
    std::uint32_t region = 0; ///< BAR 0 to 5
    std::uint64_t offset = 0;
    std::uint64_t length = page;
};

/// Exports the range as a dma-buf and has the GPU's runtime import it, in every way that it may have. Binds the device
/// by its cdev, and reads its registers only. Errors: those of open_session(); EINVAL (the range is not whole pages of
/// the region); what the kernel says to the export, ENOTTY where it has none.
Result<void> ask_vfio_bar_import(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                 const BarRange& range, ProbedGpu& gpu);

} // namespace upcie::probes
