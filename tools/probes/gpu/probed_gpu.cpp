// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "../environment.hpp"
#include "probed_gpu.hpp"

namespace upcie::probes {

void tell(Report& report, const std::string& name, const Error& error, const std::string& note) {
    if (error.domain == ErrorDomain::system) {
        report.outcome(name, error.code, note);
    } else {
        report.observe(name, error.code_name, "outcome", note);
    }
}

Result<DevicePointer> ProbedGpu::register_host(void* start, ByteCount length) {
    return fail(ENOTSUP, "register host memory",
                fmt::format("{} bytes at {:#x}", length.value(), reinterpret_cast<std::uintptr_t>(start)),
                "This flavour has no call for it.");
}

Result<void> ProbedGpu::unregister_host(void* start) {
    return fail(ENOTSUP, "unregister host memory",
                fmt::format("memory at {:#x}", reinterpret_cast<std::uintptr_t>(start)),
                "This flavour has no call for it.");
}

namespace {

/// What the flavour has no call for was not asked of the runtime, and is no answer of it.
void tell_call(Report& report, const std::string& name, const Error& error) {
    if (error.is(ENOTSUP) || error.is(ENOSYS)) {
        report.not_seen(name, error.hint);
    } else {
        tell(report, name, error);
    }
}

} // namespace

std::optional<Error> import_own_memory(Report& report, ProbedGpu& gpu, gpu::ExternalHandle kind) {
    constexpr ByteCount size{std::uint64_t{2} << 20};
    const std::string name = fmt::format("own.{}", gpu::to_string(kind));
    const auto exported = gpu.export_own(kind, size);
    if (!exported) {
        tell_call(report, name + ".export", exported.error());
        return exported.error();
    }
    report.outcome(name + ".export", 0);
    const auto imported = gpu.import_external(kind, exported->get(), size);
    if (!imported) {
        tell_call(report, name + ".import", imported.error());
        return imported.error();
    }
    report.outcome(name + ".import", 0);
    if (const auto released = gpu.release_external(*imported); !released) {
        tell(report, name + ".release", released.error());
    }
    return std::nullopt;
}

std::string uuid_text(const std::array<std::uint8_t, 16>& uuid) {
    std::string text;
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
    return text;
}

} // namespace upcie::probes
