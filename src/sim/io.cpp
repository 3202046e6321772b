// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

constexpr nvme::Status invalid_opcode = generic(0x01);
constexpr nvme::Status invalid_namespace = generic(0x0b);
constexpr nvme::Status lba_out_of_range = generic(0x80);

struct Blocks {
    std::uint64_t first;
    std::uint64_t count;
};

Blocks blocks_of(const nvme::Command& command) noexcept {
    return {command.cdw10 | (std::uint64_t{command.cdw11} << 32), (command.cdw12 & 0xffff) + std::uint64_t{1}};
}

bool inside(const Medium& medium, Blocks blocks) noexcept {
    return blocks.first < medium.blocks() && blocks.count <= medium.blocks() - blocks.first;
}

} // namespace

// NVM Command Set Specification 1.0, section 3.2.
Answer Engine::execute_io(const Command& command, const FaultRule* fault) {
    const auto opcode = static_cast<nvme::IoOpcode>(command.opcode);
    const bool without_data = opcode == nvme::IoOpcode::flush || opcode == nvme::IoOpcode::write_zeroes;
    if (without_data && (command.prp1 != 0 || command.prp2 != 0)) {
        violate(
            ViolationKind::reserved_field,
            fmt::format("command {} (opcode 0x{:02x}) moves no data and has PRP entries", command.cid, command.opcode));
    }
    if (opcode == nvme::IoOpcode::flush && command.nsid == ~0U && options_.volatile_cache) {
        return {};
    }
    Medium* const target = medium(command.nsid);
    if (target == nullptr) {
        return {invalid_namespace};
    }
    if (options_.metadata_size != 0 && opcode != nvme::IoOpcode::flush) {
        return {invalid_field};
    }
    switch (opcode) {
    case nvme::IoOpcode::flush:
        return {};
    case nvme::IoOpcode::read:
    case nvme::IoOpcode::write:
        return read_or_write(command, *target, fault);
    case nvme::IoOpcode::write_zeroes:
        return write_zeroes(command, *target);
    case nvme::IoOpcode::dataset_management:
        return manage_dataset(command, *target);
    default:
        return {invalid_opcode};
    }
}

Answer Engine::read_or_write(const Command& command, Medium& medium, const FaultRule* fault) {
    const bool reading = command.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::read);
    Blocks blocks = blocks_of(command);
    const std::uint64_t bytes = blocks.count * medium.block_size();
    const std::uint64_t page = std::uint64_t{4096} << options_.mpsmin;
    if (options_.mdts != 0 && bytes > page << options_.mdts) {
        return {invalid_field};
    }
    if (!inside(medium, blocks)) {
        return {lba_out_of_range};
    }
    if ((command.cdw12 & 0x3c000000U) != 0) { // protection information
        return {invalid_field};
    }
    if (fault != nullptr && fault->action == FaultAction::misplaced) {
        const Blocks moved{blocks.first + fault->count, blocks.count};
        const Blocks back{blocks.first - std::min(blocks.first, fault->count), blocks.count};
        blocks = inside(medium, moved) ? moved : back;
    }
    const std::span<std::byte> data = medium.bytes(blocks.first, blocks.count);
    nvme::Status status;
    if (fault != nullptr && fault->action == FaultAction::corrupt) {
        std::vector<std::byte> wrong{data.begin(), data.end()};
        const auto at = static_cast<std::size_t>(fault->count % bytes);
        if (reading) {
            wrong[at] ^= std::byte{0xff};
            status = send(command, wrong);
        } else {
            status = move(command, Direction::from_host, wrong);
            wrong[at] ^= std::byte{0xff};
            if (status.ok()) {
                std::copy(wrong.begin(), wrong.end(), data.begin());
            }
        }
    } else {
        status = move(command, reading ? Direction::to_host : Direction::from_host, data);
    }
    if (status.ok()) {
        ++(reading ? read_commands_ : write_commands_);
        (reading ? bytes_read_ : bytes_written_) += bytes;
    }
    return {status};
}

Answer Engine::write_zeroes(const Command& command, Medium& medium) {
    const Blocks blocks = blocks_of(command);
    if (!inside(medium, blocks)) {
        return {lba_out_of_range};
    }
    medium.zero(blocks.first, blocks.count);
    return {};
}

Answer Engine::manage_dataset(const Command& command, Medium& medium) {
    struct Range { ///< figure 43
        std::uint32_t attributes;
        std::uint32_t count;
        std::uint64_t first;
    };
    std::vector<Range> ranges((command.cdw10 & 0xff) + 1);
    const nvme::Status status = move(command, Direction::from_host, std::as_writable_bytes(std::span{ranges}));
    if (!status.ok()) {
        return {status};
    }
    for (const Range& range : ranges) {
        if (range.count != 0 && !inside(medium, {range.first, range.count})) {
            return {lba_out_of_range};
        }
    }
    if ((command.cdw11 & 4) != 0) { // AD: deallocate
        for (const Range& range : ranges) {
            medium.zero(range.first, range.count);
        }
    }
    return {};
}

} // namespace upcie::sim
