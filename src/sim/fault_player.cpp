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

// Every rule counts what meets its conditions, so that the n-th of one does not depend on what others did.
bool FaultPlayer::due(const FaultRule& rule, Progress& progress) noexcept {
    ++progress.met;
    return (rule.nth == 0 || progress.met == rule.nth) && (rule.every == 0 || progress.met % rule.every == 0) &&
           (rule.times == 0 || progress.hits < rule.times);
}

template <class Meets>
const FaultRule* FaultPlayer::choose(Meets&& meets) {
    const FaultRule* chosen = nullptr;
    for (std::size_t i = 0; i < progress_.size(); ++i) {
        const FaultRule& rule = script_.rules()[i];
        if (meets(rule) && due(rule, progress_[i]) && chosen == nullptr) {
            chosen = &rule;
            ++progress_[i].hits;
        }
    }
    return chosen;
}

const FaultRule* FaultPlayer::on_command(const nvme::Command& command, std::uint16_t qid) {
    return choose([&](const FaultRule& rule) { return meets(rule, command, qid); });
}

const FaultRule* FaultPlayer::on_event(FaultEvent event) {
    return choose([&](const FaultRule& rule) { return rule.event == event; });
}

std::vector<std::uint64_t> FaultPlayer::hits() const {
    std::vector<std::uint64_t> result;
    for (const Progress& progress : progress_) {
        result.push_back(progress.hits);
    }
    return result;
}

} // namespace upcie::sim
