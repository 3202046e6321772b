// SPDX-License-Identifier: BSD-3-Clause
#include "verify.hpp"

namespace upcie::cli {

void VerifyTally::judge(std::span<const std::byte> block, const Stamp& expected) {
    BlockFinding finding = judge_block(block, expected);
    ++counts_[static_cast<std::size_t>(finding.verdict)];
    if (finding.verdict != BlockVerdict::good && bad_.size() < limit_) {
        std::string text = finding.describe(expected);
        bad_.push_back({expected.lba, std::move(finding), std::move(text), {}});
    }
}

void VerifyTally::failed(const Transfer& transfer, Error error) {
    failed_blocks_ += transfer.blocks;
    if (failures_.empty() || failures_.size() < limit_) { // the first one is the run's error
        failures_.push_back({transfer.lba, transfer.blocks, std::move(error)});
    }
}

std::uint64_t VerifyTally::bad() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 1; i < counts_.size(); ++i) { // 0 is good
        sum += counts_[i];
    }
    return sum;
}

std::string VerifyTally::summary() const {
    std::string text;
    for (std::size_t i = 1; i < counts_.size(); ++i) {
        if (counts_[i] != 0) {
            text +=
                fmt::format("{}{} {}", text.empty() ? "" : ", ", counts_[i], to_string(static_cast<BlockVerdict>(i)));
        }
    }
    return text;
}

} // namespace upcie::cli
