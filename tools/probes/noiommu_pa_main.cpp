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
    const auto function = device_to_ask(report, system, device, noiommu_obstacle);
    if (!function) {
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
    add_device_option(app, device)->required();
    app.add_option("--mib", mib, "MiB of each kind of memory")
        ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{4096}))
        ->capture_default_str();
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, device, mib << 20);
}
