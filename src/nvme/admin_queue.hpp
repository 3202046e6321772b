// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <upcie/memory/buffer.hpp>
#include <upcie/nvme/queue_pair.hpp>
#include <upcie/nvme/register_access.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>

#include "nvme/queue_memory.hpp"

namespace upcie::nvme {

/// The admin queue as synchronous calls: each waits for its own completion, several threads may be waiting at once, so
/// that a Format of hours does not keep others out.
///
/// Data goes through buffers of the queue's own. One whose command timed out stays out of use until the controller
/// answers that command or was confirmed disabled. The object must not go while the controller may touch its memory:
/// the controller's owner abandons it instead. Threads: any.
class AdminQueue {
  public:
    /// Errors: what allocating DMA memory says, and RegisterAccess::pointer for the doorbells.
    [[nodiscard]] static Result<std::unique_ptr<AdminQueue>> create(os::System& system, pci::Function& function,
                                                                    RegisterAccess& registers,
                                                                    Capabilities capabilities, std::uint32_t entries,
                                                                    unsigned page_shift);

    /// Runs a command; `data` is copied to the controller or from it as bits 1:0 of the opcode say. Answers dwords 0
    /// and 1 of the completion. `timeout` 0: none.
    /// Errors: domain nvme (the controller's status), ETIMEDOUT, ECANCELED (reset meanwhile), EIO (CSTS.CFS), ENODEV
    /// (gone, or disabled), EAGAIN (every identifier is held by commands that timed out), and those of allocating.
    [[nodiscard]] Result<std::uint64_t> run(const Command& command, std::span<std::byte> data,
                                            std::chrono::nanoseconds timeout);

    /// Leaves an Asynchronous Event Request with the controller. Errors: EAGAIN, ENODEV.
    Result<void> request_event();
    /// Dword 0 of each event since the last call. An event request that failed gives its error.
    [[nodiscard]] Result<std::vector<std::uint32_t>> take_events();

    /// The controller is confirmed disabled: every command ends with ECANCELED, every buffer is free again.
    void end_all();
    /// Before the controller is enabled again: empties the rings.
    Result<void> restart();

    [[nodiscard]] DmaAddress submission_address() const noexcept { return submission_address_; }
    [[nodiscard]] DmaAddress completion_address() const noexcept { return completion_address_; }
    [[nodiscard]] std::uint32_t entries() const noexcept { return queue_.layout().entries; }
    /// Bytes that a controller which was not confirmed disabled may touch.
    [[nodiscard]] ByteCount memory() const;
    /// Buffers waiting for the answer to a command that timed out.
    [[nodiscard]] std::size_t held_buffers() const;

  private:
    class Owner;
    struct Pending {
        memory::DmaBuffer bounce;
        Completion completion;
        bool ended = false;
        bool abandoned = false; ///< its caller has given up (the device was gone, or failed)
        bool event = false;
    };
    struct Held {
        Cid cid;
        memory::DmaBuffer bounce;
    };

    AdminQueue(os::System& system, pci::Function& function, RegisterAccess& registers, std::shared_ptr<Owner> owner,
               QueueSetup setup);

    Result<memory::DmaBuffer> take_bounce(ByteCount bytes);
    void give_back(memory::DmaBuffer bounce);
    void reap();
    void take(Completion completion);
    Result<void> check_health();
    void pause(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::duration waited);

    os::System& system_;
    pci::Function& function_;
    RegisterAccess& registers_;
    std::shared_ptr<Owner> owner_;
    std::shared_ptr<iommu::AddressSpace> space_;
    ByteCount ring_bytes_;
    DmaAddress submission_address_;
    DmaAddress completion_address_;

    mutable std::mutex mutex_; ///< guards all that follows
    QueuePair queue_;
    std::uint64_t next_token_ = 1;
    std::unordered_map<std::uint64_t, Pending> pending_;
    std::vector<Held> held_;
    std::vector<memory::DmaBuffer> idle_;
    std::vector<std::uint32_t> events_;
    std::vector<Error> event_errors_;
};

/// "Identify", "Create I/O Submission Queue"; "admin command c1h" for what has no name here.
[[nodiscard]] std::string admin_command_name(std::uint8_t opcode);

} // namespace upcie::nvme
