// SPDX-License-Identifier: BSD-3-Clause
#include "nvme/admin_queue.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <upcie/nvme/command_error.hpp>

namespace upcie::nvme {

using std::chrono::steady_clock;

/// The admin queue is created and deleted by registers and not by commands, so there is nothing to do for its owner.
class AdminQueue::Owner final : public QueueOwner {
  public:
    void release(Qid /*qid*/, std::uint32_t /*generation*/,
                 std::unique_ptr<QueueResources> /*resources*/) noexcept override {}
    Result<std::uint32_t> recreate(Qid /*qid*/, const QueueResources& /*resources*/,
                                   std::uint32_t /*entries*/) override {
        return generation_.load();
    }
    void end() noexcept { generation_.fetch_add(1, std::memory_order_acq_rel); }
};

AdminQueue::AdminQueue(os::System& system, pci::Function& function, RegisterAccess& registers,
                       std::shared_ptr<Owner> owner, QueueSetup setup)
    : system_{system},
      function_{function},
      registers_{registers},
      owner_{std::move(owner)},
      space_{function.address_space()},
      ring_bytes_{setup.resources->rings.size() + setup.resources->lists.size()},
      queue_{std::move(setup)} {}

Result<std::unique_ptr<AdminQueue>> AdminQueue::create(os::System& system, pci::Function& function,
                                                       RegisterAccess& registers, Capabilities capabilities,
                                                       std::uint32_t entries, unsigned page_shift) {
    const std::string subject = fmt::format("{}, admin queue", registers.name());
    QueueSetup setup;
    setup.qid = Qid{0};
    setup.page_shift = page_shift;
    setup.list_pages = 1;
    setup.max_transfer = ByteCount{prp_capacity(1, page_shift)};
    for (const bool completion : {false, true}) {
        auto doorbell = registers.pointer(doorbell_offset(Qid{0}, completion, capabilities));
        if (!doorbell) {
            return tl::unexpected{std::move(doorbell).error()};
        }
        (completion ? setup.layout.completion_doorbell : setup.layout.submission_doorbell) = *doorbell;
    }
    auto rings = allocate_rings(system, function.address_space(), entries, page_shift, subject);
    if (!rings) {
        return tl::unexpected{std::move(rings).error()};
    }
    auto lists = allocate_lists(system, function.address_space(), entries - 1, page_shift, subject);
    if (!lists) {
        return tl::unexpected{std::move(lists).error()};
    }
    setup.layout.submission = rings->submission;
    setup.layout.completion = rings->completion;
    setup.layout.entries = entries;
    setup.layout.prp_lists = reinterpret_cast<std::uint64_t*>(lists->buffer.data());
    setup.layout.prp_list_stride = std::uint32_t{1} << page_shift;
    setup.resources = std::make_unique<QueueResources>();
    setup.resources->rings = std::move(rings->buffer);
    setup.resources->lists = std::move(lists->buffer);
    setup.resources->list_addresses = std::move(lists->addresses);
    auto owner = std::make_shared<Owner>();
    setup.owner = owner;
    std::unique_ptr<AdminQueue> queue{new AdminQueue{system, function, registers, std::move(owner), std::move(setup)}};
    queue->submission_address_ = rings->submission_address;
    queue->completion_address_ = rings->completion_address;
    return queue;
}

Result<memory::DmaBuffer> AdminQueue::take_bounce(ByteCount bytes) {
    const auto fits =
        std::find_if(idle_.begin(), idle_.end(), [&](const memory::DmaBuffer& one) { return one.size() >= bytes; });
    if (fits == idle_.end()) {
        return memory::DmaBuffer::allocate(system_, space_, bytes);
    }
    memory::DmaBuffer taken = std::move(*fits);
    idle_.erase(fits);
    return taken;
}

void AdminQueue::give_back(memory::DmaBuffer bounce) {
    constexpr std::size_t kept_ready = 4;
    if (bounce.size() != ByteCount{} && idle_.size() < kept_ready) {
        idle_.push_back(std::move(bounce));
    }
}

// A mutex is not fair: who waits for long leaves it alone for a while, or nobody else would get in.
void AdminQueue::pause(std::unique_lock<std::mutex>& lock, steady_clock::duration waited) {
    lock.unlock();
    function_.pause();
    if (waited > std::chrono::milliseconds{5}) {
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    lock.lock();
}

Result<void> AdminQueue::check_health() {
    const auto status = registers_.status();
    if (!status) {
        return tl::unexpected{status.error()};
    }
    if (status->fatal()) {
        return fail(EIO, "wait for admin command", registers_.name(),
                    "The controller reports a fatal error (CSTS.CFS): reset() it");
    }
    return {};
}

void AdminQueue::take(Completion completion) {
    const auto place = pending_.find(completion.cookie);
    if (place == pending_.end()) {
        return;
    }
    Pending& pending = place->second;
    if (pending.event && completion.outcome() == Outcome::completed) {
        if (completion.ok()) {
            events_.push_back(static_cast<std::uint32_t>(completion.result));
        } else {
            event_errors_.push_back(to_error(completion, "Asynchronous Event Request", registers_.name()));
        }
    }
    if (completion.outcome() == Outcome::timed_out && pending.bounce.size() != ByteCount{}) {
        held_.push_back({completion.cid(), std::move(pending.bounce)});
    }
    if (pending.event || pending.abandoned) {
        give_back(std::move(pending.bounce));
        pending_.erase(place);
        return;
    }
    pending.completion = completion;
    pending.ended = true;
}

void AdminQueue::reap() {
    std::array<Completion, 16> completions;
    std::size_t count = 0;
    do {
        count = queue_.poll(completions);
        for (std::size_t i = 0; i < count; ++i) {
            take(completions[i]);
        }
    } while (count == completions.size());
    for (std::size_t i = 0; i < held_.size();) {
        if (queue_.is_outstanding(held_[i].cid)) {
            ++i;
        } else {
            give_back(std::move(held_[i].bounce));
            held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

Result<std::uint64_t> AdminQueue::run(const Command& command, std::span<std::byte> data,
                                      std::chrono::nanoseconds timeout) {
    const std::string operation = admin_command_name(command.opcode);
    const ByteCount bytes{data.size()};
    std::unique_lock lock{mutex_};
    memory::DmaBuffer bounce;
    std::vector<iommu::Extent> extents;
    if (!data.empty()) {
        auto taken = take_bounce(bytes);
        if (!taken) {
            return tl::unexpected{std::move(taken).error()};
        }
        bounce = std::move(*taken);
        extents = leading_extents(bounce, bytes);
        if ((command.opcode & 1) != 0) {
            std::memcpy(bounce.data(), data.data(), data.size());
        } else {
            std::memset(bounce.data(), 0, data.size());
        }
    }

    const std::uint64_t token = next_token_++;
    const steady_clock::time_point started = steady_clock::now();
    for (;;) {
        queue_.set_timeout(timeout);
        // Without data PRP entries are the caller's: where a queue that is being created lies.
        const Submitted submitted =
            data.empty() ? queue_.submit(command, token) : queue_.submit(command, extents, bytes, token);
        if (submitted) {
            break;
        }
        const bool late = timeout.count() != 0 && steady_clock::now() - started >= timeout;
        if (submitted.refusal() != Refusal::queue_full || late) {
            give_back(std::move(bounce));
            return tl::unexpected{submitted.error(operation, registers_.name())};
        }
        reap();
        if (auto healthy = check_health(); !healthy) {
            give_back(std::move(bounce));
            return tl::unexpected{std::move(healthy).error()};
        }
        pause(lock, steady_clock::now() - started);
    }
    pending_[token].bounce = std::move(bounce);
    queue_.ring();

    // A look at CSTS is a read across the bus: once a millisecond is enough to notice that no answer will come.
    constexpr std::chrono::milliseconds health_interval{1};
    steady_clock::time_point next_check = started + health_interval;
    for (;;) {
        reap();
        Pending& pending = pending_.at(token);
        if (pending.ended) {
            break;
        }
        if (const auto now = steady_clock::now(); now >= next_check) {
            if (auto healthy = check_health(); !healthy) {
                pending.abandoned = true; // its buffer stays until the command ends
                return tl::unexpected{std::move(healthy).error()};
            }
            next_check = now + health_interval;
        }
        pause(lock, steady_clock::now() - started);
    }
    Pending ended = std::move(pending_.at(token));
    pending_.erase(token);
    if (ended.completion.ok()) {
        if ((command.opcode & 2) != 0 && !data.empty()) {
            std::memcpy(data.data(), ended.bounce.data(), data.size());
        }
        give_back(std::move(ended.bounce));
        return ended.completion.result;
    }
    if (ended.completion.outcome() != Outcome::timed_out) {
        give_back(std::move(ended.bounce));
    }
    return tl::unexpected{to_error(ended.completion, operation, registers_.name())};
}

Result<void> AdminQueue::request_event() {
    Command command;
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::asynchronous_event_request);
    const std::lock_guard lock{mutex_};
    queue_.set_timeout(std::chrono::nanoseconds{0}); // it waits for something to happen
    const std::uint64_t token = next_token_++;
    const Submitted submitted = queue_.submit(command, token);
    if (!submitted) {
        return tl::unexpected{submitted.error("Asynchronous Event Request", registers_.name())};
    }
    pending_[token].event = true;
    queue_.ring();
    return {};
}

Result<std::vector<std::uint32_t>> AdminQueue::take_events() {
    const std::lock_guard lock{mutex_};
    reap();
    if (!event_errors_.empty()) {
        Error first = std::move(event_errors_.front());
        event_errors_.erase(event_errors_.begin());
        return tl::unexpected{std::move(first)};
    }
    return std::exchange(events_, {});
}

void AdminQueue::end_all() {
    const std::lock_guard lock{mutex_};
    owner_->end();
    do {
        reap();
    } while (queue_.outstanding() != 0);
}

Result<void> AdminQueue::restart() {
    const std::lock_guard lock{mutex_};
    return queue_.restart();
}

ByteCount AdminQueue::memory() const {
    const std::lock_guard lock{mutex_};
    ByteCount bytes = ring_bytes_;
    for (const auto& [token, pending] : pending_) {
        bytes += pending.bounce.size();
    }
    for (const Held& held : held_) {
        bytes += held.bounce.size();
    }
    return bytes;
}

std::size_t AdminQueue::held_buffers() const {
    const std::lock_guard lock{mutex_};
    return held_.size();
}

std::string admin_command_name(std::uint8_t opcode) {
    switch (static_cast<AdminOpcode>(opcode)) {
    case AdminOpcode::delete_submission_queue:
        return "Delete I/O Submission Queue";
    case AdminOpcode::create_submission_queue:
        return "Create I/O Submission Queue";
    case AdminOpcode::get_log_page:
        return "Get Log Page";
    case AdminOpcode::delete_completion_queue:
        return "Delete I/O Completion Queue";
    case AdminOpcode::create_completion_queue:
        return "Create I/O Completion Queue";
    case AdminOpcode::identify:
        return "Identify";
    case AdminOpcode::abort:
        return "Abort";
    case AdminOpcode::set_features:
        return "Set Features";
    case AdminOpcode::get_features:
        return "Get Features";
    case AdminOpcode::asynchronous_event_request:
        return "Asynchronous Event Request";
    case AdminOpcode::namespace_management:
        return "Namespace Management";
    case AdminOpcode::format_nvm:
        return "Format NVM";
    }
    return fmt::format("admin command {:02x}h", opcode);
}

} // namespace upcie::nvme
