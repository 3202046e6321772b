// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "output.hpp"

namespace upcie::cli {

/// What the chosen subcommand does, once the command line has been understood.
using Action = std::function<ExitCode()>;

// Each adds one subcommand to the command line; its callback sets `action`.
void add_list(CLI::App& app, Context& context, Action& action);
void add_doctor(CLI::App& app, Context& context, Action& action);
void add_bind(CLI::App& app, Context& context, Action& action);
void add_unbind(CLI::App& app, Context& context, Action& action);
void add_identify(CLI::App& app, Context& context, Action& action);
void add_read(CLI::App& app, Context& context, Action& action);
void add_write(CLI::App& app, Context& context, Action& action);
void add_verify(CLI::App& app, Context& context, Action& action);
void add_bench(CLI::App& app, Context& context, Action& action);
void add_reset(CLI::App& app, Context& context, Action& action);
void add_report(CLI::App& app, Context& context, Action& action);
void add_completion(CLI::App& app, Context& context, Action& action);

/// All of them, in the order of the help.
void add_all(CLI::App& app, Context& context, Action& action);

/// The whole command line. Answers what the process ends with; never throws.
int run(int argument_count, const char* const* arguments, Context& context);

/// --json, for every subcommand that reports.
void add_json_flag(CLI::App& subcommand, Context& context);

} // namespace upcie::cli
