// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include "checks.hpp"
#include "commands.hpp"
#include "paths.hpp"

namespace upcie::cli {

namespace {

Json to_json(const Check& check) {
    return Json{{"id", check.id},       {"area", check.area},           {"status", to_string(check.status)},
                {"found", check.found}, {"needed_by", check.needed_by}, {"fix", check.fix}};
}

Checks all_checks(Context& context, const HostFacts& host, const std::vector<pci::FunctionInfo>& functions) {
    Checks checks;
    check_iommu(host, checks);
    check_kernel(host, checks);
    check_vfio(host, checks);
    check_memory(host, checks);
    check_devices(functions, checks);
    check_peer_to_peer(context, functions, checks);
    check_gpu_runtimes(context, checks);
    return checks;
}

void print_checks(Report& report, const Checks& checks) {
    std::string area;
    for (const auto& check : checks) {
        if (check.area != area) {
            report.line("{}{}", area.empty() ? "" : "\n", check.area);
            area = check.area;
        }
        report.line("  {:8}{}", to_string(check.status), check.found);
        if (check.status != CheckStatus::ok) {
            report.line("          needed by: {}", check.needed_by);
        }
        if (!check.fix.empty()) {
            report.line("          fix: {}", check.fix);
        }
    }
}

/// The best way of a controller, or why there is none. True when there is one.
bool report_device(Report& report, const pci::FunctionInfo& function, const std::vector<PathAssessment>& paths) {
    const auto best =
        std::min_element(paths.begin(), paths.end(), [](const auto& a, const auto& b) { return a.state < b.state; });
    Json ways = Json::array();
    for (const auto& path : paths) {
        ways.push_back(Json{{"path", to_string(path.path)},
                            {"state", to_string(path.state)},
                            {"reason", path.reason},
                            {"fix", path.fix}});
    }
    report.result()["devices"].push_back(
        Json{{"bdf", function.bdf.to_string()},
             {"driver", function.driver},
             {"best", best->state == PathState::blocked ? Json{} : Json(to_string(best->path))},
             {"paths", ways}});
    report.line("  {} ({})", function.bdf.to_string(), function.driver.empty() ? "no driver" : function.driver);
    for (const auto& path : paths) {
        report.line("    {:10} {:20} {}", to_string(path.state), title_of(path.path), path.reason);
        if (!path.fix.empty()) {
            report.line("               fix: {}", path.fix);
        }
    }
    return best->state != PathState::blocked;
}

ExitCode doctor(Context& context) {
    Report report{context, "doctor"};
    const HostFacts host = gather_host_facts(context);
    auto functions = pci::enumerate(context.system, context.roots.kernel);
    if (!functions) {
        report.note(functions.error().message());
        functions = std::vector<pci::FunctionInfo>{};
    }
    const Checks checks = all_checks(context, host, *functions);
    std::array<std::size_t, 3> counts{};
    report.result()["checks"] = Json::array();
    for (const auto& check : checks) {
        ++counts[static_cast<std::size_t>(check.status)];
        report.result()["checks"].push_back(to_json(check));
    }
    print_checks(report, checks);

    report.result()["devices"] = Json::array();
    report.line("\nPaths of each NVMe controller");
    bool any = false;
    for (const auto& function : *functions) {
        if (function.is_nvme()) {
            any = report_device(report, function, assess_paths(host, function, context)) || any;
        }
    }
    const std::string verdict = any ? "at least one controller can be driven from user space (see its paths)"
                                    : "no controller can be driven from user space here; sim: devices always work";
    report.result()["summary"] =
        Json{{"ok", counts[0]}, {"warn", counts[1]}, {"missing", counts[2]}, {"usable", any}, {"verdict", verdict}};
    report.line("{}\n{} ok, {} warn, {} missing: {}", any ? "" : "  none\n", counts[0], counts[1], counts[2], verdict);
    return report.finish(any ? ExitCode::ok : ExitCode::precondition);
}

} // namespace

void add_doctor(CLI::App& app, Context& context, Action& action) {
    auto* command =
        app.add_subcommand("doctor", "Check every precondition of every path to a device, with the fix for each");
    add_json_flag(*command, context);
    command->footer("Exit status 4 when no NVMe controller of this machine can be driven from user space.");
    command->callback([&context, &action] { action = [&context] { return doctor(context); }; });
}

} // namespace upcie::cli
