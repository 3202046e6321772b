// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "../plain_numbers.hpp"
#include "commands.hpp"
#include "version.hpp"

namespace upcie::cli {

namespace {

constexpr const char* after_the_help =
    "A DEVICE is a PCI address (0000:01:00.0), a vfio cdev (/dev/vfio/devices/vfio0), or a simulated one\n"
    "(sim:size=1G,lba=4096).\n\n"
    "Exit status: 0 done; 1 the operation failed; 2 wrong usage; 3 the data is not what it should be;\n"
    "4 something that has to be there first is missing. See upcie(1).";

/// CLI11 takes "" for 0, -1 for 2^64-1, and what is too large for the largest that fits; a range check lets "nan" pass.
/// On a command that overwrites a drive none of that may be. What an option takes, its type name says.
void check_values(CLI::App& app) {
    for (CLI::Option* const option : app.get_options()) {
        const std::string name = option->get_type_name();
        const std::string type = name.substr(0, name.find(':'));
        const std::string shown = option->get_name();
        const bool number = type == "N" || type == "LBA";
        const bool size = type == "BYTES";
        const bool seconds = type == "SECONDS" || type == "S";
        if (option->get_items_expected_max() == 0) {
            continue; // a flag
        }
        // A transformation comes before the option's own checks.
        option->transform(CLI::Validator{
            [=](std::string& text) {
                if (text.empty()) {
                    return shown + ": the value is empty";
                }
                if (number && !is_plain_number(text)) {
                    return shown + ": '" + text + "' is no number from 0 to 2^64-1 (decimal, or 0x and hexadecimal)";
                }
                if (size && !is_plain_size(text)) {
                    return shown + ": " + check_plain_size(text);
                }
                const bool digit_or_point = (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
                const bool octal = text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
                if (seconds && (!digit_or_point || octal)) {
                    return shown + ": '" + text + "' is no number of seconds";
                }
                return std::string{};
            },
            ""});
    }
    for (CLI::App* const subcommand : app.get_subcommands({})) {
        check_values(*subcommand);
    }
}

/// The first word, when it is neither an option nor a subcommand: CLI11 says only that one is required.
std::optional<std::string_view> unknown_subcommand(const CLI::App& app, int argument_count,
                                                   const char* const* arguments) {
    if (argument_count < 2 || arguments[1][0] == '-') {
        return std::nullopt;
    }
    const std::string_view word{arguments[1]};
    for (const CLI::App* const subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (subcommand->check_name(std::string{word})) {
            return std::nullopt;
        }
    }
    return word;
}

/// Wrong usage as a document, for those who asked for one.
void report_usage(const CLI::App& app, const CLI::ParseError& problem, Context& context) {
    const auto chosen = app.get_subcommands();
    Report report{context, chosen.empty() ? "usage" : chosen.front()->get_name()};
    Error error;
    error.code = EINVAL;
    error.operation = "read the command line";
    error.subject = "upcie";
    error.hint = problem.what();
    static_cast<void>(report.fail(error, ExitCode::usage));
}

} // namespace

void add_json_flag(CLI::App& subcommand, Context& context) {
    subcommand.add_flag("--json", context.json, "Answer with one JSON document on standard output");
}

void add_all(CLI::App& app, Context& context, Action& action) {
    for (const auto add : {add_list, add_doctor, add_bind, add_unbind, add_identify, add_read, add_write, add_verify,
                           add_bench, add_reset, add_report, add_completion}) {
        add(app, context, action);
    }
}

int run(int argument_count, const char* const* arguments, Context& context) {
    CLI::App app{"Drive NVMe controllers from user space", "upcie"};
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string{"upcie "} + version);
    app.footer(after_the_help);
    Action action;
    add_all(app, context, action);
    check_values(app);
    try {
        app.parse(argument_count, arguments);
    } catch (const CLI::ParseError& original) {
        const auto word =
            original.get_exit_code() != 0 ? unknown_subcommand(app, argument_count, arguments) : std::nullopt;
        const CLI::ParseError problem =
            word ? CLI::ParseError{fmt::format("there is no subcommand '{}'", *word), CLI::ExitCodes::RequiredError}
                 : original;
        const bool wants_json = std::any_of(arguments, arguments + argument_count, [](const char* text) {
            return std::string_view{text}.substr(0, 6) == "--json";
        });
        if (problem.get_exit_code() != 0 && wants_json) {
            context.json = true;
            report_usage(app, problem, context);
            return static_cast<int>(ExitCode::usage);
        }
        const int answer = app.exit(problem, context.out, context.err);
        return answer == 0 ? static_cast<int>(ExitCode::ok) : static_cast<int>(ExitCode::usage);
    }
    return static_cast<int>(action());
}

} // namespace upcie::cli
