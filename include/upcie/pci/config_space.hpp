// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

/// What stands in config space beyond the header (PCI Base 3.0 6.7, PCI Express Base 7.5 and 7.9). A device's lists are
/// not trusted: a walk visits no offset twice and stays inside. Threads: as the function's.
namespace upcie::pci {

/// Capability ids looked for here.
enum class CapabilityId : std::uint8_t { msi = 0x05, pcie = 0x10, msix = 0x11, advanced_features = 0x13 };

struct Capability {
    std::uint8_t id = 0;
    unsigned offset = 0; ///< in config space, 0x40 to 0xfc
};
/// The capability list in its order; empty when the function has none.
/// Errors: EPROTO (the list leaves its range or runs in a circle), and what read_config says.
[[nodiscard]] Result<std::vector<Capability>> capabilities(Function& function);

struct ExtendedCapability {
    std::uint16_t id = 0;
    std::uint8_t version = 0;
    unsigned offset = 0; ///< 0x100 to 0xffc
};
/// The extended list; empty for a function without extended config space. Errors: as capabilities().
[[nodiscard]] Result<std::vector<ExtendedCapability>> extended_capabilities(Function& function);

/// Where the first capability of this kind is; none when there is none. Errors: as capabilities().
[[nodiscard]] Result<std::optional<unsigned>> find_capability(Function& function, CapabilityId id);

/// Where the MSI-X table and its pending bits lie: BAR memory that is not for drivers to write.
struct MsixLayout {
    unsigned vectors = 0;
    unsigned table_bar = 0;
    ByteCount table_offset;
    unsigned pending_bar = 0;
    ByteCount pending_offset;
};
/// None when the function has no MSI-X. Errors: as capabilities(); EPROTO when a BAR above 5 is named.
[[nodiscard]] Result<std::optional<MsixLayout>> msix_layout(Function& function);

/// Whether the function says that it can be reset alone (PCIe Device Capabilities bit 28, or Advanced Features).
/// Errors: as capabilities().
[[nodiscard]] Result<bool> has_function_level_reset(Function& function);

} // namespace upcie::pci
