// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/namespace.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <upcie/memory/buffer.hpp>
#include <upcie/nvme/command_error.hpp>
#include <upcie/nvme/synchronous.hpp>

#include "nvme/queue_memory.hpp"

namespace upcie::nvme {
namespace {

/// Blocks that one command can say at most (NLB is 16 bits, zero-based).
constexpr std::uint64_t command_blocks = 65536;

/// Dataset Management range (NVM Command Set Specification 1.0, figure 39).
struct RangeEntry {
    std::uint32_t attributes = 0;
    std::uint32_t blocks = 0;
    std::uint64_t first = 0;
};
static_assert(sizeof(RangeEntry) == 16);

} // namespace

Namespace::Namespace(std::shared_ptr<Controller> controller, NamespaceInfo info, BlockFormat format)
    : controller_{std::move(controller)}, info_{std::move(info)}, format_{format} {}

std::string Namespace::subject() const {
    return fmt::format("{}, namespace {}", controller_->name(), info_.nsid.value());
}

Result<Namespace> Namespace::open(std::shared_ptr<Controller> controller, Nsid nsid) {
    auto info = controller->identify_namespace(nsid);
    if (!info) {
        return tl::unexpected{std::move(info).error()};
    }
    const std::string subject = fmt::format("{}, namespace {}", controller->name(), nsid.value());
    const LbaFormat format = info->format();
    if (format.metadata_bytes != 0) {
        return fail(
            ENOTSUP, "open namespace", subject,
            fmt::format("Its blocks carry {} bytes of metadata each ({}), which this library does not transfer: "
                        "format it with a format that has none",
                        format.metadata_bytes, info->extended_metadata ? "behind the data" : "in a buffer of its own"));
    }
    if (format.data_shift < 9 || format.data_shift > 16) {
        return fail(ENOTSUP, "open namespace", subject,
                    fmt::format("Blocks of 2^{} bytes are none that this library works with: format it with blocks of "
                                "512 bytes to 64 KiB",
                                format.data_shift));
    }
    if (info->size_blocks > (~std::uint64_t{0} >> format.data_shift)) {
        return fail(EPROTO, "open namespace", subject,
                    fmt::format("It says that it has {} blocks, more than 2^64 bytes: its firmware is at fault",
                                info->size_blocks));
    }
    return Namespace{std::move(controller), std::move(*info), BlockFormat{nsid, format.data_shift}};
}

Result<void> Namespace::check_range(const char* operation, Lba lba, std::uint64_t blocks) const {
    if (blocks == 0) {
        return fail(EINVAL, operation, subject(), "Name one block at least");
    }
    if (lba.value() >= info_.size_blocks || blocks > info_.size_blocks - lba.value()) {
        return fail(
            ERANGE, operation, subject(),
            fmt::format("{} blocks from {} are not all inside its {} blocks", blocks, lba.value(), info_.size_blocks));
    }
    return {};
}

template <class Submit>
Result<void> Namespace::run_split(QueuePair& queue, const char* operation, Lba lba, std::uint64_t blocks,
                                  std::uint64_t blocks_a_command, Submit submit) const {
    if (auto inside = check_range(operation, lba, blocks); !inside) {
        return inside;
    }
    if (blocks_a_command == 0) {
        return fail(EINVAL, operation, subject(),
                    fmt::format("The queue transfers {} bytes at most, less than a block of {}",
                                queue.max_transfer().value(), block_size()));
    }
    Synchronous calls{*controller_, queue};
    if (auto begun = calls.begin(); !begun) {
        return begun;
    }
    const auto piece = [&](std::uint64_t from) {
        return fmt::format("{}, {} blocks from {}", subject(), std::min(blocks_a_command, blocks - from),
                           lba.value() + from);
    };
    std::uint64_t submitted = 0; // blocks
    std::uint64_t in_flight = 0; // commands
    std::optional<Error> error;
    for (;;) {
        while (submitted < blocks && !error) {
            const std::uint64_t now = std::min(blocks_a_command, blocks - submitted);
            const Submitted one = submit(Lba{lba.value() + submitted}, static_cast<std::uint32_t>(now),
                                         submitted << format_.block_shift, submitted);
            if (!one) {
                if (one.refusal() != Refusal::queue_full || in_flight == 0) {
                    error = one.error(operation, piece(submitted));
                }
                break;
            }
            submitted += now;
            ++in_flight;
        }
        if (in_flight == 0) {
            break;
        }
        const auto completion = calls.next();
        if (!completion) {
            return tl::unexpected{completion.error()};
        }
        --in_flight;
        if (!completion->ok() && !error) {
            error = to_error(*completion, operation, piece(completion->cookie));
        }
    }
    if (error) {
        return tl::unexpected{std::move(*error)};
    }
    return {};
}

Result<void> Namespace::read(QueuePair& queue, Lba lba, std::uint64_t blocks, void* data) const {
    const std::uint64_t most = std::min(queue.max_transfer().value() >> format_.block_shift, command_blocks);
    return run_split(queue, "read", lba, blocks, most,
                     [&](Lba from, std::uint32_t count, std::uint64_t offset, std::uint64_t cookie) {
                         return queue.read(format_, from, count, static_cast<std::byte*>(data) + offset, cookie);
                     });
}

Result<void> Namespace::write(QueuePair& queue, Lba lba, std::uint64_t blocks, const void* data) const {
    const std::uint64_t most = std::min(queue.max_transfer().value() >> format_.block_shift, command_blocks);
    return run_split(queue, "write", lba, blocks, most,
                     [&](Lba from, std::uint32_t count, std::uint64_t offset, std::uint64_t cookie) {
                         return queue.write(format_, from, count, static_cast<const std::byte*>(data) + offset, cookie);
                     });
}

Result<void> Namespace::write_zeroes(QueuePair& queue, Lba lba, std::uint64_t blocks) const {
    if (!controller_->info().has_write_zeroes()) {
        return fail(ENOTSUP, "write zeroes", subject(),
                    "The controller has no Write Zeroes (ONCS bit 3): write a buffer of zeroes");
    }
    return run_split(queue, "write zeroes", lba, blocks, command_blocks,
                     [&](Lba from, std::uint32_t count, std::uint64_t /*offset*/, std::uint64_t cookie) {
                         return queue.write_zeroes(format_, from, count, cookie);
                     });
}

Result<void> Namespace::flush(QueuePair& queue) const {
    Command command;
    command.opcode = static_cast<std::uint8_t>(IoOpcode::flush);
    command.nsid = info_.nsid.value();
    return run(*controller_, queue, command).map([](std::uint64_t) {}).map_error([&](Error error) {
        error.operation = "flush";
        return error;
    });
}

Result<void> Namespace::deallocate(QueuePair& queue, std::span<const LbaRange> ranges) const {
    constexpr std::size_t most_ranges = 256;
    if (!controller_->info().has_dataset_management()) {
        return fail(ENOTSUP, "deallocate", subject(), "The controller has no Dataset Management (ONCS bit 2)");
    }
    if (ranges.empty() || ranges.size() > most_ranges) {
        return fail(EINVAL, "deallocate", subject(),
                    fmt::format("One command takes 1 to {} ranges, not {}", most_ranges, ranges.size()));
    }
    for (const LbaRange& range : ranges) {
        if (auto inside = check_range("deallocate", range.first, range.blocks); !inside) {
            return inside;
        }
    }
    const ByteCount bytes{ranges.size() * sizeof(RangeEntry)};
    auto list = memory::DmaBuffer::allocate(controller_->system(), controller_->address_space(), bytes);
    if (!list) {
        return tl::unexpected{std::move(list).error()};
    }
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const RangeEntry entry{0, ranges[i].blocks, ranges[i].first.value()};
        std::memcpy(list->data() + i * sizeof entry, &entry, sizeof entry);
    }
    Command command;
    command.opcode = static_cast<std::uint8_t>(IoOpcode::dataset_management);
    command.nsid = info_.nsid.value();
    command.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
    command.cdw11 = 4; // AD
    auto done = run(*controller_, queue, command, leading_extents(*list, bytes), bytes);
    if (!done) {
        Error error = std::move(done).error();
        error.operation = "deallocate";
        // The controller may read the list as long as it has not answered.
        if (error.domain == ErrorDomain::system && queue.outstanding() != 0) {
            controller_->keep(std::make_shared<memory::DmaBuffer>(std::move(*list)), bytes);
        }
        return tl::unexpected{std::move(error)};
    }
    return {};
}

} // namespace upcie::nvme
