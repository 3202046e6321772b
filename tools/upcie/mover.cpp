// SPDX-License-Identifier: BSD-3-Clause
#include "mover.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <upcie/nvme/command_error.hpp>

#include "interruption.hpp"

namespace upcie::cli {

namespace {

constexpr std::chrono::seconds suspicious_silence{1};
constexpr std::chrono::milliseconds completion_wait{100};

std::chrono::nanoseconds nanoseconds(double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>{seconds});
}

} // namespace

void add_move_options(CLI::App& subcommand, MoveOptions& options) {
    subcommand.add_option("--depth", options.depth, "Commands in flight")
        ->capture_default_str()
        ->check(CLI::Range(1U, 65535U))
        ->type_name("N");
    subcommand.add_option("--size", options.bytes, "Bytes of one command at most, with K or M")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false))
        ->type_name("BYTES");
    subcommand.add_option("--timeout", options.timeout_seconds, "Seconds until a command counts as lost")
        ->capture_default_str()
        ->check(CLI::Range(0.001, 86400.0))
        ->type_name("SECONDS");
    subcommand.add_flag("--interrupt", options.interrupt, "Wait for interrupts instead of polling");
    add_memory_options(subcommand, options.into);
}

unsigned vectors_for(bool interrupt, unsigned queues) {
    return interrupt ? queues + 1 : 0;
}

Outcome<Mover> Mover::create(Context& context, Session& session, const Target& target, const MoveOptions& options) {
    Mover mover;
    mover.system_ = &context.system;
    mover.controller_ = session.controller;
    mover.format_ = target.format;
    mover.interrupt_ = options.interrupt;
    const std::uint64_t block_size = target.block_size();
    if (options.bytes < block_size || options.bytes % block_size != 0) {
        return stop(fail(EINVAL, "choose the size of a command", fmt::format("{} bytes", options.bytes),
                         fmt::format("--size is a multiple of the block size, {} bytes here.", block_size)),
                    ExitCode::usage);
    }
    std::uint64_t bytes = options.bytes;
    if (const auto limit = session.controller->max_transfer()) {
        bytes = std::min(bytes, limit->value() / block_size * block_size);
    }
    constexpr std::uint64_t largest = std::uint64_t{2} << 20;
    bytes = std::clamp(bytes, block_size, largest);
    mover.blocks_ = static_cast<std::uint32_t>(bytes / block_size);

    nvme::QueueOptions queue_options;
    queue_options.depth = std::min(options.depth + 1, session.controller->capabilities().max_queue_entries());
    queue_options.timeout = nanoseconds(options.timeout_seconds);
    queue_options.max_transfer = ByteCount{std::max(bytes, std::uint64_t{4096})};
    if (options.interrupt) {
        if (session.controller->interrupt_vectors() < 2) {
            return stop(fail(ENOTSUP, "wait for interrupts", session.controller->name(),
                             "This path or device has no interrupt vectors: leave --interrupt away."),
                        ExitCode::precondition);
        }
        queue_options.interrupt_vector = 1;
    }
    std::uint32_t slots = queue_options.depth - 1;
    // Each slot starts on a page of its own, so that a command's blocks are contiguous in as few pages as can be.
    constexpr std::uint64_t page = 4096;
    const std::uint64_t stride = (bytes + page - 1) / page * page;
    auto memory = TransferMemory::make(context, session, options.into, ByteCount{stride * slots}, ByteCount{stride});
    if (!memory) {
        return tl::unexpected{std::move(memory.error())};
    }
    slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(slots, memory->size().value() / stride));
    mover.memory_ = std::move(*memory);
    queue_options.registry = mover.memory_.registry();
    auto queue = session.controller->create_queue_pair(queue_options);
    if (!queue) {
        return stop(std::move(queue.error()));
    }
    mover.queue_.emplace(std::move(*queue));
    for (std::uint32_t i = 0; i < slots; ++i) {
        mover.slots_.push_back({{}, MemoryPart{mover.memory_, ByteCount{i * stride}, ByteCount{bytes}}});
        mover.free_.push_back(slots - 1 - i);
    }
    return mover;
}

