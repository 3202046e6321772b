// SPDX-License-Identifier: BSD-3-Clause
// What a call is called. A number that no public header has stays a number; nothing is guessed.
#include <upcie/rm/call.hpp>

#include <fmt/format.h>

#include <upcie/result.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/statuses.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

std::string control_name(std::uint32_t command, DriverVersion version) {
    const Control* control = find_control(command, version);
    if (is_legacy_control(command)) {
        return control != nullptr ? fmt::format("legacy control 0x{:x} ({})", command, control->name)
                                  : fmt::format("legacy control 0x{:x}", command);
    }
    return control != nullptr ? fmt::format("{} (0x{:x})", control->name, command)
                              : fmt::format("unknown control 0x{:x}", command);
}

std::string class_name(std::uint32_t id) {
    const Class* known = find_class(id);
    return known != nullptr ? fmt::format("{} (0x{:x})", known->name, id) : fmt::format("unknown class 0x{:x}", id);
}

std::string escape_name(std::uint32_t number) {
    const Escape* escape = find_escape(number);
    return escape != nullptr ? std::string{escape->name} : fmt::format("unknown escape 0x{:x}", number);
}

std::string uvm_name(std::uint32_t number) {
    const UvmCommand* command = find_uvm_command(number);
    return command != nullptr ? fmt::format("UVM {}", command->name) : fmt::format("unknown UVM command {}", number);
}

std::string call_name(const Call& call, DriverVersion version) {
    switch (call.what.type) {
    case BlockKind::Type::uvm:
        return uvm_name(call.what.number);
    case BlockKind::Type::escape: {
        std::string name = escape_name(call.what.number);
        if (call.control) {
            name += " " + control_name(*call.control, version);
        } else if (call.class_id) {
            name += " " + class_name(*call.class_id);
        }
        return call.through_xfer ? name + " (by XFER)" : name;
    }
    default:
        return fmt::format("ioctl 0x{:x}", call.ioctl->request);
    }
}

std::string outcome_text(const Call& call) {
    const Outcome& outcome = call.ioctl->outcome;
    switch (outcome.kind) {
    case Outcome::Kind::unfinished:
        return "unfinished";
    case Outcome::Kind::interrupted:
        return "interrupted";
    case Outcome::Kind::returned:
        break;
    }
    if (outcome.error != 0) {
        return errno_name(outcome.error);
    }
    return call.status ? describe_status(*call.status) : std::string{"done"};
}

} // namespace upcie::rm
