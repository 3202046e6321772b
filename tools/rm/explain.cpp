// SPDX-License-Identifier: BSD-3-Clause
// What a number or a name is: everything that the vocabulary has under it, since a bare number may be several things.
#include <charconv>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/nested.hpp>
#include <upcie/rm/statuses.hpp>
#include <upcie/rm/uvm.hpp>

#include "commands.hpp"

namespace upcie::rm::tool {

namespace {

/// One thing that a number may be.
struct Meaning {
    std::string kind;
    std::string name;
    std::string number;
    std::vector<std::string> lines;
};

std::optional<std::uint64_t> number_of(std::string_view text) {
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    const std::string_view digits = hex ? text.substr(2) : text;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, hex ? 16 : 10);
    return !digits.empty() && error == std::errc{} && end == digits.data() + digits.size() ? std::optional{number}
                                                                                           : std::nullopt;
}

std::string size_line(const ParameterSize& size, DriverVersion driver, const char* of) {
    if (!size.known()) {
        return fmt::format("{}: no public header gives a size", of);
    }
    std::string line = fmt::format("{}:", of);
    std::uint32_t last = 0;
    bool first = true;
    for (const ParameterSize::Since& change : size) {
        if (!first && change.bytes == last) {
            continue;
        }
        line += fmt::format("{} {} from {} on", first ? "" : ",",
                            change.bytes == ParameterSize::absent ? std::string{"gone"}
                                                                  : fmt::format("{} bytes", change.bytes),
                            change.branch);
        last = change.bytes;
        first = false;
    }
    line += fmt::format(" (looked at until {})", size.checked_until());
    if (driver.known()) {
        const auto at = size.at(driver);
        line += at ? fmt::format("; at {}: {} bytes{}", driver.text(), at->bytes, at->certain ? "" : ", assumed")
                   : fmt::format("; at {}: not there", driver.text());
    }
    return line;
}

std::vector<std::string> pointer_lines(BlockKind kind) {
    std::vector<std::string> lines;
    for (const EmbeddedPointer& pointer : embedded_pointers()) {
        if (pointer.where == kind) {
            lines.push_back(
                pointer.count_offset == EmbeddedPointer::none
                    ? fmt::format("user pointer @{}: {}, {} bytes", pointer.offset, pointer.name, pointer.element)
                    : fmt::format("user pointer @{}: {}, {} bytes for each of the count @{}{}", pointer.offset,
                                  pointer.name, pointer.element, pointer.count_offset,
                                  pointer.squared ? ", squared" : ""));
        }
    }
    return lines;
}

void append(std::vector<std::string>& lines, std::vector<std::string> more) {
    lines.insert(lines.end(), more.begin(), more.end());
}

Meaning escape_meaning(const Escape& escape, DriverVersion driver) {
    Meaning meaning{"escape", std::string{escape.name}, fmt::format("0x{:x}", escape.number), {}};
    meaning.lines.push_back(fmt::format("ioctl on {}", escape_node_name(escape.node)));
    meaning.lines.push_back(size_line(escape.size, driver, "argument"));
    if (!escape.note.empty()) {
        meaning.lines.emplace_back(escape.note);
    }
    append(meaning.lines, pointer_lines({BlockKind::Type::escape, escape.number}));
    return meaning;
}

std::string point_line(const Ask& ask) {
    const Point point = point_of(ask);
    return fmt::format("point {} of the contract: {}", static_cast<unsigned>(point), point_name(point));
}

Meaning class_meaning(const Class& known, DriverVersion driver) {
    Meaning meaning{"class", std::string{known.name}, fmt::format("0x{:x}", known.id), {}};
    meaning.lines.push_back(fmt::format("{}; allocated by RM_ALLOC on /dev/nvidiactl", role_name(known.role)));
    meaning.lines.push_back(size_line(known.allocation, driver, "allocation parameters"));
    if (!known.note.empty()) {
        meaning.lines.emplace_back(known.note);
    }
    append(meaning.lines, pointer_lines({BlockKind::Type::allocation, known.id}));
    meaning.lines.push_back(point_line({Ask::Kind::allocation, known.id}));
    return meaning;
}

std::string owner_line(std::uint32_t command) {
    const Class* owner = find_class(control_class(command));
    return owner != nullptr
               ? fmt::format("of class {} (0x{:x}), by RM_CONTROL on /dev/nvidiactl", owner->name, owner->id)
               : fmt::format("of class 0x{:x}, which no public header has", control_class(command));
}

Meaning control_meaning(const Control& control, DriverVersion driver) {
    Meaning meaning{"control", std::string{control.name}, fmt::format("0x{:x}", control.command), {}};
    meaning.lines.push_back(owner_line(control.command));
    meaning.lines.push_back(size_line(control.size, driver, "parameters"));
    if (is_legacy_control(control.command)) {
        meaning.lines.emplace_back("legacy (bit 0x8000): pass its parameters on as opaque bytes");
    }
    append(meaning.lines, pointer_lines({BlockKind::Type::control, control.command}));
    const ConsumedControl* consumed = find_consumed_control(control.command);
    meaning.lines.push_back(consumed != nullptr ? fmt::format("its values matter: answered with zeros, {} (libcuda {})",
                                                              consumed->zeros_lead_to, consumed_controls_measured_on)
                                                : "unknown whether a program looks at its values");
    meaning.lines.push_back(point_line({Ask::Kind::control, control.command}));
    return meaning;
}

Meaning uvm_meaning(const UvmCommand& command, DriverVersion driver) {
    Meaning meaning{"UVM command",
                    std::string{command.name},
                    command.number >= 0x1000 ? fmt::format("0x{:x}", command.number)
                                             : fmt::format("{}", command.number),
                    {}};
    meaning.lines.emplace_back("raw ioctl request on /dev/nvidia-uvm: it carries no size");
    meaning.lines.push_back(size_line(command.size, driver, "argument"));
    if (!command.note.empty()) {
        meaning.lines.emplace_back(command.note);
    }
    append(meaning.lines, pointer_lines({BlockKind::Type::uvm, command.number}));
    meaning.lines.push_back(point_line({Ask::Kind::uvm, command.number}));
    return meaning;
}

Meaning request_meaning(std::uint64_t request, DriverVersion driver) {
    Meaning meaning{"ioctl request",
                    fmt::format("_IOC('F', 0x{:x}, {} bytes)", request_number(request), request_size(request)),
                    fmt::format("0x{:x}", request),
                    {}};
    const Escape* escape = find_escape(request_number(request));
    if (escape == nullptr) {
        meaning.lines.push_back(fmt::format("escape 0x{:x}: no public header has it", request_number(request)));
        return meaning;
    }
    Meaning inner = escape_meaning(*escape, driver);
    meaning.lines.push_back(fmt::format("escape {} ({})", inner.name, inner.number));
    append(meaning.lines, inner.lines);
    return meaning;
}

/// A number that has the shape of a control, where no header has it.
std::optional<Meaning> unknown_control(std::uint64_t number) {
    if (number > 0xffffffff || number < 0x10000 || find_control(static_cast<std::uint32_t>(number)) != nullptr) {
        return std::nullopt;
    }
    const auto command = static_cast<std::uint32_t>(number);
    if (find_class(control_class(command)) == nullptr) {
        return std::nullopt;
    }
    Meaning meaning{
        is_legacy_control(command) ? "legacy control" : "control", "(no name)", fmt::format("0x{:x}", command), {}};
    meaning.lines.push_back(owner_line(command));
    meaning.lines.emplace_back(
        is_legacy_control(command)
            ? "bit 0x8000 is set: legacy and undocumented; pass its parameters on as opaque bytes"
            : "no public header that was looked at has it: what it does is unknown");
    return meaning;
}

std::vector<Meaning> meanings_of_number(std::uint64_t number, DriverVersion driver) {
    std::vector<Meaning> found;
    if (number > 0xffff && is_escape_request(number)) {
        found.push_back(request_meaning(number, driver));
    }
    const auto word = static_cast<std::uint32_t>(number);
    if (number > 0xffffffff) {
        return found;
    }
    if (const Escape* escape = find_escape(word)) {
        found.push_back(escape_meaning(*escape, driver));
    }
    if (const Class* known = find_class(word)) {
        found.push_back(class_meaning(*known, driver));
    }
    for (const Control& control : controls()) {
        if (control.command == word) {
            found.push_back(control_meaning(control, driver));
        }
    }
    if (const UvmCommand* command = find_uvm_command(word)) {
        found.push_back(uvm_meaning(*command, driver));
    }
    if (const Status* status = find_status(word)) {
        found.push_back({"status",
                         std::string{status->name},
                         fmt::format("0x{:x}", word),
                         {"what the driver answers in a call's arguments"}});
    }
    if (auto unknown = unknown_control(number)) {
        found.push_back(std::move(*unknown));
    }
    return found;
}

std::string_view without(std::string_view text, std::string_view prefix) {
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::vector<Meaning> meanings_of_name(std::string_view name, DriverVersion driver) {
    std::vector<Meaning> found;
    for (const Escape& escape : escapes()) {
        if (escape.name == without(name, "NV_ESC_")) {
            found.push_back(escape_meaning(escape, driver));
        }
    }
    for (const Class& known : classes()) {
        if (known.name == name) {
            found.push_back(class_meaning(known, driver));
        }
    }
    for (const Control& control : controls()) {
        if (control.name == name) {
            found.push_back(control_meaning(control, driver));
        }
    }
    for (const UvmCommand& command : uvm_commands()) {
        if (command.name == without(name, "UVM_")) {
            found.push_back(uvm_meaning(command, driver));
        }
    }
    for (const Status& status : statuses()) {
        if (status.name == name) {
            found.push_back({"status",
                             std::string{status.name},
                             fmt::format("0x{:x}", status.number),
                             {"what the driver answers in a call's arguments"}});
        }
    }
    return found;
}

} // namespace

int explain(const ExplainOptions& options, Streams streams) {
    DriverVersion driver;
    if (!options.driver.empty()) {
        const auto version = parse_driver_version(options.driver);
        if (!version) {
            complain(version.error(), streams);
            return 2;
        }
        driver = *version;
    }
    const auto number = number_of(options.what);
    const std::vector<Meaning> found =
        number ? meanings_of_number(*number, driver) : meanings_of_name(options.what, driver);
    if (options.json) {
        Json json;
        json["schema"] = "upcie_rm explain";
        json["version"] = 1;
        json["what"] = options.what;
        json["meanings"] = Json::array();
        for (const Meaning& meaning : found) {
            json["meanings"].push_back(
                {{"kind", meaning.kind}, {"name", meaning.name}, {"number", meaning.number}, {"facts", meaning.lines}});
        }
        streams.out << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    } else {
        for (const Meaning& meaning : found) {
            streams.out << fmt::format("{} {} {}\n", meaning.kind, meaning.number, meaning.name);
            for (const std::string& line : meaning.lines) {
                streams.out << "    " << line << '\n';
            }
        }
    }
    if (!found.empty()) {
        return 0;
    }
    if (number) {
        if (!options.json) {
            streams.out << fmt::format(
                "{}: unknown; no public header that was looked at has it as an escape, a class, a control, "
                "a UVM command or a status\n",
                options.what);
        }
        return 0;
    }
    streams.errors << fmt::format(
        "upcie_rm: explain \"{}\": no public header that was looked at has this name. Give a number "
        "(0x...), or the name as the headers spell it.\n",
        options.what);
    return 1;
}

} // namespace upcie::rm::tool
