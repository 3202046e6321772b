// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <upcie/nvme/controller.hpp>
#include <upcie/os/fd.hpp>

#include "nvme/admin_queue.hpp"
#include "nvme/power.hpp"

namespace upcie::nvme {

/// What a Controller consists of.
struct Controller::Parts {
    /// A queue that somebody holds, or whose deletion failed.
    struct Queue {
        DmaAddress submission;
        DmaAddress completion;
        std::optional<unsigned> vector;
        bool on_controller = false; ///< the controller may know it, and touch its memory
        bool kept = false;          ///< its holder is gone, its deletion failed
    };
    struct Kept {
        std::shared_ptr<void> memory;
        ByteCount bytes;
    };

    Parts(os::System& os, std::shared_ptr<pci::Function> device, std::unique_ptr<RegisterAccess> access,
          const ControllerOptions& wanted)
        : system{os},
          function{std::move(device)},
          options{wanted},
          registers{std::move(access)},
          power{*registers, *function} {}

    os::System& system;
    const std::shared_ptr<pci::Function> function;
    const ControllerOptions options;
    const std::unique_ptr<RegisterAccess> registers;
    Power power; ///< under `life`

    Capabilities capabilities;
    Version version;
    Configuration configuration;
    unsigned page_shift = 12;
    ControllerInfo info;
    std::uint32_t queue_count = 0;
    std::string queue_count_reason;
    std::vector<os::Fd> interrupts;
    std::unique_ptr<AdminQueue> admin;

    std::atomic<ControllerState> state{ControllerState::resetting};
    std::atomic<std::uint32_t> granted_queues{0}; ///< what the last negotiation allows, which may be less than before

    std::atomic<std::uint64_t> function_resets{0}; ///< that disabling needed

    std::mutex life;               ///< held through bring-up, reset and shutdown
    bool may_touch_memory = false; ///< under `life`: EN was set and clearing it not confirmed since

    mutable std::mutex table; ///< guards all that follows
    QueueIds ids;
    std::map<Qid, Queue> queues;
    std::vector<Kept> kept;

    [[nodiscard]] Result<IdentifyData> identify(std::uint8_t cns, Nsid nsid, std::uint16_t controller_id,
                                                std::uint8_t command_set);
};

} // namespace upcie::nvme
