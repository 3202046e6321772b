// SPDX-License-Identifier: BSD-3-Clause
#include "bench_worker.hpp"

#include <algorithm>

#include <time.h>

#include <upcie/nvme/command_error.hpp>

namespace upcie::cli {

namespace {

std::uint64_t now_ns() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

constexpr std::uint64_t suspicious_silence_ns = 1'000'000'000;
constexpr std::chrono::milliseconds interrupt_wait{100};

} // namespace

Outcome<std::unique_ptr<BenchWorker>> BenchWorker::create(Context& context, Session& session, const Target& target,
                                                          const BenchLoad& load, unsigned number,
                                                          double timeout_seconds) {
    std::unique_ptr<BenchWorker> worker{new BenchWorker};
    worker->system_ = &context.system;
    worker->controller_ = session.controller;
    worker->format_ = target.format;
    worker->load_ = load;
    worker->slots_of_range_ = std::max(load.range.count / load.blocks, std::uint64_t{1});
    worker->random_ = (load.seed + number) * 0x9e3779b97f4a7c15ULL | 1;
    const std::uint64_t bytes = std::uint64_t{load.blocks} << target.format.block_shift;
    constexpr std::uint64_t page = 4096;
    worker->stride_ = static_cast<std::size_t>((bytes + page - 1) / page * page);
    auto memory =
        TransferMemory::make(context, session, {}, ByteCount{worker->stride_ * load.depth}, ByteCount{worker->stride_});
    if (!memory) {
        return tl::unexpected{std::move(memory.error())};
    }
    worker->memory_ = std::move(*memory);
    nvme::QueueOptions options;
    options.depth = load.depth + 1;
    options.timeout =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>{timeout_seconds});
    options.max_transfer = ByteCount{std::max(bytes, page)};
    options.registry = worker->memory_.registry();
    if (load.interrupt) {
        options.interrupt_vector = number + 1;
    }
    auto queue = session.controller->create_queue_pair(options);
    if (!queue) {
        return stop(std::move(queue.error()));
    }
    worker->queue_.emplace(std::move(*queue));
    worker->started_.resize(load.depth);
    worker->completions_.resize(load.depth);
    for (std::uint32_t i = 0; i < load.depth; ++i) {
        worker->free_.push_back(i);
    }
    return worker;
}

std::uint64_t BenchWorker::next_lba() noexcept {
    if (load_.sequential) {
        const std::uint64_t slot = cursor_;
        cursor_ = cursor_ + 1 == slots_of_range_ ? 0 : cursor_ + 1;
        return load_.range.first + slot * load_.blocks;
    }
    // xorshift64*: cheap, and good enough to spread addresses. The product's high half maps it to the range.
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    __extension__ using Wide = unsigned __int128;
    const auto slot = static_cast<std::uint64_t>((Wide{random_ * 0x2545f4914f6cdd1dULL} * slots_of_range_) >> 64);
    return load_.range.first + slot * load_.blocks;
}

void BenchWorker::submit(std::uint64_t now) {
    while (!free_.empty()) {
        const std::uint32_t slot = free_.back();
        std::byte* const data = memory_.data() + std::size_t{slot} * stride_;
        const Lba lba{next_lba()};
        const auto submitted = load_.write ? queue_->write(format_, lba, load_.blocks, data, slot)
                                           : queue_->read(format_, lba, load_.blocks, data, slot);
        if (!submitted) {
            error_ = submitted.error("submit", controller_->name());
            return;
        }
        started_[slot] = now;
        free_.pop_back();
        ++in_flight_;
    }
}

void BenchWorker::collect(std::size_t count) {
    const std::uint64_t now = now_ns();
    last_progress_ = now;
    for (std::size_t i = 0; i < count; ++i) {
        const auto& completion = completions_[i];
        const auto slot = static_cast<std::uint32_t>(completion.cookie);
        --in_flight_;
        if (completion.ok()) [[likely]] {
            latency_.add(now - started_[slot]);
        } else {
            ++failed_;
            if (auto status = controller_->status(); !status && !controller_lost_) {
                controller_lost_ = true;
                error_ = std::move(status.error()); // the cause, which a command's time-out or end is not
            }
            if (!error_) {
                error_ = nvme::to_error(completion, load_.write ? "write" : "read", controller_->name());
            }
        }
        if (completion.outcome() != nvme::Outcome::timed_out) {
            free_.push_back(slot);
        }
    }
    finished_.store(latency_.count(), std::memory_order_relaxed);
}

/// Nothing came: lets the processor go, or sleeps until an interrupt. False when the controller is lost.
bool BenchWorker::idle() {
    if (now_ns() - last_progress_ > suspicious_silence_ns) {
        if (auto status = controller_->status(); !status) {
            error_ = status.error();
            return false;
        }
        last_progress_ = now_ns();
    }
    if (!load_.interrupt) {
        controller_->function()->pause();
        return true;
    }
    controller_->function()->pause(); // where a simulated controller without a thread does its work
    const auto fired = queue_->wait_for_interrupt(*system_, interrupt_wait);
    if (!fired && !fired.error().is(EINTR)) {
        error_ = fired.error();
        return false;
    }
    return true;
}

void BenchWorker::run(const std::atomic<bool>& stop) {
    last_progress_ = now_ns();
    bool going = true;
    while (true) {
        going = going && !stop.load(std::memory_order_relaxed) && !error_;
        if (going && !free_.empty()) {
            submit(now_ns());
            queue_->ring();
        }
        if (in_flight_ == 0) {
            return;
        }
        const std::size_t count = queue_->poll(completions_);
        if (count > 0) {
            collect(count);
        } else if (!idle()) {
            return;
        }
    }
}

} // namespace upcie::cli