Result<void> Mover::run(const Next& next, const Done& done) {
    failure_.reset();
    bool more = true;
    last_progress_ = std::chrono::steady_clock::now();
    std::array<nvme::Completion, 64> completions;
    while (true) {
        while (more && !failure_ && !free_.empty()) {
            if (Interruption::requested()) {
                failure_ = Interruption::error("move blocks", controller_->name());
                break;
            }
            const std::uint32_t index = free_.back();
            Slot& slot = slots_[index];
            const auto transfer = next(slot.memory.bytes());
            if (!transfer) {
                more = false;
                break;
            }
            slot.transfer = *transfer;
            // For a read as well: what was there before must not pass for what the drive brought.
            if (auto there = slot.memory.to_device(); !there) {
                failure_ = std::move(there.error());
                break;
            }
            const bool write = transfer->opcode == nvme::IoOpcode::write;
            const auto submitted =
                write ? queue_->write(format_, Lba{transfer->lba}, transfer->blocks, slot.memory.address(), index)
                      : queue_->read(format_, Lba{transfer->lba}, transfer->blocks, slot.memory.address(), index);
            if (!submitted) {
                failure_ = submitted.error(describe(*transfer), controller_->name());
                break;
            }
            free_.pop_back();
            ++in_flight_;
        }
        queue_->ring();
        if (in_flight_ == 0) {
            if (!failure_ && more) {
                // Every slot's memory is with a command that timed out, and may still be written to.
                failure_ = fail(ETIMEDOUT, "move blocks", controller_->name(),
                                "Every command in flight timed out; `upcie reset` the device, and look at dmesg.")
                               .value();
            }
            break;
        }
        const std::size_t count = queue_->poll(completions);
        collect(std::span{completions}.first(count), done);
        if (count > 0) {
            last_progress_ = std::chrono::steady_clock::now();
        } else if (auto alive = wait(); !alive) {
            in_flight_ = 0; // they end with the queue; nothing of theirs is used any more
            free_.clear();
            return alive;
        }
    }
    return failure_ ? Result<void>{tl::unexpected{*failure_}} : Result<void>{};
}

void Mover::collect(std::span<const nvme::Completion> completions, const Done& done) {
    for (const auto& completion : completions) {
        const auto index = static_cast<std::uint32_t>(completion.cookie);
        Slot& slot = slots_[index];
        const std::size_t bytes = std::size_t{slot.transfer.blocks} << format_.block_shift;
        Landed landed{slot.memory, bytes};
        const auto taken = done(slot.transfer, landed, completion);
        if (!taken && !failure_) {
            failure_ = taken.error();
        }
        --in_flight_;
        if (completion.outcome() != nvme::Outcome::timed_out) {
            free_.push_back(index);
        } else if (auto status = controller_->status(); !status && !failure_) {
            failure_ = std::move(status.error()); // the cause, which a time-out is not
        }
    }
}

Result<void> Mover::wait() {
    if (std::chrono::steady_clock::now() - last_progress_ > suspicious_silence) {
        if (auto status = controller_->status(); !status) {
            return tl::unexpected{std::move(status.error())};
        }
        last_progress_ = std::chrono::steady_clock::now();
    }
    if (!interrupt_) {
        controller_->function()->pause();
        return {};
    }
    controller_->function()->pause(); // where a simulated controller without a thread does its work
    const auto fired = queue_->wait_for_interrupt(*system_, completion_wait);
    if (!fired && !fired.error().is(EINTR)) {
        return tl::unexpected{fired.error()};
    }
    return {};
}

Result<void> Mover::flush() {
    if (const auto submitted = queue_->flush(format_.nsid, 0); !submitted) {
        return tl::unexpected{submitted.error("flush", controller_->name())};
    }
    queue_->ring();
    last_progress_ = std::chrono::steady_clock::now();
    nvme::Completion completion;
    while (queue_->poll({&completion, 1}) == 0) {
        if (auto alive = wait(); !alive) {
            return alive;
        }
    }
    if (!completion.ok()) {
        return tl::unexpected{nvme::to_error(completion, "flush", controller_->name())};
    }
    return {};
}

std::string describe(const Transfer& transfer) {
    const char* verb = transfer.opcode == nvme::IoOpcode::write ? "write" : "read";
    return transfer.blocks == 1
               ? fmt::format("{} block {}", verb, transfer.lba)
               : fmt::format("{} blocks {} to {}", verb, transfer.lba, transfer.lba + transfer.blocks - 1);
}

Result<void> must_succeed(const Transfer& transfer, const nvme::Completion& completion, const Target& target) {
    if (completion.ok()) {
        return {};
    }
    return tl::unexpected{
        nvme::to_error(completion, describe(transfer), fmt::format("namespace {}", target.info.nsid.value()))};
}

} // namespace upcie::cli
