// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/nvme/controller.hpp>

#include "device.hpp"
#include "transfer_memory.hpp"

namespace upcie::cli {

/// How blocks are moved; options that several subcommands have.
struct MoveOptions {
    std::uint32_t depth = 32;        ///< commands in flight
    std::uint64_t bytes = 64 * 1024; ///< of one command at most; the controller's limit counts too
    double timeout_seconds = 30;     ///< of one command
    bool interrupt = false;          ///< wait for interrupts instead of polling
    MemoryChoice into;               ///< whose memory
};

/// --depth, --size, --timeout, --interrupt, and where the memory is (add_memory_options)
void add_move_options(CLI::App& subcommand, MoveOptions& options);

/// Vectors a controller has to be opened with for these options: one for administration, one a queue.
[[nodiscard]] unsigned vectors_for(bool interrupt, unsigned queues);

/// One command's worth of blocks.
struct Transfer {
    nvme::IoOpcode opcode = nvme::IoOpcode::read;
    std::uint64_t lba = 0;
    std::uint32_t blocks = 0;
};

/// Moves blocks through one queue, several commands at a time, each with memory of its own.
///
/// Notices a controller that failed or went away while it waits. Threads: one at a time.
class Mover {
  public:
    /// Failure: precondition (no interrupts), or what making a queue and memory says.
    [[nodiscard]] static Outcome<Mover> create(Context& context, Session& session, const Target& target,
                                               const MoveOptions& options);

    /// Fills in the next transfer, and for a write its data; none: there is no more.
    using Next = std::function<std::optional<Transfer>(std::span<std::byte> memory)>;
    /// Takes what came of a transfer. An Error ends the run, after what is in flight has come back.
    using Done = std::function<Result<void>(const Transfer&, Landed& landed, const nvme::Completion&)>;

    /// Error: the first of `done`, or why the controller does not go on; EINTR when a signal came (Interruption).
    Result<void> run(const Next& next, const Done& done);
    /// Error: the command's.
    Result<void> flush();

    /// Commands in flight at most.
    [[nodiscard]] std::size_t depth() const noexcept { return slots_.size(); }
    /// Blocks that one command takes at most.
    [[nodiscard]] std::uint32_t blocks_per_command() const noexcept { return blocks_; }

  private:
    Mover() = default;
    struct Slot {
        Transfer transfer;
        MemoryPart memory;
    };
    void collect(std::span<const nvme::Completion> completions, const Done& done);
    Result<void> wait();

    os::System* system_ = nullptr;
    std::shared_ptr<nvme::Controller> controller_;
    nvme::BlockFormat format_;
    std::uint32_t blocks_ = 0;
    bool interrupt_ = false;
    TransferMemory memory_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    std::uint32_t in_flight_ = 0;
    std::optional<Error> failure_;
    std::chrono::steady_clock::time_point last_progress_;
    std::optional<nvme::QueuePair> queue_; // declared last: deleted before the memory goes
};

/// "read blocks 16 to 23", for errors.
[[nodiscard]] std::string describe(const Transfer& transfer);

/// Done for commands that simply have to succeed.
[[nodiscard]] Result<void> must_succeed(const Transfer& transfer, const nvme::Completion& completion,
                                        const Target& target);

} // namespace upcie::cli
