// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/faults.hpp>

#include <array>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include <upcie/nvme/command.hpp>

#include "sim/text.hpp"

namespace upcie::sim {

namespace {

struct ActionName {
    std::string_view name;
    FaultAction action;
    FaultEvent event;
};

constexpr std::array actions{
    ActionName{"late", FaultAction::late, FaultEvent::command},
    ActionName{"reorder", FaultAction::reorder, FaultEvent::command},
    ActionName{"lost", FaultAction::lost, FaultEvent::command},
    ActionName{"duplicate", FaultAction::duplicate, FaultEvent::command},
    ActionName{"error", FaultAction::error, FaultEvent::command},
    ActionName{"phase", FaultAction::phase, FaultEvent::command},
    ActionName{"bad-cid", FaultAction::bad_cid, FaultEvent::command},
    ActionName{"stray", FaultAction::stray, FaultEvent::command},
    ActionName{"bad-sqid", FaultAction::bad_sqid, FaultEvent::command},
    ActionName{"misplaced", FaultAction::misplaced, FaultEvent::command},
    ActionName{"corrupt", FaultAction::corrupt, FaultEvent::command},
    ActionName{"dropped", FaultAction::dropped, FaultEvent::command},
    ActionName{"cfs", FaultAction::fatal, FaultEvent::command},
    ActionName{"gone", FaultAction::gone, FaultEvent::command},
    ActionName{"never-ready", FaultAction::never_ready, FaultEvent::enable},
    ActionName{"never-idle", FaultAction::never_idle, FaultEvent::disable},
    ActionName{"never-shut", FaultAction::never_shut, FaultEvent::shutdown},
};

struct OpcodeName {
    std::string_view name;
    bool admin;
    std::uint8_t opcode;
};

constexpr std::uint8_t op(nvme::AdminOpcode opcode) {
    return static_cast<std::uint8_t>(opcode);
}
constexpr std::uint8_t op(nvme::IoOpcode opcode) {
    return static_cast<std::uint8_t>(opcode);
}

constexpr std::array opcodes{
    OpcodeName{"flush", false, op(nvme::IoOpcode::flush)},
    OpcodeName{"write", false, op(nvme::IoOpcode::write)},
    OpcodeName{"read", false, op(nvme::IoOpcode::read)},
    OpcodeName{"write-zeroes", false, op(nvme::IoOpcode::write_zeroes)},
    OpcodeName{"dsm", false, op(nvme::IoOpcode::dataset_management)},
    OpcodeName{"delete-sq", true, op(nvme::AdminOpcode::delete_submission_queue)},
    OpcodeName{"create-sq", true, op(nvme::AdminOpcode::create_submission_queue)},
    OpcodeName{"get-log", true, op(nvme::AdminOpcode::get_log_page)},
    OpcodeName{"delete-cq", true, op(nvme::AdminOpcode::delete_completion_queue)},
    OpcodeName{"create-cq", true, op(nvme::AdminOpcode::create_completion_queue)},
    OpcodeName{"identify", true, op(nvme::AdminOpcode::identify)},
    OpcodeName{"abort", true, op(nvme::AdminOpcode::abort)},
    OpcodeName{"set-features", true, op(nvme::AdminOpcode::set_features)},
    OpcodeName{"get-features", true, op(nvme::AdminOpcode::get_features)},
    OpcodeName{"aer", true, op(nvme::AdminOpcode::asynchronous_event_request)},
    OpcodeName{"format", true, op(nvme::AdminOpcode::format_nvm)},
};

template <class Number>
bool take(std::string_view text, Number& target) {
    const auto value = parse_number(text);
    if (!value || *value > std::numeric_limits<Number>::max()) {
        return false;
    }
    target = static_cast<Number>(*value);
    return true;
}

template <class Number>
bool take(std::string_view text, std::optional<Number>& target) {
    Number value{};
    if (!take(text, value)) {
        return false;
    }
    target = value;
    return true;
}

bool parse_arguments(FaultRule& rule, const std::vector<std::string_view>& words) {
    const std::size_t count = words.size() - 1;
    switch (rule.action) {
    case FaultAction::late:
        if (count == 1 && words[1].ends_with("ms")) {
            std::uint32_t delay = 0;
            const bool good = take(words[1].substr(0, words[1].size() - 2), delay);
            rule.delay = std::chrono::milliseconds{delay};
            return good && delay != 0;
        }
        return count == 1 && take(words[1], rule.count) && rule.count != 0;
    case FaultAction::reorder:
    case FaultAction::misplaced:
        rule.count = 1;
        return count == 0 || (count == 1 && take(words[1], rule.count) && rule.count != 0);
    case FaultAction::corrupt:
        return count == 0 || (count == 1 && take(words[1], rule.count));
    case FaultAction::error:
        rule.do_not_retry = count == 3 && words[3] == "dnr";
        return (count == 2 || rule.do_not_retry) && take(words[1], rule.status_type) && rule.status_type <= 7 &&
               take(words[2], rule.status_code) && (rule.status_type != 0 || rule.status_code != 0);
    case FaultAction::bad_cid:
    case FaultAction::stray:
        return count == 0 || (count == 1 && take(words[1], rule.cid));
    default:
        return count == 0;
    }
}

bool parse_condition(FaultRule& rule, std::string_view text) {
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos) {
        if (name == "admin" || name == "io") {
            rule.admin = name == "admin";
        } else if (name == "once") {
            rule.times = 1;
        } else {
            return name == "always";
        }
        return true;
    }
    const std::string_view value = text.substr(equals + 1);
    if (name == "op") {
        for (const OpcodeName& known : opcodes) {
            if (known.name == value) {
                rule.opcode = known.opcode;
                rule.admin = known.admin;
                return true;
            }
        }
        return take(value, rule.opcode);
    }
    if (name == "lba") {
        const auto range = parse_span(value);
        if (range) {
            rule.first_lba = range->first;
            rule.last_lba = range->second;
        }
        return range.has_value();
    }
    if (name == "on") {
        rule.event = value == "enable"    ? FaultEvent::enable
                     : value == "disable" ? FaultEvent::disable
                                          : FaultEvent::shutdown;
        return (rule.action == FaultAction::fatal || rule.action == FaultAction::gone) &&
               (value == "enable" || value == "disable" || value == "shutdown");
    }
    if (name == "nth") {
        return take(value, rule.nth) && rule.nth != 0;
    }
    if (name == "every") {
        return take(value, rule.every) && rule.every != 0;
    }
    if (name == "times") {
        return take(value, rule.times) && rule.times != 0;
    }
    if (name == "qid") {
        return take(value, rule.qid);
    }
    return name == "nsid" && take(value, rule.nsid);
}

} // namespace

