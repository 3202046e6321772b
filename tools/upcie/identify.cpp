// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include "commands.hpp"
#include "device.hpp"

namespace upcie::cli {

namespace {

template <class Bytes>
std::string hex(const Bytes& bytes) {
    std::string text;
    for (const auto byte : bytes) {
        text += fmt::format("{:02x}", byte);
    }
    return text;
}

std::string version_text(nvme::Version version) {
    return fmt::format("{}.{}.{}", version.major(), version.minor(), version.tertiary());
}

void report_controller(Report& report, nvme::Controller& controller) {
    const auto& info = controller.info();
    const auto capabilities = controller.capabilities();
    const auto limit = controller.max_transfer();
    report.result()["controller"] = Json{
        {"model", info.model},
        {"serial", info.serial},
        {"firmware", info.firmware},
        {"vendor", info.vendor},
        {"subsystem_vendor", info.subsystem_vendor},
        {"subsystem_name", info.subsystem_name},
        {"controller_id", info.controller_id},
        {"nvme_version", version_text(controller.version())},
        {"max_transfer", limit ? Json(limit->value()) : Json{}},
        {"max_queue_entries", capabilities.max_queue_entries()},
        {"io_queues", controller.queue_count()},
        {"io_queues_reason", controller.queue_count_reason()},
        {"page_size", std::uint64_t{1} << controller.page_shift()},
        {"doorbell_stride", capabilities.doorbell_stride()},
        {"ready_timeout_ms", capabilities.ready_timeout().count()},
        {"namespaces_max", info.namespaces},
        {"volatile_write_cache", info.has_write_cache()},
        {"write_zeroes", info.has_write_zeroes()},
        {"dataset_management", info.has_dataset_management()},
        {"sgl", info.has_sgl()},
    };
    report.line("model             {}", info.model);
    report.line("serial            {}", info.serial);
    report.line("firmware          {}", info.firmware);
    report.line("PCI vendor        {:04x} (subsystem {:04x})", info.vendor, info.subsystem_vendor);
    if (!info.subsystem_name.empty()) {
        report.line("subsystem         {}", info.subsystem_name);
    }
    report.line("NVMe version      {}", version_text(controller.version()));
    report.line("largest transfer  {}", limit ? human_size(limit->value()) : "no limit");
    report.line("I/O queues        {} ({}), up to {} entries each", controller.queue_count(),
                controller.queue_count_reason(), capabilities.max_queue_entries());
    report.line("page, doorbells   {}, every {} bytes", human_size(std::uint64_t{1} << controller.page_shift()),
                capabilities.doorbell_stride());
    report.line("write cache       {}", info.has_write_cache() ? "volatile: flush makes data safe" : "none");
    report.line("commands          write zeroes {}, dataset management {}, SGL {}",
                info.has_write_zeroes() ? "yes" : "no", info.has_dataset_management() ? "yes" : "no",
                info.has_sgl() ? "yes" : "no");
}

Json to_json(const nvme::NamespaceInfo& info) {
    Json formats = Json::array();
    for (const auto& format : info.formats) {
        formats.push_back(Json{{"block_size", format.data_shift == 0 ? 0 : std::uint64_t{1} << format.data_shift},
                               {"metadata", format.metadata_bytes},
                               {"relative_performance", format.relative_performance}});
    }
    const auto& format = info.format();
    return Json{{"nsid", info.nsid.value()},
                {"blocks", info.size_blocks},
                {"capacity_blocks", info.capacity_blocks},
                {"used_blocks", info.used_blocks},
                {"block_size", std::uint64_t{1} << format.data_shift},
                {"metadata", format.metadata_bytes},
                {"bytes", info.size_blocks << format.data_shift},
                {"current_format", info.current_format},
                {"formats", formats},
                {"nguid", hex(info.guid)},
                {"eui64", hex(info.eui64)}};
}

Outcome<void> report_namespaces(Report& report, nvme::Controller& controller, const DeviceChoice& choice) {
    auto active = controller.active_namespaces();
    if (!active) {
        return stop(std::move(active.error()));
    }
    if (choice.nsid != 0) {
        if (auto there = must_be_active(*active, Nsid{choice.nsid}, choice); !there) {
            return there;
        }
        active = std::vector{Nsid{choice.nsid}};
    }
    report.result()["namespaces"] = Json::array();
    for (const auto nsid : *active) {
        const auto info = controller.identify_namespace(nsid);
        if (!info) {
            return stop(info.error());
        }
        report.result()["namespaces"].push_back(to_json(*info));
        const auto& format = info->format();
        report.line("namespace {:<7} {} blocks of {} bytes{}, {}", nsid.value(), info->size_blocks,
                    std::uint64_t{1} << format.data_shift,
                    format.metadata_bytes == 0 ? "" : fmt::format(" + {} of metadata", format.metadata_bytes),
                    human_size(info->size_blocks << format.data_shift));
    }
    if (active->empty()) {
        report.line("namespaces        none is active");
    }
    return {};
}

ExitCode identify(Context& context, const DeviceChoice& choice) {
    Report report{context, "identify"};
    const auto session = open_session(context, report, choice);
    if (!session) {
        return report.fail(session.error().error, session.error().code);
    }
    report_controller(report, *session->controller);
    if (const auto done = report_namespaces(report, *session->controller, choice); !done) {
        return report.fail(done.error().error, done.error().code);
    }
    return report.finish();
}

} // namespace

void add_identify(CLI::App& app, Context& context, Action& action) {
    auto choice = std::make_shared<DeviceChoice>();
    auto* command = app.add_subcommand("identify", "Show what a controller is, and its namespaces");
    add_device_options(*command, *choice);
    add_namespace_option(*command, *choice);
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, choice] { action = [&context, choice] { return identify(context, *choice); }; });
}

} // namespace upcie::cli
