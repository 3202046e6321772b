// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <upcie/nvme/command.hpp>
#include <upcie/sim/faults.hpp>

namespace upcie::sim {

/// Applies a script: counts what meets each rule and says which one is due.
class FaultPlayer {
  public:
    void load(FaultScript script);
    /// The rule for a command of queue `qid`, or null.
    [[nodiscard]] const FaultRule* on_command(const nvme::Command& command, std::uint16_t qid);
    [[nodiscard]] const FaultRule* on_event(FaultEvent event);
    [[nodiscard]] std::vector<std::uint64_t> hits() const;

  private:
    struct Progress {
        std::uint64_t met = 0;
        std::uint64_t hits = 0;
    };
    [[nodiscard]] static bool due(const FaultRule& rule, Progress& progress) noexcept;
    template <class Meets>
    [[nodiscard]] const FaultRule* choose(Meets&& meets);

    FaultScript script_;
    std::vector<Progress> progress_;
};

} // namespace upcie::sim
