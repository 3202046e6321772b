// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <ostream>

#include "commands.hpp"
#include "version.hpp"

namespace upcie::cli {

namespace {

constexpr const char* after_the_help =
    "A DEVICE is a PCI address (0000:01:00.0), a vfio cdev (/dev/vfio/devices/vfio0), or a simulated one\n"
    "(sim:size=1G,lba=4096).\n\n"
    "Exit status: 0 done; 1 the operation failed; 2 wrong usage; 3 the data is not what it should be;\n"
    "4 something that has to be there first is missing. See upcie(1).";

} // namespace

void add_json_flag(CLI::App& subcommand, Context& context) {
    subcommand.add_flag("--json", context.json, "Answer with one JSON document on standard output");
}

void add_all(CLI::App& app, Context& context, Action& action) {
    for (const auto add : {add_list, add_doctor, add_bind, add_unbind, add_identify, add_read, add_write, add_verify,
                           add_bench, add_reset, add_completion}) {
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
    try {
        app.parse(argument_count, arguments);
    } catch (const CLI::ParseError& problem) {
        const int answer = app.exit(problem, context.out, context.err);
        return answer == 0 ? static_cast<int>(ExitCode::ok) : static_cast<int>(ExitCode::usage);
    }
    return static_cast<int>(action());
}

} // namespace upcie::cli
