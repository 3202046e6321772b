// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include <upcie/pci/driver_binding.hpp>

#include "commands.hpp"
#include "device.hpp"

namespace upcie::cli {

namespace {

struct BindOptions {
    std::string device;
    std::string driver = "vfio-pci";
    bool force = false;
};

/// What went wrong before anything was touched is a precondition; a driver that then does not take it is a failure.
ExitCode code_of(const Error& error) {
    return error.is(EIO) ? ExitCode::failed : ExitCode::precondition;
}

Json text_or_null(const std::string& text) {
    return text.empty() ? Json{} : Json(text);
}

ExitCode bind(Context& context, const BindOptions& options) {
    Report report{context, "bind"};
    const auto function = find_pci_function(context, options.device);
    if (!function) {
        return report.fail(function.error(), function.error().is(EINVAL) ? ExitCode::usage : ExitCode::precondition);
    }
    const auto binding =
        pci::DriverBinding::bind(context.system, function->bdf, options.driver, {options.force}, context.roots.kernel);
    if (!binding) {
        return report.fail(binding.error(), code_of(binding.error()));
    }
    const auto now = pci::find_function(context.system, function->bdf, context.roots.kernel);
    const std::string cdev = now ? now->vfio_cdev : std::string{};
    report.result() = Json{{"bdf", function->bdf.to_string()},
                           {"driver", options.driver},
                           {"previous_driver", text_or_null(binding->previous_driver())},
                           {"changed", binding->changed()},
                           {"vfio_cdev", text_or_null(cdev)}};
    if (binding->changed()) {
        report.line("{} is now bound to {} (before: {}); `upcie unbind {}` gives it back", function->bdf.to_string(),
                    options.driver, binding->previous_driver().empty() ? "no driver" : binding->previous_driver(),
                    function->bdf.to_string());
    } else {
        report.line("{} was bound to {} already", function->bdf.to_string(), options.driver);
    }
    if (!cdev.empty()) {
        report.line("its device node: {}", cdev);
    }
    return report.finish();
}

ExitCode unbind(Context& context, const BindOptions& options) {
    Report report{context, "unbind"};
    const auto function = find_pci_function(context, options.device);
    if (!function) {
        return report.fail(function.error(), function.error().is(EINVAL) ? ExitCode::usage : ExitCode::precondition);
    }
    const auto driver = pci::give_back_to_kernel(context.system, function->bdf, {options.force}, context.roots.kernel);
    if (!driver) {
        return report.fail(driver.error(), code_of(driver.error()));
    }
    report.result() = Json{{"bdf", function->bdf.to_string()},
                           {"driver", text_or_null(*driver)},
                           {"previous_driver", text_or_null(function->driver)}};
    report.line("{}: {} let go; now {}", function->bdf.to_string(),
                function->driver.empty() ? "no driver" : function->driver,
                driver->empty() ? "no driver wants it" : "bound to " + *driver);
    return report.finish();
}

} // namespace

void add_bind(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<BindOptions>();
    auto* command =
        app.add_subcommand("bind", "Take a function from its kernel driver and bind it to one for user space");
    command->add_option("device", options->device, "PCI address or vfio cdev")->required()->type_name("DEVICE");
    command->add_option("--driver", options->driver, "Driver to bind to")->capture_default_str()->type_name("NAME");
    command->add_flag("--force", options->force, "Also when its disks are mounted or in use: their data are at risk");
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, options] { action = [&context, options] { return bind(context, *options); }; });
}

void add_unbind(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<BindOptions>();
    auto* command = app.add_subcommand("unbind", "Give a function back to the driver that the kernel would choose");
    command->add_option("device", options->device, "PCI address or vfio cdev")->required()->type_name("DEVICE");
    command->add_flag("--force", options->force, "Also when its disks are mounted or in use: their data are at risk");
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, options] { action = [&context, options] { return unbind(context, *options); }; });
}

} // namespace upcie::cli
