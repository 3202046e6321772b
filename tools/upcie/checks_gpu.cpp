// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <upcie/os/sysfs.hpp>

#include "checks.hpp"

namespace upcie::cli {

namespace {

/// A vendor's runtime library and the kernel's side of it. Only looked for: loading libcuda as root without a driver
/// leaves a /dev/nvidiactl behind.
struct Runtime {
    std::string_view id;
    std::string_view title;
    std::string_view library; ///< beginning of the file's name
    std::string_view node;    ///< below /dev
    std::string_view module;
    std::string_view fix;
};

constexpr Runtime runtimes[] = {
    {"cuda", "CUDA", "libcuda.so.1", "nvidiactl", "nvidia",
     "Install NVIDIA's driver with its open kernel modules (they are the ones that export dma-bufs), then: modprobe "
     "nvidia"},
    {"hip", "HIP", "libamdhip64.so", "kfd", "amdgpu",
     "Install ROCm's HIP runtime (hip-runtime-amd, or libamdhip64 of the distribution), then: modprobe amdgpu"},
};

/// Paths in the loader's cache are NUL-terminated strings; the exact format does not matter for finding one.
std::vector<std::string> from_loader_cache(Context& context, std::string_view library) {
    std::vector<std::string> found;
    const auto cache = os::read_text(context.system, context.roots.loader_cache);
    if (!cache) {
        return found;
    }
    const std::string wanted = fmt::format("/{}", library);
    for (auto at = cache->find(wanted); at != std::string::npos; at = cache->find(wanted, at + 1)) {
        const auto before = cache->rfind('\0', at);
        const auto start = before == std::string::npos ? 0 : before + 1;
        const auto end = std::min(cache->find('\0', at), cache->size());
        auto path = cache->substr(start, end - start);
        if (os::exists(context.system, path)) {
            found.push_back(std::move(path));
        }
    }
    return found;
}

std::vector<std::string> find_library(Context& context, std::string_view library) {
    auto found = from_loader_cache(context, library);
    for (const auto& directory : context.roots.library_directories) {
        for (const auto& name : os::list_names(context.system, directory).value_or(std::vector<std::string>{})) {
            if (name.substr(0, library.size()) == library) {
                found.push_back(directory + "/" + name);
            }
        }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

} // namespace

void check_gpu_runtimes(Context& context, Checks& checks) {
    for (const auto& runtime : runtimes) {
        const auto libraries = find_library(context, runtime.library);
        const bool node = os::exists(context.system, fmt::format("{}/{}", context.roots.kernel.dev, runtime.node));
        const std::string module = fmt::format("{}/module/{}", context.roots.kernel.sysfs, runtime.module);
        const bool loaded = os::exists(context.system, module);
        const auto driver_version = os::read_text(context.system, module + "/version").value_or("");
        Check check{fmt::format("gpu.{}", runtime.id),        "GPU", CheckStatus::ok, {},
                    fmt::format("{} buffers", runtime.title), {}};
        check.found = fmt::format("{}: {}; kernel module {} {}{}; /dev/{} {}", runtime.title,
                                  libraries.empty() ? fmt::format("no {} found", runtime.library)
                                                    : fmt::format("{}", fmt::join(libraries, ", ")),
                                  runtime.module, loaded ? "loaded" : "not loaded",
                                  driver_version.empty() ? "" : " (" + driver_version + ")", runtime.node,
                                  node ? "there" : "absent");
        if (libraries.empty() || !loaded || !node) {
            // Most machines have one vendor's GPU or none: a runtime that is not there is no fault.
            check.status = CheckStatus::warn;
            check.fix = runtime.fix;
        }
        checks.push_back(std::move(check));
    }
}

} // namespace upcie::cli
