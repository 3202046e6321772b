// SPDX-License-Identifier: BSD-3-Clause
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../command.hpp"
#include "../environment.hpp"
#include "dmabuf.hpp"
#include "importer.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

int probe(const CommonOptions& common, const std::string& function) {
    os::System& system = os::real_system();
    Report report{"dmabuf_" + gpu_flavour().name, dmabuf_export_question};
    const std::unique_ptr<ProbedGpu> gpu = gpu_to_ask(report, system);
    if (!function.empty()) {
        if (const auto found = find_device(system, function); !found) {
            could_not_ask(report, found.error());
        }
    }
    if (gpu && report.asked()) {
        const Describe describe = find_importer(report, system, function, *gpu);
        if (const Result<void> asked = ask_dmabuf_export(report, gpu->runtime(), describe); !asked) {
            could_not_ask(report, asked.error());
        } else {
            gpu->ask_own(report, system);
            for (const auto kind : {gpu::ExternalHandle::dma_buf_fd, gpu::ExternalHandle::opaque_fd,
                                    gpu::ExternalHandle::shareable_handle}) {
                static_cast<void>(import_own_memory(report, *gpu, kind)); // the report tells
            }
        }
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{fmt::format("How {} exports device memory as dma-bufs: which range an export describes, how odd and "
                             "small allocations and other kinds of memory behave. Allocates 150 MiB of a GPU's memory "
                             "for a moment.",
                             gpu_flavour().people)};
    CommonOptions common;
    std::string function;
    add_common_options(app, common);
    gpu_flavour().add_options(app);
    add_importer_option(app, function);
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return probe(common, function);
}
