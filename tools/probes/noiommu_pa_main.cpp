// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "command.hpp"
#include "environment.hpp"
#include "identity.hpp"
#include "noiommu_pa.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

int probe(const CommonOptions& common, const std::string& device, std::uint64_t length) {
    os::System& system = os::real_system();
    Report report{"noiommu_pa",
                  "Does IOMMU_IOAS_NOIOMMU_GET_PA answer with the addresses that pagemap and sysfs give, for "
                  "a memfd, huge pages, anonymous memory and a BAR, and how far does one answer reach?"};
    report.set_environment(describe_kernel());
    const Result<pci::FunctionInfo> function = find_device(system, device);
    if (!function) {
        could_not_ask(report, function.error());
        return print_report(report, common.json);
    }
    report.set_environment(describe_machine(system, *function));
    const Obstacle obstacle = cdev_obstacle(system, *function);
    if (!obstacle.reason.empty()) {
        report.not_asked(obstacle.reason, obstacle.remedy);
        return print_report(report, common.json);
    }
    if (function->vfio_name.rfind("noiommu-", 0) != 0) {
        report.not_asked(
            "the device is behind an IOMMU, where no physical addresses are given out",
            "Boot without one (intel_iommu=off, amd_iommu=off), set enable_unsafe_noiommu_mode of module vfio "
            "to Y, and bind the device to vfio-pci.");
        return print_report(report, common.json);
    }
    if (const Result<Identity> self = who_am_i(system)) {
        report.add_process("self", self->json());
    }
    if (const Result<void> asked = ask_noiommu_pa(report, Requests{system}, *function, length); !asked) {
        could_not_ask(report, asked.error());
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "What IOMMU_IOAS_NOIOMMU_GET_PA answers, against pagemap and sysfs as independent witnesses. Takes the "
        "device over: it is reset, and an NVMe controller is told to write its Identify data."};
    CommonOptions common;
    std::string device;
    std::uint64_t mib = 4;
    add_common_options(app, common);
    app.add_option("device", device, "A BDF, or a cdev (/dev/vfio/devices/noiommu-vfio0)")->required();
    app.add_option("--mib", mib, "MiB of each kind of memory")
        ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{4096}))
        ->capture_default_str();
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, device, mib << 20);
}
