// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include <upcie/nvme/command.hpp>
#include <upcie/nvme/sgl.hpp>
#include <upcie/nvme/status.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/sim/controller.hpp>

#include "sim/bar.hpp"
#include "sim/fault_player.hpp"
#include "sim/medium.hpp"

namespace upcie::sim {

/// What a command answers, before it is a completion entry.
struct Answer {
    nvme::Status status;
    std::uint32_t dword0 = 0;
    bool later = false; ///< completes when something happens (Asynchronous Event Request)
};

/// The controller's inside: all state, one lock. Split over several files by subject; see each heading below.
class Engine {
  public:
    Engine(Options options, std::shared_ptr<AddressSpace> space, std::shared_ptr<Bar> bar, std::vector<Medium> media,
           os::System& system);

    // ---- engine.cpp: the loop, and what the public Controller asks for. Threads: any
    std::size_t step();
    void advance(std::chrono::milliseconds time);
    void reset();
    [[nodiscard]] std::vector<Violation> violations() const;
    void clear_violations();
    void set_faults(FaultScript script);
    [[nodiscard]] std::vector<std::uint64_t> fault_hits() const;
    [[nodiscard]] Controller::Counters counters() const;
    void raise_event(std::uint8_t type, std::uint8_t information, std::uint8_t log_page);
    Result<void> read_medium(Nsid nsid, Lba lba, std::span<std::byte> out) const;
    Result<void> write_medium(Nsid nsid, Lba lba, std::span<const std::byte> data);
    void set_bus_master(bool enabled);
    [[nodiscard]] bool bus_master() const;
    Result<void> set_interrupts(std::span<const int> eventfds);
    [[nodiscard]] const std::shared_ptr<Bar>& bar() const noexcept { return bar_; }
    /// Vectors that the function offers.
    [[nodiscard]] static unsigned vector_count(const Options& options) noexcept;

  private:
    using Clock = std::chrono::steady_clock;
    using Command = nvme::Command;

    struct Completion { ///< waits for room in its ring
        std::uint16_t sqid = 0;
        std::uint16_t cid = 0;
        std::uint16_t shown_sqid = 0; ///< what the entry says: faults make it differ
        std::uint16_t shown_cid = 0;
        nvme::Status status;
        std::uint32_t dword0 = 0;
        bool frees_cid = true;
        bool wrong_phase = false;
    };
    struct CompletionQueue {
        bool exists = false;
        bool deleted = false; ///< existed before: the doorbell's fault has a better name
        std::uint64_t base = 0;
        std::uint32_t entries = 0;
        std::uint32_t head = 0;
        std::uint32_t tail = 0;
        std::uint32_t phase = 1;
        std::uint16_t vector = 0;
        bool interrupts = false;
        bool signal = false;
        std::deque<Completion> waiting;
    };
    struct SubmissionQueue {
        bool exists = false;
        bool deleted = false;
        std::uint64_t base = 0;
        std::uint32_t entries = 0;
        std::uint32_t head = 0;
        std::uint32_t tail = 0;
        std::uint32_t reported_head = 0; ///< the newest that a completion told the host
        std::uint16_t cqid = 0;
        std::unordered_set<std::uint16_t> outstanding;
    };
    struct Held { ///< a command that a fault keeps back
        Command command;
        std::uint16_t sqid = 0;
        std::optional<Answer> answer; ///< done already (reorder)
        std::uint64_t remaining = 0;  ///< completions of its queue to wait for
        Clock::time_point due{};      ///< or a moment
    };
    struct Segment { ///< of host memory
        std::uint64_t address;
        std::uint64_t length;
    };
    enum class Direction : std::uint8_t { from_host, to_host };
    using Segments = std::vector<Segment>;

    // ---- engine.cpp
    void violate(ViolationKind kind, std::string text);
    void note(const AccessFault& fault, const char* what);
    [[nodiscard]] Clock::time_point now() const { return Clock::now() + skew_; }

    // ---- registers.cpp: what the host writes into registers
    void lay_out_registers();
    std::size_t watch_registers();
    bool watch_fixed(std::uint64_t offset, std::uint32_t value, const char* name);
    void watch_latched();
    void change_cc(std::uint32_t cc);
    void start(std::uint32_t cc);
    bool set_up_admin_queues(std::uint32_t cc);
    void stop();
    void shut_down();
    void forget_queues();
    void set_csts(std::uint32_t csts);
    void fail_fatally();
    void vanish();
    [[nodiscard]] bool working() const noexcept;

    // ---- queues.cpp: doorbells, fetching, ring memory
    std::size_t watch_doorbells();
    void sweep_doorbells();
    template <class Queue>
    bool may_ring(const Queue& queue, std::uint16_t qid, const char* doorbell, std::uint32_t value);
    void ring_submission(std::uint16_t qid, std::uint32_t value);
    void ring_completion(std::uint16_t qid, std::uint32_t value);
    void doorbell_error(std::uint8_t information);
    [[nodiscard]] std::uint64_t doorbell_offset(std::uint16_t qid, bool completion) const noexcept;
    std::size_t fetch_all();
    bool fetch(std::uint16_t qid);
    [[nodiscard]] bool data_pointer_offered(const Command& command, std::uint16_t qid) const noexcept;
    void check_reserved(const Command& command, std::uint16_t qid);
    void begin(const Command& command, std::uint16_t qid);
    [[nodiscard]] bool queue_memory_overlaps(std::uint64_t base, std::uint64_t bytes) const;
    bool check_ring(const std::string& what, std::uint64_t base, std::uint64_t bytes, iommu::Access access);
    void check_zeroed(const std::string& what, std::uint64_t base, std::uint32_t entries);

