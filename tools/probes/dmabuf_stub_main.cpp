// SPDX-License-Identifier: BSD-3-Clause
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/os/system.hpp>

#include "../plain_numbers.hpp"
#include "command.hpp"
#include "dmabuf_export.hpp"
#include "environment.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

int probe(const CommonOptions& common, const gpu::stub::Options& options) {
    Report report{"dmabuf_stub", dmabuf_export_question};
    Environment environment = describe_kernel();
    const auto stub = gpu::stub::Stub::create(os::real_system(), options);
    if (!stub) {
        report.set_environment(std::move(environment));
        could_not_ask(report, stub.error());
        return print_report(report, common.json);
    }
    gpu::FlavourRuntime<gpu::stub::Stub> runtime{*stub};
    environment.iommu_mode = "none";
    environment.device = {{"runtime", runtime.describe()}};
    report.set_environment(std::move(environment));
    const Describe describe = [&](const gpu::Export& exported) { return runtime.flavour().scatter_list(exported); };
    if (const Result<void> asked = ask_dmabuf_export(report, runtime, describe); !asked) {
        could_not_ask(report, asked.error());
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "The dma-buf export probe over a GPU made of host memory, which behaves as it is told: to see what the "
        "probe would say of a real one. Needs no hardware."};
    CommonOptions common;
    gpu::stub::Options options;
    std::string manner = "exact";
    std::vector<std::uint64_t> runs;
    add_common_options(app, common);
    app.add_option("--manner", manner, "How its exports behave")
        ->check(CLI::IsMember({"exact", "whole-object", "suballocated"}))
        ->capture_default_str();
    app.add_option("--runs", runs, "Bytes of the physical runs of a buffer, in turn: 64K 4M")
        ->transform(CLI::AsSizeValue(false))
        ->transform(CLI::Validator{[](std::string& text) { return check_plain_size(text); }, ""});
    app.add_flag("--refuse-exports", options.exports_refused, "Exports are refused");
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    const auto parsed = gpu::stub::parse_manner(manner);
    if (!parsed) {
        return 2; // --manner was checked
    }
    options.manner = *parsed;
    for (const std::uint64_t bytes : runs) {
        if (bytes == 0 || bytes % gpu::stub::Stub::page.value() != 0) {
            fmt::print(stderr, "--runs: {} bytes are not whole pages of {}\nRun with --help for more information.\n",
                       bytes, gpu::stub::Stub::page.value());
            return 2;
        }
        options.runs.emplace_back(bytes);
    }
    return probe(common, options);
}
