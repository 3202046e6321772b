// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

#include <upcie/nvme/register_access.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>

namespace upcie::nvme {

/// The transitions of CSTS.RDY and CSTS.SHST, each bounded, each watching for CSTS.CFS and for a device that is gone.
/// Threads: one at a time for one controller.
class Power {
  public:
    Power(RegisterAccess& registers, pci::Function& function) noexcept : registers_{registers}, function_{function} {}

    /// No transition takes longer in a sane device: CAP.TO, or CRTO where it says more; at least `least`, because 0 in
    /// CAP.TO is found in the field and means nothing.
    [[nodiscard]] static std::chrono::milliseconds limit(RegisterAccess& registers, Capabilities capabilities,
                                                         std::chrono::milliseconds least);

    void set_limit(std::chrono::milliseconds limit) noexcept { limit_ = limit; }

    /// Writes `configuration` with EN set and waits for RDY. Errors: EIO (CSTS.CFS), ETIMEDOUT, ENODEV.
    [[nodiscard]] Result<void> enable(Configuration configuration);
    /// Clears EN where it is set and waits until RDY is off: success is the proof that the controller touches no
    /// memory any more. `settle`: first lets a controller that is on its way to ready arrive there, since clearing EN
    /// before that is undefined. Errors: ETIMEDOUT (naming CFS when it is set), ENODEV.
    [[nodiscard]] Result<void> disable(bool settle = true);
    /// Normal shutdown: CC.SHN, then CSTS.SHST. Errors: EIO (CSTS.CFS), ETIMEDOUT, ENODEV.
    [[nodiscard]] Result<void> shut_down(std::chrono::milliseconds limit);

  private:
    enum class OnFatal { fail, keep_waiting };
    template <class Done>
    Result<void> wait(const char* operation, Done done, std::chrono::milliseconds limit, OnFatal on_fatal);

    RegisterAccess& registers_;
    pci::Function& function_;
    std::chrono::milliseconds limit_{500};
};

} // namespace upcie::nvme
