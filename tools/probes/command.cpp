// SPDX-License-Identifier: BSD-3-Clause
#include "command.hpp"

#include "../standard_descriptors.hpp"
#include "environment.hpp"

#include <cerrno>
#include <cstdio>

namespace upcie::probes {

void add_common_options(CLI::App& app, CommonOptions& options) {
    app.add_flag("--json", options.json, "Print the report as JSON (schema: docs/probes.md)");
    app.add_option("--timeout", options.timeout_s, "Seconds to wait for the other process at most")
        ->check(CLI::Range(1U, 3600U))
        ->capture_default_str();
    app.set_version_flag("--version", std::string{program_invocation_short_name} + " " UPCIE_VERSION);
    app.footer("Exit status: 0 whatever the answer, 1 when the question could not be asked, 2 for wrong usage.");
}

CLI::Option* add_device_option(CLI::App& app, std::string& device) {
    return app.add_option("device", device, "A BDF (0000:01:00.0), or a cdev (/dev/vfio/devices/vfio0)")
        ->check([](const std::string& name) {
            return is_device_name(name) ? std::string{} : "'" + name + "' is neither a BDF nor a vfio cdev";
        });
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
    if (!hold_standard_descriptors()) {
        return 1;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return std::nullopt;
}

std::vector<std::string> given_options(const CLI::App& app, std::size_t from) {
    std::vector<std::string> words;
    const auto options = app.get_options();
    for (std::size_t i = from; i < options.size(); ++i) {
        const CLI::Option& one = *options[i];
        if (one.count() == 0) {
            continue;
        }
        words.push_back(one.get_name());
        if (one.get_items_expected_max() > 0) { // a flag has no words of its own
            const auto values = one.results();
            words.insert(words.end(), values.begin(), values.end());
        }
    }
    return words;
}

int print_report(const Report& report, bool json) {
    const std::string text = json ? report.json().dump(2) + "\n" : report.text();
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        std::perror(
            "The report is not complete: make room, or leave the reader open, and run it again. Standard output");
        return 1;
    }
    return report.exit_status();
}

} // namespace upcie::probes
