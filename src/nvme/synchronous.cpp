// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/synchronous.hpp>

#include <cerrno>
#include <chrono>

#include <fmt/format.h>

namespace upcie::nvme {

using std::chrono::steady_clock;

Result<void> Synchronous::begin() const {
    const auto subject = [&] { return fmt::format("{}, queue {}", controller_.name(), queue_.qid().value()); };
    if (!queue_.alive()) {
        return tl::unexpected{to_error(Refusal::queue_dead, "run command", subject())};
    }
    if (queue_.outstanding() != queue_.timed_out_outstanding()) {
        return fail(EBUSY, "run command", subject(),
                    "Other commands are outstanding, whose completions would be lost: poll() for them first, or use "
                    "another queue");
    }
    return {};
}

Result<Completion> Synchronous::next() {
    queue_.ring();
    // A look at CSTS is a read across the bus: once a millisecond is enough to notice that no answer will come.
    constexpr std::chrono::milliseconds health_interval{1};
    steady_clock::time_point next_check = steady_clock::now() + health_interval;
    Completion completion;
    for (;;) {
        if (queue_.poll({&completion, 1}) != 0) {
            return completion;
        }
        if (const auto now = steady_clock::now(); now >= next_check) {
            // During a reset CSTS may say anything; the commands end by themselves then.
            if (const auto status = controller_.status(); !status && controller_.state() == ControllerState::ready) {
                return tl::unexpected{status.error()};
            }
            next_check = now + health_interval;
        }
        controller_.function()->pause();
    }
}

Result<std::uint64_t> run(Controller& controller, QueuePair& queue, const Command& command,
                          std::span<const iommu::Extent> data, ByteCount bytes) {
    Synchronous calls{controller, queue};
    if (auto begun = calls.begin(); !begun) {
        return tl::unexpected{std::move(begun).error()};
    }
    const std::string operation = fmt::format("I/O command {:02x}h", command.opcode);
    const std::string subject = fmt::format("{}, queue {}", controller.name(), queue.qid().value());
    const Submitted submitted =
        bytes == ByteCount{} && data.empty() ? queue.submit(command, 0) : queue.submit(command, data, bytes, 0);
    if (!submitted) {
        return tl::unexpected{submitted.error(operation, subject)};
    }
    const auto completion = calls.next();
    if (!completion) {
        return tl::unexpected{completion.error()};
    }
    if (!completion->ok()) {
        return tl::unexpected{to_error(*completion, operation, subject)};
    }
    return completion->result;
}

} // namespace upcie::nvme
