// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <optional>
#include <string>

#include <upcie/dmabuf/importer.hpp>
#include <upcie/gpu/cuda.hpp>
#include <upcie/gpu/flavour.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/bdf.hpp>

#include "command.hpp"
#include "cuda_memory.hpp"
#include "dmabuf_export.hpp"
#include "environment.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

struct CudaOptions {
    gpu::cuda::Options cuda;
    std::string function; ///< that the importer attaches as
    bool with_uuid = false;
};

/// An importer where the module is loaded and a function was named; else the reason why addresses are not seen.
Describe find_importer(Report& report, os::System& system, const std::string& name) {
    if (name.empty()) {
        report.not_seen("scatter_list", "no PCI function was named to import as: --as BDF, with the module "
                                        "upcie_dmabuf_import loaded");
        return {};
    }
    const auto bdf = pci::Bdf::parse(name);
    auto importer = dmabuf::Importer::open(system);
    if (!bdf || !importer) {
        report.not_seen("scatter_list", !bdf ? bdf.error().message() : importer.error().message());
        return {};
    }
    const dmabuf::PciFunction function{bdf->domain, bdf->bus, bdf->device, bdf->function};
    auto import =
        memory::import_by_kernel(system, std::make_shared<const dmabuf::Importer>(std::move(*importer)), function);
    return [import](const gpu::Export& exported) -> Result<dmabuf::ScatterList> {
        auto found = import(exported);
        if (!found) {
            return tl::unexpected{std::move(found.error())};
        }
        return std::move(found->bus); // true of this moment: nothing is transferred there
    };
}

int probe(const CommonOptions& common, const CudaOptions& options) {
    os::System& system = os::real_system();
    Report report{"dmabuf_cuda", dmabuf_export_question};
    Environment environment = describe_kernel();
    environment.iommu_mode = "unknown (no device)";
    auto cuda = gpu::cuda::Cuda::open(system, options.cuda);
    if (!cuda) {
        report.set_environment(std::move(environment));
        could_not_ask(report, cuda.error());
        return print_report(report, common.json);
    }
    environment.device = describe_gpu(cuda->identity(), options.with_uuid);
    report.set_environment(std::move(environment));
    gpu::FlavourRuntime<gpu::cuda::Cuda> runtime{*cuda};
    const Describe describe = find_importer(report, system, options.function);
    if (const Result<void> asked = ask_dmabuf_export(report, runtime, describe); !asked) {
        could_not_ask(report, asked.error());
    } else {
        ask_cuda_memory(report, system, *cuda);
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"How CUDA exports device memory as dma-bufs: which range an export describes, how odd and small "
                 "allocations and other kinds of memory behave. Allocates 150 MiB of a GPU's memory for a moment."};
    CommonOptions common;
    CudaOptions options;
    add_common_options(app, common);
    app.add_option("--gpu", options.cuda.device, "Which GPU, as CUDA counts them")->capture_default_str();
    app.add_option("--library", options.cuda.library,
                   "The driver's library (UPCIE_CUDA_LIBRARY does the same; else libcuda.so.1)");
    app.add_option("--as", options.function,
                   "PCI function whose DMA is meant: the kernel module upcie_dmabuf_import then tells the addresses")
        ->check([](const std::string& name) {
            return pci::Bdf::parse(name) ? std::string{} : "'" + name + "' is no PCI address (0000:01:00.0)";
        });
    app.add_flag("--uuid", options.with_uuid, "Put the GPU's UUID into the report");
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, options);
}
