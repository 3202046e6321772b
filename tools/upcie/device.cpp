// SPDX-License-Identifier: BSD-3-Clause
#include "device.hpp"

#include <algorithm>

#include <upcie/open.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::cli {

void add_device_options(CLI::App& subcommand, DeviceChoice& choice) {
    subcommand.add_option("device", choice.name, "PCI address, vfio cdev, or sim:key=value,...")
        ->required()
        ->type_name("DEVICE");
    subcommand.add_option("--path", choice.path, "Way to the device: automatic, cdev, group, noiommu, uio")
        ->capture_default_str()
        ->check(CLI::IsMember({"automatic", "cdev", "group", "noiommu", "uio"}))
        ->type_name("PATH");
}

void add_namespace_option(CLI::App& subcommand, DeviceChoice& choice) {
    subcommand.add_option("--nsid", choice.nsid, "Namespace identifier; 0: the first active one")
        ->capture_default_str()
        ->type_name("N");
}

void add_destructive_flag(CLI::App& subcommand, bool& destructive) {
    subcommand.add_flag("--destructive", destructive, "Yes, overwrite what is on the device (not needed for sim:)");
}

Result<pci::FunctionInfo> find_pci_function(Context& context, const std::string& name) {
    if (const auto bdf = pci::Bdf::parse(name)) {
        return pci::find_function(context.system, *bdf, context.roots.kernel);
    }
    const auto slash = name.rfind('/');
    const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
    if (last.find("vfio") != std::string::npos && name.find(':') == std::string::npos) {
        return pci::find_by_vfio_name(context.system, last, context.roots.kernel);
    }
    return fail(EINVAL, "find PCI function", name,
                "Name it by its PCI address (0000:01:00.0) or its vfio cdev (/dev/vfio/devices/vfio0).");
}

Outcome<void> allow_destruction(const DeviceChoice& choice, bool destructive, std::string_view what) {
    if (destructive || choice.simulated()) {
        return {};
    }
    return stop(fail(EPERM, std::string{what}, choice.name,
                     "It overwrites what is on the device: say --destructive when that is meant."),
                ExitCode::usage);
}

Result<std::shared_ptr<pci::Function>> open_function(Context& context, const DeviceChoice& choice) {
    OpenOptions options;
    options.roots = context.roots.kernel;
    for (const auto path : {Path::cdev, Path::group, Path::noiommu_cdev, Path::uio}) {
        if (choice.path == upcie::to_string(path)) {
            options.path = path;
        }
    }
    auto function = upcie::open_function(context.system, choice.name, options);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    return std::shared_ptr<pci::Function>{std::move(*function)};
}

ExitCode exit_code_of_open(const DeviceChoice& choice, const Error& error) noexcept {
    // A kernel may say EINVAL of a device too; of a name it is ours, and the name is what has to change.
    const bool of_the_name = choice.simulated() || (choice.name.find("vfio") == std::string::npos &&
                                                    !pci::Bdf::parse(choice.name).has_value());
    return error.is(EINVAL) && of_the_name ? ExitCode::usage : ExitCode::precondition;
}

namespace {

/// A fault that never happened makes a run look better than it is. What closing would still bring on is left out.
void note_idle_faults(Report& report, const sim::Controller& controller) {
    const auto& rules = controller.options().faults.rules();
    const auto hits = controller.fault_hits();
    for (std::size_t i = 0; i < rules.size() && i < hits.size(); ++i) {
        const bool its_time_is_past =
            rules[i].event == sim::FaultEvent::command || rules[i].event == sim::FaultEvent::enable;
        if (hits[i] == 0 && its_time_is_past) {
            report.note(fmt::format(
                "fault {} of {} never happened: nothing met its conditions, or an earlier fault took what did", i + 1,
                rules.size()));
        }
    }
}

} // namespace

Outcome<Session> open_session(Context& context, Report& report, const DeviceChoice& choice,
                              const nvme::ControllerOptions& options) {
    auto function = open_function(context, choice);
    if (!function) {
        const ExitCode code = exit_code_of_open(choice, function.error());
        return stop(std::move(function.error()), code);
    }
    report.set_device(choice.name, (*function)->path(), (*function)->path_reason());
    if (const auto simulated = std::dynamic_pointer_cast<sim::Function>(*function)) {
        report.at_end(
            [watched = simulated->controller()](Report& at_its_end) { note_idle_faults(at_its_end, *watched); });
    }
    auto controller = nvme::Controller::open(context.system, std::move(*function), options);
    if (!controller) {
        // No interrupts at all is the device's or the path's lack, as too few of them are.
        const ExitCode code = options.interrupt_vectors != 0 && controller.error().is(ENOTSUP) ? ExitCode::precondition
                                                                                               : ExitCode::failed;
        return stop(std::move(controller.error()), code);
    }
    return Session{std::move(*controller)};
}

Outcome<void> must_be_active(const std::vector<Nsid>& active, Nsid nsid, const DeviceChoice& choice) {
    if (std::find(active.begin(), active.end(), nsid) == active.end()) {
        return stop(fail(ENODEV, "choose namespace", fmt::format("{} namespace {}", choice.name, nsid.value()),
                         "It is not active: `upcie identify` shows those that are."),
                    ExitCode::precondition);
    }
    return {};
}

Outcome<Target> choose_namespace(Session& session, const DeviceChoice& choice) {
    auto active = session.controller->active_namespaces();
    if (!active) {
        return stop(std::move(active.error()));
    }
    if (active->empty()) {
        return stop(fail(ENODEV, "choose namespace", choice.name, "The controller has no active namespace."),
                    ExitCode::precondition);
    }
    const Nsid nsid = choice.nsid == 0 ? active->front() : Nsid{choice.nsid};
    if (auto there = must_be_active(*active, nsid, choice); !there) {
        return tl::unexpected{std::move(there.error())};
    }
    auto info = session.controller->identify_namespace(nsid);
    if (!info) {
        return stop(std::move(info.error()));
    }
    const auto& format = info->format();
    const std::string subject = fmt::format("{} namespace {}", choice.name, info->nsid.value());
    if (format.metadata_bytes != 0) {
        return stop(
            fail(ENOTSUP, "choose namespace", subject,
                 fmt::format("Its format has {} bytes of metadata a block, which this library does not transfer yet; "
                             "format it without (nvme format --lbaf).",
                             format.metadata_bytes)),
            ExitCode::precondition);
    }
    if (format.data_shift < 9 || format.data_shift > 20) {
        return stop(
            fail(ENOTSUP, "choose namespace", subject,
                 fmt::format("Its blocks are 2^{} bytes; 512 bytes to 1 MiB are spoken here.", format.data_shift)),
            ExitCode::precondition);
    }
    Target target{std::move(*info), {}};
    target.format.nsid = target.info.nsid;
    target.format.block_shift = target.info.format().data_shift;
    return target;
}

Outcome<BlockRange> choose_range(const Target& target, std::uint64_t first, std::uint64_t count) {
    const std::uint64_t size = target.info.size_blocks;
    if (first >= size || count > size - first) {
        return stop(
            fail(EINVAL, "choose blocks", fmt::format("namespace {}", target.info.nsid.value()),
                 fmt::format("{} from block {} on: the namespace has {} blocks, 0 to {}.",
                             count == 0 ? std::string{"all"} : fmt::format("{} blocks", count), first, size, size - 1)),
            ExitCode::usage);
    }
    return BlockRange{first, count == 0 ? size - first : count};
}

} // namespace upcie::cli
