// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

// What the flavours of both vendors do alike with what a runtime answers.
namespace upcie::gpu {

/// A PCI function as a runtime names it.
struct PciPlace {
    std::string address;            ///< "0000:fa:00.0", in lower case
    std::vector<pci::BarInfo> bars; ///< as sysfs has them; none where it does not show the function
};
[[nodiscard]] PciPlace find_pci_place(os::System& system, std::string_view told);

/// Takes over the descriptor of an export of the range from `start` on; how large what it describes is, the descriptor
/// itself says. Error: what fstat(2) says.
[[nodiscard]] Result<Export> adopt_export(os::System& system, int fd, DevicePointer start);

} // namespace upcie::gpu
