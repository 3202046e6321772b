// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <upcie/nvme/status.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// Admin command opcodes (Base Specification 2.0, figure 138).
enum class AdminOpcode : std::uint8_t {
    delete_submission_queue = 0x00,
    create_submission_queue = 0x01,
    get_log_page = 0x02,
    delete_completion_queue = 0x04,
    create_completion_queue = 0x05,
    identify = 0x06,
    abort = 0x08,
    set_features = 0x09,
    get_features = 0x0a,
    asynchronous_event_request = 0x0c,
    namespace_management = 0x0d,
    format_nvm = 0x80,
};

/// I/O command opcodes (NVM Command Set Specification 1.0, figure 16).
enum class IoOpcode : std::uint8_t {
    flush = 0x00,
    write = 0x01,
    read = 0x02,
    write_zeroes = 0x08,
    dataset_management = 0x09,
};

/// Submission queue entry, 64 bytes, little-endian as the processors this library runs on (Base Specification 2.0,
/// figure 87).
struct Command {
    std::uint8_t opcode = 0;
    std::uint8_t flags = 0; ///< bits 7:6 PSDT (0: PRP), 1:0 FUSE
    std::uint16_t cid = 0;  ///< filled by the queue
    std::uint32_t nsid = 0;
    std::uint32_t cdw2 = 0;
    std::uint32_t cdw3 = 0;
    std::uint64_t mptr = 0;
    std::uint64_t prp1 = 0; ///< filled by the queue when the command is given with data
    std::uint64_t prp2 = 0;
    std::uint32_t cdw10 = 0;
    std::uint32_t cdw11 = 0;
    std::uint32_t cdw12 = 0;
    std::uint32_t cdw13 = 0;
    std::uint32_t cdw14 = 0;
    std::uint32_t cdw15 = 0;
};
static_assert(sizeof(Command) == 64 && std::is_standard_layout_v<Command>);

/// Completion queue entry, 16 bytes (Base Specification 2.0, figure 88). Dword 3 holds CID 15:0, phase 16, status
/// 31:17.
struct CompletionEntry {
    std::uint32_t result_low = 0;
    std::uint32_t result_high = 0;
    std::uint16_t submission_head = 0;
    std::uint16_t submission_queue = 0;
    std::uint32_t cid_phase_status = 0;
};
static_assert(sizeof(CompletionEntry) == 16 && std::is_standard_layout_v<CompletionEntry>);

/// How a command ended.
enum class Outcome : std::uint8_t {
    completed = 0, ///< the controller answered: see status()
    timed_out =
        1,     ///< its deadline passed; its CID and its memory stay with the controller until it answers or is reset
    reset = 2, ///< the controller was disabled, reset or lost while the command was outstanding
};

/// What poll() hands out for a command. Standard-layout.
struct Completion {
    std::uint64_t cookie = 0; ///< the caller's own, as given at submission
    std::uint64_t result = 0; ///< dwords 0 and 1 of the completion entry; 0 when it did not complete
    std::uint64_t ended = 0;  ///< dword 3 of the completion entry, and the outcome from bit 32 on: see the accessors

    [[nodiscard]] constexpr Cid cid() const noexcept { return Cid{static_cast<std::uint16_t>(ended)}; }
    [[nodiscard]] constexpr Status status() const noexcept { return Status{static_cast<std::uint16_t>(ended >> 17)}; }
    [[nodiscard]] constexpr Outcome outcome() const noexcept { return static_cast<Outcome>(ended >> 32); }
    /// True when the controller completed it without error: the only case in which data may be used.
    [[nodiscard]] constexpr bool ok() const noexcept {
        constexpr std::uint64_t type_and_code = std::uint64_t{0x7ff} << 17;
        constexpr std::uint64_t any_outcome = std::uint64_t{0xff} << 32;
        return (ended & (type_and_code | any_outcome)) == 0;
    }

    [[nodiscard]] static constexpr Completion without_answer(std::uint64_t cookie, Cid cid, Outcome outcome) noexcept {
        return {cookie, 0, cid.value() | (std::uint64_t{static_cast<std::uint8_t>(outcome)} << 32)};
    }
};
static_assert(sizeof(Completion) == 24 && std::is_standard_layout_v<Completion>);

} // namespace upcie::nvme
