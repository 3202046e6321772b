// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "histogram.hpp"
#include "mover.hpp"

namespace upcie::cli {

/// What each queue of a bench does.
struct BenchLoad {
    std::uint32_t depth = 32;
    std::uint32_t blocks = 8; ///< of one command
    BlockRange range;
    bool write = false;
    bool sequential = false;
    bool interrupt = false;
    std::uint64_t seed = 1;
};

/// One queue kept full by one thread: submit a batch, ring once, poll.
///
/// Latency is from the clock reading before a command's batch is rung to the one after the poll that brought its
/// completion; the clock is read once a batch. Threads: run() in one, the counters from any.
class BenchWorker {
  public:
    [[nodiscard]] static Outcome<std::unique_ptr<BenchWorker>> create(Context& context, Session& session,
                                                                      const Target& target, const BenchLoad& load,
                                                                      unsigned number, double timeout_seconds);

    /// Until `stop`, then until everything in flight has come back.
    void run(const std::atomic<bool>& stop);

    [[nodiscard]] std::uint64_t finished() const noexcept { return finished_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }
    [[nodiscard]] const Histogram& latency() const noexcept { return latency_; }
    /// Of the first command that failed, or why the worker gave up.
    [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

  private:
    BenchWorker() = default;
    void submit(std::uint64_t now);
    void collect(std::size_t count);
    bool idle();
    [[nodiscard]] std::uint64_t next_lba() noexcept;

    os::System* system_ = nullptr;
    std::shared_ptr<nvme::Controller> controller_;
    nvme::BlockFormat format_;
    BenchLoad load_;
    std::uint64_t slots_of_range_ = 1;
    std::uint64_t random_ = 1;
    std::uint64_t cursor_ = 0;
    TransferMemory memory_;
    std::size_t stride_ = 0;
    std::vector<std::uint64_t> started_;
    std::vector<std::uint32_t> free_;
    std::vector<nvme::Completion> completions_;
    std::uint32_t in_flight_ = 0;
    std::uint64_t last_progress_ = 0;
    std::uint64_t failed_ = 0;
    bool controller_lost_ = false; ///< and error_ says how
    std::atomic<std::uint64_t> finished_{0};
    Histogram latency_;
    std::optional<Error> error_;
    std::optional<nvme::QueuePair> queue_; // declared last: deleted before the memory goes
};

} // namespace upcie::cli
