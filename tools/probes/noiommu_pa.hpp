// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "report.hpp"
#include "requests.hpp"

// The question of upcie_probe_noiommu_pa: are the addresses that IOMMU_IOAS_NOIOMMU_GET_PA gives those that pagemap and
// sysfs give, and how far does one answer reach?
namespace upcie::probes {

/// What GET_PA says of a whole mapping, asked again from where each answer ends.
struct PhysicalRuns {
    std::vector<Requests::PhysicalRun> runs; ///< as answered, one a call
    int error = 0;                           ///< of the call that ended the walk early
    [[nodiscard]] std::uint64_t covered() const noexcept;
    [[nodiscard]] std::uint64_t shortest() const noexcept;
    [[nodiscard]] std::uint64_t longest() const noexcept;
    /// How many runs are left when neighbours that abut are taken as one.
    [[nodiscard]] std::size_t merged() const noexcept;
};
/// Asks about [iova, iova + length). An answer of no length, or one that reaches beyond what was asked, ends the walk
/// with EPROTO: a caller would loop, or use memory that is not its own.
[[nodiscard]] PhysicalRuns walk_runs(const Requests& requests, int iommufd, std::uint32_t ioas, std::uint64_t iova,
                                     std::uint64_t length);

/// How runs compare with an independent witness, page by page.
struct Comparison {
    std::uint64_t pages = 0;   ///< that runs cover
    std::uint64_t equal = 0;   ///< of these, as the witness says
    std::uint64_t unknown = 0; ///< of these, the witness says nothing
    bool first_equal = false;
};
/// `witness(offset)` is the physical address of the page at that offset, or ~0 when it does not know.
[[nodiscard]] Comparison compare(const PhysicalRuns& runs, const std::function<std::uint64_t(std::uint64_t)>& witness);

/// Physical addresses of this process's pages, from /proc/self/pagemap.
class Pagemap {
  public:
    /// Error: what open(2) says.
    [[nodiscard]] static Result<Pagemap> open(os::System& system);
    /// Of the page that holds `address`; ~0 when it is not present or the kernel does not tell (without CAP_SYS_ADMIN
    /// it gives frame 0, which is no address).
    [[nodiscard]] std::uint64_t physical(const void* address) const;

  private:
    Pagemap(os::System& system, os::Fd file) noexcept : system_{&system}, file_{std::move(file)} {}
    os::System* system_;
    os::Fd file_;
};

/// Asks everything about a device that vfio offers without an IOMMU. Error: the question could not be asked.
Result<void> ask_noiommu_pa(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            std::uint64_t length);

} // namespace upcie::probes
