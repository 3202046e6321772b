// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>

#include "../../plain_numbers.hpp"
#include "probed_gpu.hpp"

// The GPU probes' flavour over a GPU made of host memory, which behaves as it is told: to see what a probe would say of
// a real one.
namespace upcie::probes {

namespace {

using gpu::stub::Stub;

struct StubOptions {
    std::string manner = "exact";
    std::vector<std::uint64_t> runs;
    bool exports_refused = false;
};
StubOptions& options() {
    static StubOptions one;
    return one;
}

class ProbedStub final : public ProbedGpu {
  public:
    explicit ProbedStub(Stub stub) : runtime_{std::move(stub)} {}

    [[nodiscard]] gpu::Runtime& runtime() override { return runtime_; }
    [[nodiscard]] Value describe() const override { return {{"runtime", runtime_.describe()}}; }
    [[nodiscard]] Describe own_importer() override {
        return [this](const gpu::Export& exported) { return runtime_.flavour().scatter_list(exported); };
    }
    [[nodiscard]] Result<std::uint64_t> read(DevicePointer pointer) override {
        return runtime_.read_by_kernel(pointer);
    }
    [[nodiscard]] ReadBy read_by() const override { return ReadBy::kernel; }
    // The stub's device code is the CPU: all memory of the process is one to it.
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length) override {
        return runtime_.register_mmio(start, length);
    }
    Result<void> unregister_host(void* start) override { return runtime_.unregister_mmio(start); }
    [[nodiscard]] Result<DevicePointer> import_external(gpu::ExternalHandle kind, int fd, ByteCount length) override {
        return runtime_.flavour().import_external(kind, fd, length);
    }
    Result<void> release_external(DevicePointer base) override { return runtime_.flavour().release_external(base); }
    [[nodiscard]] Result<os::Fd> export_own(gpu::ExternalHandle kind, ByteCount length) override {
        if (kind != gpu::ExternalHandle::dma_buf_fd) {
            return fail(ENOTSUP, "export own memory", std::string{gpu::to_string(kind)},
                        "The stub has dma-bufs alone.");
        }
        const auto base = runtime_.allocate(length);
        if (!base) {
            return tl::unexpected{base.error()};
        }
        auto exported = runtime_.export_range(*base, length);
        if (!exported) {
            return tl::unexpected{std::move(exported.error())};
        }
        return std::move(exported->fd); // the memory goes with the stub
    }

  private:
    gpu::FlavourRuntime<Stub> runtime_;
};

void add_options(CLI::App& app) {
    app.add_option("--manner", options().manner, "How its exports behave")
        ->check(CLI::IsMember({"exact", "whole-object", "suballocated"}))
        ->capture_default_str();
    app.add_option("--runs", options().runs, "Bytes of the physical runs of a buffer, in turn: 64K 4M")
        ->transform(CLI::AsSizeValue(false))
        ->transform(CLI::Validator{[](std::string& text) { return check_plain_size(text); }, ""})
        ->check([](const std::string& text) {
            const std::uint64_t bytes = std::stoull(text);
            return bytes != 0 && bytes % Stub::page.value() == 0
                       ? std::string{}
                       : fmt::format("{} bytes are not whole pages of {}", bytes, Stub::page.value());
        });
    app.add_flag("--refuse-exports", options().exports_refused, "Exports are refused");
}

Result<std::unique_ptr<ProbedGpu>> open(os::System& system) {
    gpu::stub::Options stub;
    const auto manner = gpu::stub::parse_manner(options().manner);
    if (!manner) {
        return tl::unexpected{manner.error()};
    }
    stub.manner = *manner;
    stub.exports_refused = options().exports_refused;
    for (const std::uint64_t bytes : options().runs) {
        stub.runs.emplace_back(bytes);
    }
    auto made = Stub::create(system, std::move(stub));
    if (!made) {
        return tl::unexpected{std::move(made.error())};
    }
    return std::make_unique<ProbedStub>(std::move(*made));
}

} // namespace

const GpuFlavour& gpu_flavour() {
    static const GpuFlavour stub{"stub", "a GPU made of host memory", add_options, open};
    return stub;
}

} // namespace upcie::probes
