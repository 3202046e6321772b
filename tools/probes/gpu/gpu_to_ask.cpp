// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "../environment.hpp"
#include "probed_gpu.hpp"

namespace upcie::probes {

std::unique_ptr<ProbedGpu> gpu_to_ask(Report& report, os::System& system, Environment environment) {
    auto gpu = gpu_flavour().open(system);
    if (!gpu) {
        report.set_environment(std::move(environment));
        could_not_ask(report, gpu.error());
        return nullptr;
    }
    // A probe that has a device of its own too shows both.
    Value described = (*gpu)->describe();
    if (environment.device.empty()) {
        environment.device = std::move(described);
    } else {
        environment.device["gpu"] = std::move(described);
    }
    report.set_environment(std::move(environment));
    return std::move(*gpu);
}

std::unique_ptr<ProbedGpu> gpu_to_ask(Report& report, os::System& system) {
    Environment environment = describe_kernel();
    environment.iommu_mode = "unknown (no device)";
    return gpu_to_ask(report, system, std::move(environment));
}

} // namespace upcie::probes
