// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <upcie/pci/enumeration.hpp>

#include "host_facts.hpp"

namespace upcie::cli {

enum class CheckStatus : std::uint8_t {
    ok,
    warn,    ///< works, with a limit that is good to know
    missing, ///< what needs it does not work
};
[[nodiscard]] std::string_view to_string(CheckStatus status) noexcept;

/// One precondition, as found.
struct Check {
    std::string id;   ///< stable, for machines: "iommufd.node"
    std::string area; ///< heading it stands under
    CheckStatus status = CheckStatus::ok;
    std::string found;     ///< what is so
    std::string needed_by; ///< paths and features, comma separated
    std::string fix;       ///< empty when ok
};
using Checks = std::vector<Check>;

// Each adds its area's checks.
void check_iommu(const HostFacts& host, Checks& checks);
void check_kernel(const HostFacts& host, Checks& checks);
void check_vfio(const HostFacts& host, Checks& checks);
void check_memory(const HostFacts& host, Checks& checks);
void check_devices(const std::vector<pci::FunctionInfo>& functions, Checks& checks);
void check_peer_to_peer(Context& context, const std::vector<pci::FunctionInfo>& functions, Checks& checks);
void check_gpu_runtimes(Context& context, Checks& checks);

} // namespace upcie::cli
