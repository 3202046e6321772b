// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/os/system.hpp>
#include <upcie/units.hpp>

namespace upcie::iommu {

/// What to say when pinning answers ENOMEM: names this process's RLIMIT_MEMLOCK and how to raise it. `accounting` is a
/// sentence on whom the kernel charges.
[[nodiscard]] std::string memlock_hint(os::System& system, ByteCount wanted, const char* accounting);

} // namespace upcie::iommu