Result<FaultScript> FaultScript::parse(std::string_view text) {
    FaultScript script;
    for (const std::string_view part : split(text, ';')) {
        const auto refuse = [&](std::string hint) {
            return fail(EINVAL, "parse fault script", fmt::format("\"{}\"", part), std::move(hint));
        };
        const std::size_t at = part.find('@');
        const auto words = split(part.substr(0, at), ':');
        FaultRule rule;
        const ActionName* found = nullptr;
        std::string known;
        for (const ActionName& action : actions) {
            if (!words.empty() && action.name == words[0]) {
                found = &action;
            }
            known += fmt::format("{}{}", known.empty() ? "" : ", ", action.name);
        }
        if (found == nullptr) {
            return refuse(fmt::format("It must begin with one of {}.", known));
        }
        rule.action = found->action;
        rule.event = found->event;
        if (!parse_arguments(rule, words)) {
            return refuse(fmt::format("The arguments of {} are not right: see docs/simulator.md.", found->name));
        }
        const auto conditions =
            at == std::string_view::npos ? std::vector<std::string_view>{} : split(part.substr(at + 1), '&');
        for (const std::string_view condition : conditions) {
            if (!parse_condition(rule, condition)) {
                return refuse(
                    fmt::format("The condition \"{}\" is none: there are admin, io, qid=, op=, nsid=, lba=, nth=, "
                                "every=, times=, once, always, and on= for cfs and gone.",
                                condition));
            }
        }
        script.add(rule);
    }
    return script;
}

} // namespace upcie::sim
