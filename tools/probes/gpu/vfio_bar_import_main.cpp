// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../../plain_numbers.hpp"
#include "../command.hpp"
#include "../environment.hpp"
#include "../identity.hpp"
#include "vfio_bar_import.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

int probe(const CommonOptions& common, const std::string& device, const BarRange& range) {
    os::System& system = os::real_system();
    Report report{"vfio_bar_import_" + gpu_flavour().name, vfio_bar_import_question};
    const auto function = device_to_ask(report, system, device, cdev_obstacle);
    if (!function) {
        return print_report(report, common.json);
    }
    const std::unique_ptr<ProbedGpu> gpu = gpu_to_ask(report, system, describe_machine(system, *function));
    if (gpu) {
        if (const Result<Identity> self = who_am_i(system)) {
            report.add_process("self", self->json());
        }
        if (const Result<void> asked = ask_vfio_bar_import(report, Requests{system}, *function, range, *gpu); !asked) {
            could_not_ask(report, asked.error());
        }
    }
    return print_report(report, common.json);
}

CLI::Option* add_bytes(CLI::App& app, const char* name, std::uint64_t& bytes, const char* description) {
    return app.add_option(name, bytes, description)
        ->transform(CLI::AsSizeValue(false))
        ->transform(CLI::Validator{[](std::string& text) { return check_plain_size(text); }, ""})
        ->check([](const std::string& text) {
            return std::stoull(text) % page == 0 ? std::string{}
                                                 : fmt::format("{} bytes are not whole pages of {}", text, page);
        })
        ->capture_default_str();
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{fmt::format("Whether {} imports the MMIO of another device: a piece of a BAR that vfio exports as a "
                             "dma-buf. Takes the device over, which resets it; reads its registers and writes none.",
                             gpu_flavour().people)};
    CommonOptions common;
    std::string device;
    BarRange range;
    add_common_options(app, common);
    gpu_flavour().add_options(app);
    add_device_option(app, device)->required();
    app.add_option("region", range.region, "Which BAR")->check(CLI::Range(0U, 5U))->capture_default_str();
    add_bytes(app, "offset", range.offset, "Bytes from the BAR's begin; whole pages");
    add_bytes(app, "length", range.length, "Bytes; whole pages");
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, device, range);
}
