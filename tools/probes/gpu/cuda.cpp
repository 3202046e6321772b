// SPDX-License-Identifier: BSD-3-Clause
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/cuda.hpp>
#include <upcie/gpu/flavour.hpp>

#include "export_kinds.hpp"
#include "probed_gpu.hpp"

// The GPU probes' flavour CUDA.
namespace upcie::probes {

namespace {

using gpu::cuda::Cuda;
using gpu::cuda::MemoryKind;

struct CudaOptions {
    gpu::cuda::Options cuda;
    bool with_uuid = false;
};
CudaOptions& options() {
    static CudaOptions one;
    return one;
}

class ProbedCuda final : public ProbedGpu {
  public:
    explicit ProbedCuda(Cuda cuda) : runtime_{std::move(cuda)} {}
    ~ProbedCuda() override {
        for (const auto& [kind, base] : own_) {
            static_cast<void>(cuda().free(kind, base));
        }
    }

    [[nodiscard]] gpu::Runtime& runtime() override { return runtime_; }
    [[nodiscard]] Value describe() const override;
    [[nodiscard]] Result<std::uint64_t> read(DevicePointer pointer) override { return cuda().read_by_kernel(pointer); }
    [[nodiscard]] ReadBy read_by() const override { return ReadBy::kernel; }
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length) override {
        return cuda().register_host(start, length);
    }
    Result<void> unregister_host(void* start) override { return cuda().unregister_host(start); }
    [[nodiscard]] Result<DevicePointer> import_external(gpu::ExternalHandle kind, int fd, ByteCount length) override {
        return cuda().import_external(kind, fd, length);
    }
    Result<void> release_external(DevicePointer base) override { return cuda().release_external(base); }
    [[nodiscard]] Result<os::Fd> export_own(gpu::ExternalHandle kind, ByteCount length) override;
    void ask_own(Report& report, os::System& system) override {
        ask_export_kinds(report, system, cuda(),
                         {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::managed, MemoryKind::host},
                         gpu::cuda::ExportMapping::pcie);
    }

  private:
    [[nodiscard]] Cuda& cuda() { return runtime_.flavour(); }

    mutable gpu::FlavourRuntime<Cuda> runtime_;
    std::vector<std::pair<MemoryKind, DevicePointer>> own_; ///< behind what export_own() answered
};

Value ProbedCuda::describe() const {
    const gpu::cuda::Identity& identity = runtime_.flavour().identity();
    Value gpu{{"name", identity.name},
              {"pci", identity.pci},
              {"cuda", fmt::format("{}.{}", identity.driver_api / 1000, identity.driver_api % 1000 / 10)},
              {"kernel_driver", identity.kernel_driver},
              {"memory", identity.memory.value()},
              {"dma_buf_supported", identity.dma_buf},
              {"gpu_direct_rdma_with_vmm_supported", identity.vmm_rdma}};
    for (const pci::BarInfo& bar : identity.bars) {
        gpu[fmt::format("bar{}", bar.index)] = bar.size.value();
    }
    if (options().with_uuid) {
        gpu["uuid"] = uuid_text(identity.uuid);
    }
    return gpu;
}

Result<os::Fd> ProbedCuda::export_own(gpu::ExternalHandle kind, ByteCount length) {
    const bool shareable = kind == gpu::ExternalHandle::shareable_handle;
    const MemoryKind memory = shareable ? MemoryKind::vmm : MemoryKind::device;
    const auto base = cuda().allocate(memory, length);
    if (!base) {
        return tl::unexpected{base.error()};
    }
    own_.emplace_back(memory, *base);
    if (shareable) {
        return cuda().export_shareable(*base);
    }
    auto exported = cuda().export_range(*base, length);
    if (!exported) {
        return tl::unexpected{std::move(exported.error())};
    }
    return std::move(exported->fd);
}

void add_options(CLI::App& app) {
    app.add_option("--gpu", options().cuda.device, "Which GPU, as CUDA counts them")->capture_default_str();
    app.add_option("--library", options().cuda.library,
                   "The driver's library (UPCIE_CUDA_LIBRARY does the same; else libcuda.so.1)");
    app.add_flag("--uuid", options().with_uuid, "Put the GPU's UUID into the report");
}

Result<std::unique_ptr<ProbedGpu>> open(os::System& system) {
    auto cuda = Cuda::open(system, options().cuda);
    if (!cuda) {
        return tl::unexpected{std::move(cuda.error())};
    }
    return std::make_unique<ProbedCuda>(std::move(*cuda));
}

} // namespace

const GpuFlavour& gpu_flavour() {
    static const GpuFlavour cuda{"cuda", "CUDA", add_options, open};
    return cuda;
}

} // namespace upcie::probes
