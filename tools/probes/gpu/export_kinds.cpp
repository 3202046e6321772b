// SPDX-License-Identifier: BSD-3-Clause
#include "export_kinds.hpp"

#include <cerrno>
#include <utility>

#include <sys/mman.h>

#include <upcie/dmabuf/dma_buf.hpp>

namespace upcie::probes {

void ask_descriptor(Report& report, os::System& system, gpu::Export exported) {
    void* const mapped = system.mmap(nullptr, static_cast<std::size_t>(exported.size.value()), PROT_READ, MAP_SHARED,
                                     exported.fd.get(), 0);
    const int refused = errno;
    constexpr int kernels_own_enotsupp = 524;
    const bool nameless = mapped == MAP_FAILED && refused == kernels_own_enotsupp;
    report.outcome("descriptor.mmap", mapped == MAP_FAILED ? refused : 0,
                   nameless ? "errno 524 is ENOTSUPP, which only the kernel has a name for" : "");
    if (mapped != MAP_FAILED) {
        system.munmap(mapped, static_cast<std::size_t>(exported.size.value()));
    }
    auto buffer = dmabuf::DmaBuf::adopt(system, std::move(exported.fd));
    if (!buffer) {
        report.not_seen("descriptor.exporter", buffer.error().message());
        return;
    }
    report.observe("descriptor.exporter", buffer->facts().exporter);
    report.observe("descriptor.size", buffer->size().value(), "bytes");
    const auto begun = buffer->begin_cpu_access(dmabuf::DmaBuf::CpuAccess::read);
    report.outcome("descriptor.begin_cpu_access", begun ? 0 : begun.error().code);
    if (begun) {
        const auto ended = buffer->end_cpu_access(dmabuf::DmaBuf::CpuAccess::read);
        report.outcome("descriptor.end_cpu_access", ended ? 0 : ended.error().code);
    }
}

} // namespace upcie::probes
