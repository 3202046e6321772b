// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <memory>

#include "commands.hpp"
#include "device.hpp"

namespace upcie::cli {

namespace {

struct ResetOptions {
    DeviceChoice device;
    bool function = false;
};

ExitCode reset(Context& context, const ResetOptions& options) {
    Report report{context, "reset"};
    const auto started = std::chrono::steady_clock::now();
    if (options.function) {
        // The controller may be past bringing up: the function is reset before anybody looks at it.
        auto function = open_function(context, options.device);
        if (!function) {
            return report.fail(function.error(), exit_code_of_open(options.device, function.error()));
        }
        report.set_device(options.device.name, (*function)->path(), (*function)->path_reason());
        if (const auto done = (*function)->reset(); !done) {
            return report.fail(done.error());
        }
    }
    auto session = open_session(context, report, options.device);
    if (!session) {
        return report.fail(session.error().error, session.error().code);
    }
    if (!options.function) {
        if (const auto done = session->controller->reset(); !done) {
            return report.fail(done.error());
        }
    }
    if (const auto status = session->controller->status(); !status) {
        return report.fail(status.error());
    }
    const std::uint64_t escalations = session->controller->function_resets();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    report.result() = Json{{"kind", options.function ? "function" : "controller"},
                           {"ready", true},
                           {"seconds", seconds},
                           {"escalations", escalations}};
    if (escalations != 0) {
        report.line("the controller did not let itself be disabled: its PCI function was reset {} time{}", escalations,
                    escalations == 1 ? "" : "s");
    }
    report.line("{} reset; the controller is ready again after {:.3f} s", options.function ? "function" : "controller",
                seconds);
    return report.finish();
}

} // namespace

void add_reset(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<ResetOptions>();
    auto* command = app.add_subcommand("reset", "Reset a controller and see that it comes up again");
    add_device_options(*command, options->device);
    command->add_flag("--function", options->function,
                      "Reset the PCI function (FLR) instead of the controller (CC.EN), for one that does not come up");
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, options] { action = [&context, options] { return reset(context, *options); }; });
}

} // namespace upcie::cli
