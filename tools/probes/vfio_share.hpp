// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "channel.hpp"
#include "identity.hpp"
#include "memlock.hpp"
#include "report.hpp"
#include "requests.hpp"

// The question of upcie_probe_vfio_share: can a second process, given the device's and the iommufd's descriptors, use
// the device, and whose RLIMIT_MEMLOCK is charged for the memory that either registers?
namespace upcie::probes {

/// How iommufd counts pinned memory (IOMMU_OPTION_RLIMIT_MODE).
enum class Accounting : std::uint8_t { per_user = 0, per_process = 1 };
[[nodiscard]] const char* word(Accounting accounting) noexcept;

struct ShareOptions {
    std::uint64_t span = std::uint64_t{32} << 20; ///< how much a side tries to register at most, whole fill_chunks
    std::vector<Accounting> accountings{Accounting::per_user, Accounting::per_process};
};

/// The primary's part and the judgement. Error: the question could not be asked (the other side is told).
Result<void> ask_vfio_share(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            Channel& secondary, const ShareOptions& options);

/// The secondary's part, to the primary's end. What it sees is in `report`, and told to the primary.
Result<void> be_share_secondary(Report& report, const Requests& requests, Channel& primary);

// ---- the part about memory accounting ----

/// Who the two are, as far as accounting goes.
struct Sides {
    Identity primary;
    Identity secondary;
};

/// Fills from both sides in one accounting mode; observations are "memlock.<mode>.<registrar>_registers_...".
Result<void> look_at_accounting(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                Channel& secondary, const Sides& sides, Accounting accounting,
                                const ShareOptions& options);
/// The secondary's side of it, from the message "accounting" to the message "end".
Result<void> serve_accounting(const Requests& requests, Channel& primary, Message& opening);
/// Controls and answers about accounting, from the observations.
void judge_accounting(Report& report, const Sides& sides, const ShareOptions& options);

} // namespace upcie::probes
