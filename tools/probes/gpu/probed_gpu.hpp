// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/gpu/external.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "../environment.hpp"
#include "../report.hpp"

// What the GPU probes ask is one body each; whom they ask is the flavour's file: cuda.cpp, hip.cpp or stub.cpp. A
// program links one of the three.
namespace upcie::probes {

/// Where the bytes of an export are: an importer's answer. Empty where there is no importer; sizes are all there is to
/// see then.
using Describe = std::function<Result<dmabuf::ScatterList>(const gpu::Export&)>;

/// What device code, or what stands in for it, found at an address.
enum class ReadBy : std::uint8_t {
    kernel, ///< by a load of a kernel on the GPU itself: the way in which a GPU rings a doorbell
    copy,   ///< by a copy to the host, which a copy engine or the host may have done: weaker
};
/// "a kernel", "a copy"
[[nodiscard]] constexpr const char* to_string(ReadBy way) noexcept {
    return way == ReadBy::kernel ? "a kernel" : "a copy";
}

/// A GPU and its runtime as a probe asks them. Threads: one.
class ProbedGpu {
  public:
    ProbedGpu() = default;
    ProbedGpu(const ProbedGpu&) = delete;
    ProbedGpu& operator=(const ProbedGpu&) = delete;
    virtual ~ProbedGpu() = default;

    [[nodiscard]] virtual gpu::Runtime& runtime() = 0;
    /// For the report's head: versions and attributes of the GPU and its runtime.
    [[nodiscard]] virtual Value describe() const = 0;
    /// An importer of its own, where the flavour has one; the kernel module's is another (importer.hpp).
    [[nodiscard]] virtual Describe own_importer() { return {}; }

    /// Eight bytes at `pointer`, a multiple of 8, in the strongest way that this runtime has here.
    [[nodiscard]] virtual Result<std::uint64_t> read(DevicePointer pointer) = 0;
    [[nodiscard]] virtual ReadBy read_by() const = 0;

    /// Lets device code reach ordinary memory of this process, until unregister_host(): the control of register_mmio().
    /// Errors: the runtime's, ENOTSUP where the flavour has no such call.
    [[nodiscard]] virtual Result<DevicePointer> register_host(void* start, ByteCount length);
    virtual Result<void> unregister_host(void* start);

    /// Has the runtime take in memory of another device. Errors: the runtime's, ENOTSUP where it has no such kind.
    [[nodiscard]] virtual Result<DevicePointer> import_external(gpu::ExternalHandle kind, int fd, ByteCount length) = 0;
    virtual Result<void> release_external(DevicePointer base) = 0;
    /// A descriptor of memory of its own, of the kind that the runtime must take if it takes any: the control of
    /// import_external(). Errors: ENOTSUP where there is none, the runtime's.
    [[nodiscard]] virtual Result<os::Fd> export_own(gpu::ExternalHandle kind, ByteCount length) = 0;

    /// What only this runtime can be asked about exports: kinds of memory, flags. Observations alone.
    virtual void ask_own(Report& report, os::System& system) { static_cast<void>(report), static_cast<void>(system); }
};

/// Whom a program asks.
struct GpuFlavour {
    std::string name;   ///< "cuda", as in the program's name
    std::string people; ///< "CUDA"
    /// Adds the flavour's options to the command line; they are kept by the flavour.
    void (*add_options)(CLI::App& app);
    /// Opens it as those options say. Errors: the flavour's open().
    Result<std::unique_ptr<ProbedGpu>> (*open)(os::System& system);
};
/// The one that is linked.
[[nodiscard]] const GpuFlavour& gpu_flavour();

/// Opens the GPU that a probe is to ask and describes it in the report's head, beside what `environment` says of
/// another device. Null where it cannot be opened: the report then says so.
[[nodiscard]] std::unique_ptr<ProbedGpu> gpu_to_ask(Report& report, os::System& system, Environment environment);
/// The same for a probe that has no other device.
[[nodiscard]] std::unique_ptr<ProbedGpu> gpu_to_ask(Report& report, os::System& system);

/// Tells an error as the outcome of an observation: an errno's name, or the vendor's own name for its own.
void tell(Report& report, const std::string& name, const Error& error, const std::string& note = {});

/// Has the runtime export memory of its own and take it in again; "own.KIND.export" and "own.KIND.import" tell,
/// not seen where the flavour has no such call. Nothing: it was taken.
[[nodiscard]] std::optional<Error> import_own_memory(Report& report, ProbedGpu& gpu, gpu::ExternalHandle kind);

/// "00112233-4455-6677-8899-aabbccddeeff"
[[nodiscard]] std::string uuid_text(const std::array<std::uint8_t, 16>& uuid);

} // namespace upcie::probes
