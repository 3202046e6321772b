// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/queue_layout.hpp>
#include <upcie/nvme/sgl.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// The memory and descriptors of one queue pair, kept together: nothing of it may go while the controller can touch it.
struct QueueResources {
    memory::DmaBuffer rings;                   ///< submission ring, then completion ring, each from a page's start
    memory::DmaBuffer lists;                   ///< PRP list pages, `list_pages` for each command
    std::vector<std::uint64_t> list_addresses; ///< device address of every list page
    memory::Reader reader;                     ///< holds the registered memory that commands in flight may use
    os::Fd interrupt;                          ///< eventfd; empty for a polled queue
};

/// What a queue pair asks of the controller that made it. Cold, virtual. Threads: any.
class QueueOwner {
  public:
    virtual ~QueueOwner() = default;
    /// Counts confirmed disables of the controller: a queue made before the present count is dead.
    [[nodiscard]] const std::atomic<std::uint32_t>& generation() const noexcept { return generation_; }
    /// Deletes the queue on the controller and frees the resources; keeps them until the controller is confirmed
    /// disabled when that fails.
    virtual void release(Qid qid, std::uint32_t generation, std::unique_ptr<QueueResources> resources) noexcept = 0;
    /// Creates the queue again after a reset, over the same memory; answers the generation it belongs to.
    /// Errors: as Controller::create_queue_pair.
    virtual Result<std::uint32_t> recreate(Qid qid, const QueueResources& resources, std::uint32_t entries) = 0;

  protected:
    std::atomic<std::uint32_t> generation_{0};
};

/// All that a queue pair is made of.
struct QueueSetup {
    Qid qid;
    QueueLayout layout;                ///< rings, doorbells and entries filled in, completion ring zeroed
    unsigned page_shift = 12;          ///< of the controller's page (CC.MPS + 12)
    std::uint32_t list_pages = 0;      ///< PRP list pages a command has; SGL segments lie there too
    SglSupport sgl = SglSupport::none; ///< for what PRPs cannot describe
    ByteCount max_transfer;            ///< of one command; what the list pages can describe may be less and then counts
    std::uint32_t generation = 0;      ///< the owner's when the queue was created
    std::chrono::nanoseconds timeout{std::chrono::seconds{30}}; ///< of a command, unless it names its own; 0: none
    std::unique_ptr<QueueResources> resources;
    std::shared_ptr<QueueOwner> owner;
};

} // namespace upcie::nvme
