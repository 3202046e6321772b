// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "report.hpp"

namespace upcie::probes {

/// What every probe's command line has.
struct CommonOptions {
    bool json = false;
    unsigned timeout_s = 30;
    [[nodiscard]] std::chrono::milliseconds patience() const { return std::chrono::seconds{timeout_s}; }
};
void add_common_options(CLI::App& app, CommonOptions& options);

/// DEVICE: a PCI address or a vfio cdev. Another kind of word is wrong usage.
CLI::Option* add_device_option(CLI::App& app, std::string& device);

/// The status to end with when the command line asked for help (0) or is wrong (2); nothing when the probe is to run.
[[nodiscard]] std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

/// The options of the program itself, those after the first `from`, as they were given: for another process of it.
[[nodiscard]] std::vector<std::string> given_options(const CLI::App& app, std::size_t from);

/// Prints the report on standard output and answers the exit status.
int print_report(const Report& report, bool json);

} // namespace upcie::probes
