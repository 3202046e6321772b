// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/hip.hpp>

#include "export_kinds.hpp"
#include "probed_gpu.hpp"

// The GPU probes' flavour HIP.
namespace upcie::probes {

namespace {

using gpu::hip::Hip;
using gpu::hip::MemoryKind;

struct HipOptions {
    gpu::hip::Options hip;
    bool with_uuid = false;
};
HipOptions& options() {
    static HipOptions one;
    return one;
}

/// "7.1.52802" of 70152802
std::string version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10'000'000, version / 100'000 % 100, version % 100'000);
}

class ProbedHip final : public ProbedGpu {
  public:
    explicit ProbedHip(Hip hip) : runtime_{std::move(hip)} {}
    ~ProbedHip() override {
        for (const DevicePointer base : own_) {
            static_cast<void>(runtime_.free(base));
        }
    }

    [[nodiscard]] gpu::Runtime& runtime() override { return runtime_; }
    [[nodiscard]] Value describe() const override;
    /// By copy: whether a kernel could is another question, and a copy is what works without ROCm's compiler.
    [[nodiscard]] Result<std::uint64_t> read(DevicePointer pointer) override { return hip().read_by_copy(pointer); }
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length) override {
        return hip().register_host(start, length);
    }
    Result<void> unregister_host(void* start) override { return hip().unregister_host(start); }
    [[nodiscard]] ReadBy read_by() const override { return ReadBy::copy; }
    [[nodiscard]] Result<DevicePointer> import_external(gpu::ExternalHandle kind, int fd, ByteCount length) override {
        return hip().import_external(kind, fd, length);
    }
    Result<void> release_external(DevicePointer base) override { return hip().release_external(base); }
    [[nodiscard]] Result<os::Fd> export_own(gpu::ExternalHandle kind, ByteCount length) override;
    void ask_own(Report& report, os::System& system) override {
        ask_export_kinds(report, system, hip(),
                         {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::managed, MemoryKind::host},
                         gpu::hip::ExportMapping::pcie);
    }

  private:
    [[nodiscard]] Hip& hip() { return runtime_.flavour(); }

    mutable gpu::FlavourRuntime<Hip> runtime_;
    std::vector<DevicePointer> own_; ///< behind what export_own() answered
};

Value ProbedHip::describe() const {
    const gpu::hip::Identity& identity = runtime_.flavour().identity();
    Value gpu{{"name", identity.name},
              {"pci", identity.pci},
              {"arch", identity.arch},
              {"hip", version_text(identity.runtime_version)},
              {"hip_driver", version_text(identity.driver_version)},
              {"kernel_driver", identity.kernel_driver},
              {"memory", identity.memory.value()},
              {"large_bar", identity.large_bar}};
    for (const pci::BarInfo& bar : identity.bars) {
        gpu[fmt::format("bar{}", bar.index)] = bar.size.value();
    }
    if (options().with_uuid) {
        gpu["uuid"] = uuid_text(identity.uuid);
    }
    return gpu;
}

Result<os::Fd> ProbedHip::export_own(gpu::ExternalHandle kind, ByteCount length) {
    if (kind == gpu::ExternalHandle::shareable_handle) {
        return fail(ENOTSUP, "export own memory", std::string{gpu::to_string(kind)},
                    "The HIP flavour makes no shareable handles.");
    }
    const auto base = runtime_.allocate(length);
    if (!base) {
        return tl::unexpected{base.error()};
    }
    own_.push_back(*base);
    auto exported = runtime_.export_range(*base, length);
    if (!exported) {
        return tl::unexpected{std::move(exported.error())};
    }
    return std::move(exported->fd);
}

void add_options(CLI::App& app) {
    app.add_option("--gpu", options().hip.device, "Which GPU, as HIP counts them")->capture_default_str();
    app.add_option("--library", options().hip.library,
                   "The runtime's library (UPCIE_HIP_LIBRARY does the same; else libamdhip64.so.7, .6 or .5)");
    app.add_flag("--uuid", options().with_uuid, "Put the GPU's UUID into the report");
}

Result<std::unique_ptr<ProbedGpu>> open(os::System& system) {
    auto hip = Hip::open(system, options().hip);
    if (!hip) {
        return tl::unexpected{std::move(hip.error())};
    }
    return std::make_unique<ProbedHip>(std::move(*hip));
}

} // namespace

const GpuFlavour& gpu_flavour() {
    static const GpuFlavour hip{"hip", "HIP", add_options, open};
    return hip;
}

} // namespace upcie::probes
