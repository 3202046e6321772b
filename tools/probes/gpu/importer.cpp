// SPDX-License-Identifier: BSD-3-Clause
#include "importer.hpp"

#include <memory>
#include <utility>

#include <upcie/dmabuf/importer.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/pci/bdf.hpp>

namespace upcie::probes {

void add_importer_option(CLI::App& app, std::string& function) {
    app.add_option("--as", function,
                   "PCI function whose DMA is meant: the kernel module upcie_dmabuf_import then tells the addresses")
        ->check([](const std::string& name) {
            return pci::Bdf::parse(name) ? std::string{} : "'" + name + "' is no PCI address (0000:01:00.0)";
        });
}

Describe find_importer(Report& report, os::System& system, const std::string& function, ProbedGpu& gpu) {
    if (function.empty()) {
        Describe own = gpu.own_importer();
        if (!own) {
            report.not_seen("scatter_list", "no PCI function was named to import as: --as BDF, with the module "
                                            "upcie_dmabuf_import loaded");
        }
        return own;
    }
    const auto bdf = pci::Bdf::parse(function);
    auto importer = dmabuf::Importer::open(system);
    if (!bdf || !importer) {
        report.not_seen("scatter_list", !bdf ? bdf.error().message() : importer.error().message());
        return {};
    }
    auto import = memory::import_by_kernel(system, std::make_shared<const dmabuf::Importer>(std::move(*importer)),
                                           dmabuf::PciFunction{bdf->domain, bdf->bus, bdf->device, bdf->function});
    return [import](const gpu::Export& exported) -> Result<dmabuf::ScatterList> {
        auto found = import(exported);
        if (!found) {
            return tl::unexpected{std::move(found.error())};
        }
        return std::move(found->bus); // true of this moment: nothing is transferred there
    };
}

} // namespace upcie::probes