    // ---- completions.cpp
    void finish(std::uint16_t qid, const Command& command, const Answer& answer, const FaultRule* fault = nullptr);
    void complete(Completion completion);
    std::size_t release_due();
    void count_down(std::uint16_t qid);
    std::size_t post_all();
    bool post(CompletionQueue& queue, const Completion& completion);
    void signal_all();
    [[nodiscard]] std::uint16_t unused_cid(const SubmissionQueue& queue, std::uint16_t near) const;

    // ---- scatter_gather.cpp: SGLs
    nvme::Status walk_sgl(const Command& command, std::uint64_t bytes, Segments& segments);
    nvme::Status read_sgl_segment(const Command& command, const nvme::SglDescriptor& link,
                                  std::vector<nvme::SglDescriptor>& descriptors);

    // ---- transfer.cpp: PRPs
    nvme::Status walk_prps(const Command& command, std::uint64_t bytes, Segments& segments);
    nvme::Status move(const Command& command, Direction direction, std::span<std::byte> data);
    nvme::Status send(const Command& command, std::span<const std::byte> data);

    // ---- admin.cpp, identify.cpp, features.cpp, logs.cpp
    Answer execute(const Command& command, std::uint16_t qid, const FaultRule* fault);
    Answer execute_admin(const Command& command);
    Answer create_completion_queue(const Command& command);
    Answer create_submission_queue(const Command& command);
    Answer delete_completion_queue(const Command& command);
    Answer delete_submission_queue(const Command& command);
    Answer abort(const Command& command);
    Answer await_event(const Command& command);
    Answer format(const Command& command);
    Answer identify(const Command& command);
    void fill_identify_controller(std::span<std::byte> page) const;
    void fill_identify_namespace(std::span<std::byte> page, std::uint32_t nsid) const;
    Answer set_features(const Command& command);
    Answer get_features(const Command& command);
    void reset_features();
    Answer get_log_page(const Command& command);
    void log_error(std::uint16_t qid, const Command& command, nvme::Status status);
    void deliver_events();
    [[nodiscard]] Medium* medium(std::uint32_t nsid);

    // ---- io.cpp
    Answer execute_io(const Command& command, const FaultRule* fault);
    Answer read_or_write(const Command& command, Medium& medium, const FaultRule* fault);
    Answer write_zeroes(const Command& command, Medium& medium);
    Answer manage_dataset(const Command& command, Medium& medium);

    const Options options_;
    const std::shared_ptr<AddressSpace> space_;
    const std::shared_ptr<Bar> bar_;
    os::System& system_;

    mutable std::mutex mutex_;
    std::vector<Medium> media_;
    FaultPlayer faults_;
    std::vector<Violation> violations_;
    Controller::Counters counters_;
    Clock::duration skew_{};

    // registers as last seen or set
    std::uint64_t cap_ = 0;
    std::uint32_t cc_ = 0;
    std::uint32_t csts_ = 0;
    std::uint32_t aqa_ = 0;
    std::uint64_t asq_ = 0;
    std::uint64_t acq_ = 0;
    bool gone_ = false;
    std::optional<Clock::time_point> ready_at_;
    std::uint32_t page_shift_ = 12;
    bool bus_master_ = false;
    bool noted_no_master_ = false;

    std::vector<std::uint32_t> doorbells_; ///< last seen value of every dword from 0x1000 on
    std::uint64_t doorbell_words_ = 0;
    std::uint64_t passes_ = 0;
    std::vector<SubmissionQueue> sqs_;
    std::vector<CompletionQueue> cqs_;
    std::deque<Held> held_;
    std::vector<os::Fd> eventfds_;

    // admin state
    std::uint16_t granted_sqs_ = 0;
    std::uint16_t granted_cqs_ = 0;
    std::array<std::uint32_t, 16> features_{};
    std::vector<std::uint32_t> vector_config_;
    struct Event {
        std::uint8_t type;
        std::uint8_t information;
        std::uint8_t log_page;
    };
    std::deque<Command> event_requests_;
    std::deque<Event> events_;
    std::bitset<8> masked_events_; ///< types told and not yet acknowledged by reading their log page
    std::array<std::uint8_t, 8> masked_by_{};
    struct ErrorEntry {
        std::uint64_t count;
        std::uint16_t sqid;
        std::uint16_t cid;
        std::uint16_t status;
        std::uint64_t lba;
        std::uint32_t nsid;
    };
    std::deque<ErrorEntry> errors_;
    std::uint64_t error_count_ = 0;
    std::uint64_t read_commands_ = 0;
    std::uint64_t write_commands_ = 0;
    std::uint64_t bytes_read_ = 0;
    std::uint64_t bytes_written_ = 0;

    static constexpr std::size_t max_event_requests = 4; ///< AERL + 1
    static constexpr std::size_t max_errors = 64;        ///< ELPE + 1
};

/// Fields of CC and CSTS (Base Specification 2.0, figures 46 and 47).
namespace bits {
constexpr std::uint32_t cc_enable = 1;
constexpr std::uint32_t cc_shutdown = 3U << 14;
constexpr std::uint32_t cc_entry_sizes = 0xffU << 16;
constexpr std::uint32_t csts_ready = 1;
constexpr std::uint32_t csts_fatal = 2;
constexpr std::uint32_t csts_shutdown = 3U << 2;
constexpr std::uint32_t csts_shutdown_complete = 2U << 2;
} // namespace bits

constexpr nvme::Status generic(std::uint8_t code) noexcept {
    return {nvme::StatusCodeType::generic, code, true};
}
constexpr nvme::Status specific(std::uint8_t code) noexcept {
    return {nvme::StatusCodeType::command_specific, code, true};
}
constexpr nvme::Status invalid_field = generic(0x02);
constexpr nvme::Status data_transfer_error = generic(0x04);

} // namespace upcie::sim
