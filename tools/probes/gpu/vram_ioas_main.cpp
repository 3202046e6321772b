// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../command.hpp"
#include "../environment.hpp"
#include "../identity.hpp"
#include "probed_gpu.hpp"
#include "vram_ioas.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

int probe(const CommonOptions& common, const std::string& device) {
    os::System& system = os::real_system();
    const Requests requests{system};
    Report report{"vram_ioas_" + gpu_flavour().name, vram_ioas_question};
    Environment environment = describe_kernel();
    std::optional<pci::FunctionInfo> function;
    if (!device.empty()) {
        function = device_to_ask(report, system, device, cdev_obstacle);
        if (!function) {
            return print_report(report, common.json);
        }
        environment = describe_machine(system, *function);
    }
    const Result<Session> session = open_ioas(requests, function ? &*function : nullptr);
    if (!session) {
        could_not_ask(report, session.error());
    }
    // Asked for also where there is no IOAS: whoever reads the reason learns all that is missing.
    const std::unique_ptr<ProbedGpu> gpu = gpu_to_ask(report, system, std::move(environment));
    if (session && gpu) {
        if (const Result<Identity> self = who_am_i(system)) {
            report.add_process("self", self->json());
        }
        if (const Result<void> asked =
                ask_vram_ioas(report, requests, *session, function ? &*function : nullptr, gpu->runtime());
            !asked) {
            could_not_ask(report, asked.error());
        }
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{fmt::format("Whether memory of {} can enter an IOAS: what IOMMU_IOAS_MAP_FILE says to its dma-bufs, "
                             "beside a memfd, a udmabuf and, with a device, a dma-buf of vfio's; and what "
                             "IOMMU_IOAS_NOIOMMU_GET_PA says of it where the device has no IOMMU. Nothing is "
                             "transferred; a device that is named is taken over and reset.",
                             gpu_flavour().people)};
    CommonOptions common;
    std::string device;
    add_common_options(app, common);
    gpu_flavour().add_options(app);
    add_device_option(app, device);
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, device);
}
