// SPDX-License-Identifier: BSD-3-Clause
#include "sim/fault_player.hpp"

#include <utility>

namespace upcie::sim {

namespace {

bool touches_blocks(const nvme::Command& command, const FaultRule& rule) noexcept {
    switch (static_cast<nvme::IoOpcode>(command.opcode)) {
    case nvme::IoOpcode::read:
    case nvme::IoOpcode::write:
    case nvme::IoOpcode::write_zeroes: {
        const std::uint64_t first = command.cdw10 | (std::uint64_t{command.cdw11} << 32);
        const std::uint64_t last = first + (command.cdw12 & 0xffff);
        return first <= rule.last_lba && last >= *rule.first_lba;
    }
    default:
        return false;
    }
}

bool meets(const FaultRule& rule, const nvme::Command& command, std::uint16_t qid) noexcept {
    if (rule.event != FaultEvent::command) {
        return false;
    }
    if ((rule.admin && *rule.admin != (qid == 0)) || (rule.qid && *rule.qid != qid)) {
        return false;
    }
    if ((rule.opcode && *rule.opcode != command.opcode) || (rule.nsid && *rule.nsid != command.nsid)) {
        return false;
    }
    return !rule.first_lba || (qid != 0 && touches_blocks(command, rule));
}

} // namespace

void FaultPlayer::load(FaultScript script) {
    script_ = std::move(script);
    progress_.assign(script_.rules().size(), {});
}

bool FaultPlayer::due(const FaultRule& rule, Progress& progress) const noexcept {
    ++progress.met;
    if ((rule.nth != 0 && progress.met != rule.nth) || (rule.every != 0 && progress.met % rule.every != 0) ||
        (rule.times != 0 && progress.hits == rule.times)) {
        return false;
    }
    ++progress.hits;
    return true;
}

const FaultRule* FaultPlayer::on_command(const nvme::Command& command, std::uint16_t qid) {
    const FaultRule* chosen = nullptr;
    for (std::size_t i = 0; i < progress_.size(); ++i) {
        const FaultRule& rule = script_.rules()[i];
        if (chosen == nullptr && meets(rule, command, qid) && due(rule, progress_[i])) {
            chosen = &rule;
        }
    }
    return chosen;
}

const FaultRule* FaultPlayer::on_event(FaultEvent event) {
    for (std::size_t i = 0; i < progress_.size(); ++i) {
        const FaultRule& rule = script_.rules()[i];
        if (rule.event == event && due(rule, progress_[i])) {
            return &rule;
        }
    }
    return nullptr;
}

std::vector<std::uint64_t> FaultPlayer::hits() const {
    std::vector<std::uint64_t> result;
    for (const Progress& progress : progress_) {
        result.push_back(progress.hits);
    }
    return result;
}

} // namespace upcie::sim
