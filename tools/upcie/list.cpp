// SPDX-License-Identifier: BSD-3-Clause
#include "commands.hpp"
#include "paths.hpp"

namespace upcie::cli {

namespace {

std::string group_text(const pci::FunctionInfo& function) {
    if (!function.iommu_group) {
        return "none";
    }
    const auto& group = *function.iommu_group;
    return fmt::format("{} ({})", group.number,
                       group.noiommu        ? "no-IOMMU"
                       : group.type.empty() ? "type unknown"
                                            : group.type);
}

Json to_json(const pci::FunctionInfo& function, const std::vector<PathAssessment>& paths) {
    Json bars = Json::array();
    for (const auto& bar : function.bars) {
        bars.push_back(Json{{"index", bar.index},
                            {"address", bar.address.value()},
                            {"size", bar.size.value()},
                            {"io", bar.io},
                            {"prefetchable", bar.prefetchable},
                            {"assigned", !bar.unassigned}});
    }
    Json ways = Json::array();
    for (const auto& path : paths) {
        ways.push_back(Json{{"path", to_string(path.path)},
                            {"state", to_string(path.state)},
                            {"reason", path.reason},
                            {"fix", path.fix}});
    }
    Json group;
    if (function.iommu_group) {
        Json members = Json::array();
        for (const auto& member : function.iommu_group->members) {
            members.push_back(member.to_string());
        }
        group = Json{{"number", function.iommu_group->number},
                     {"type", function.iommu_group->type},
                     {"noiommu", function.iommu_group->noiommu},
                     {"members", members}};
    }
    return Json{{"bdf", function.bdf.to_string()},
                {"class", function.class_code},
                {"nvme", function.is_nvme()},
                {"vendor", function.vendor},
                {"device", function.device},
                {"subsystem_vendor", function.subsystem_vendor},
                {"subsystem_device", function.subsystem_device},
                {"driver", function.driver.empty() ? Json{} : Json(function.driver)},
                {"vfio_cdev", function.vfio_cdev.empty() ? Json{} : Json(function.vfio_cdev)},
                {"iommu_group", group},
                {"numa_node", function.numa_node},
                {"bars", bars},
                {"paths", ways}};
}

void print(Report& report, const pci::FunctionInfo& function, const std::vector<PathAssessment>& paths) {
    report.line("{}  [{:04x}:{:04x}]  class {:06x}  driver {}  IOMMU group {}  NUMA node {}", function.bdf.to_string(),
                function.vendor, function.device, function.class_code,
                function.driver.empty() ? "none" : function.driver, group_text(function),
                function.numa_node < 0 ? "unknown" : std::to_string(function.numa_node));
    for (const auto& path : paths) {
        report.line("    {:10} {:20} {}", to_string(path.state), title_of(path.path), path.reason);
        if (!path.fix.empty()) {
            report.line("               fix: {}", path.fix);
        }
    }
}

ExitCode list(Context& context, bool everything) {
    Report report{context, "list"};
    const auto functions = pci::enumerate(context.system, context.roots.kernel);
    if (!functions) {
        return report.fail(functions.error(), ExitCode::precondition);
    }
    const HostFacts host = gather_host_facts(context);
    std::size_t shown = 0;
    report.result()["functions"] = Json::array();
    for (const auto& function : *functions) {
        if (!everything && !function.is_nvme()) {
            continue;
        }
        const auto paths = assess_paths(host, function, context);
        report.result()["functions"].push_back(to_json(function, paths));
        print(report, function, paths);
        ++shown;
    }
    if (shown == 0) {
        report.note(everything ? "no PCI function at all"
                               : "no NVMe controller on the PCI bus; `upcie list --all` shows the other functions, and "
                                 "sim:size=1G names a simulated one");
    }
    return report.finish();
}

} // namespace

void add_list(CLI::App& app, Context& context, Action& action) {
    auto* command = app.add_subcommand("list", "List NVMe controllers and the ways each can be driven");
    auto everything = std::make_shared<bool>(false);
    command->add_flag("--all", *everything, "List every PCI function, not just NVMe controllers");
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, everything] { action = [&context, everything] { return list(context, *everything); }; });
}

} // namespace upcie::cli
