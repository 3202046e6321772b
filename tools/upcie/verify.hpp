// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "block_order.hpp"
#include "mover.hpp"
#include "progress.hpp"
#include "stamps.hpp"

namespace upcie::cli {

struct VerifyOptions {
    DeviceChoice device;
    MoveOptions move;
    std::uint64_t lba = 0;
    std::uint64_t blocks = 0; ///< 0: see default_blocks
    std::uint64_t seed = 0;
    bool seed_given = false;
    std::uint64_t pass = 1;
    bool pass_given = false;
    std::uint32_t passes = 1;
    bool read_only = false;
    bool random = false;
    bool destructive = false;
    std::size_t findings = 20; ///< bad blocks described one by one

    static constexpr std::uint64_t default_blocks = 16384;
};

/// What is known of the blocks of a run.
class VerifyTally {
  public:
    struct Bad {
        std::uint64_t lba = 0;
        BlockFinding finding;
        std::string text;
        std::string again; ///< what a second read showed; empty when there was none
    };
    struct Failed {
        std::uint64_t lba = 0;
        std::uint32_t blocks = 0;
        Error error;
    };

    explicit VerifyTally(std::size_t limit) : limit_{limit} {}

    void judge(std::span<const std::byte> block, const Stamp& expected);
    /// Blocks that the device whose memory they are in found good, by a checksum.
    void good_on_device(std::uint64_t blocks) noexcept {
        counts_[static_cast<std::size_t>(BlockVerdict::good)] += blocks;
        on_device_ += blocks;
    }
    void failed(const Transfer& transfer, Error error);

    [[nodiscard]] std::uint64_t count(BlockVerdict verdict) const noexcept {
        return counts_[static_cast<std::size_t>(verdict)];
    }
    [[nodiscard]] std::uint64_t good() const noexcept { return count(BlockVerdict::good); }
    [[nodiscard]] std::uint64_t on_device() const noexcept { return on_device_; }
    [[nodiscard]] std::uint64_t bad() const noexcept;
    [[nodiscard]] std::uint64_t failed_blocks() const noexcept { return failed_blocks_; }
    [[nodiscard]] std::vector<Bad>& bad_blocks() noexcept { return bad_; }
    [[nodiscard]] const std::vector<Failed>& failures() const noexcept { return failures_; }
    /// "2 misplaced, 1 zero"
    [[nodiscard]] std::string summary() const;

  private:
    std::size_t limit_;
    std::array<std::uint64_t, block_verdict_count> counts_{};
    std::vector<Bad> bad_;
    std::vector<Failed> failures_;
    std::uint64_t failed_blocks_ = 0;
    std::uint64_t on_device_ = 0;
};

} // namespace upcie::cli
