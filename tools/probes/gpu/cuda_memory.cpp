// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_memory.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include <upcie/dmabuf/dma_buf.hpp>

namespace upcie::probes {

namespace {

using namespace upcie::literals;
using gpu::cuda::Cuda;
using gpu::cuda::MemoryKind;

/// What a descriptor says of itself, and what it lets the CPU do.
void ask_descriptor(Report& report, os::System& system, gpu::Export exported) {
    void* const mapped = system.mmap(nullptr, static_cast<std::size_t>(exported.size.value()), PROT_READ, MAP_SHARED,
                                     exported.fd.get(), 0);
    const int refused = errno;
    report.outcome("descriptor.mmap", mapped == MAP_FAILED ? refused : 0,
                   "errno 524 is ENOTSUPP, which only the kernel has a name for");
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

} // namespace

void ask_cuda_memory(Report& report, os::System& system, Cuda& cuda) {
    constexpr ByteCount size = 4_MiB;
    for (const MemoryKind kind :
         {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::managed, MemoryKind::host}) {
        const std::string name = fmt::format("kind.{}", gpu::cuda::to_string(kind));
        const auto base = cuda.allocate(kind, size);
        if (!base) {
            tell(report, name + ".allocate", base.error());
            continue;
        }
        if (const auto found = cuda.allocation_of(*base + 100_B)) {
            report.observe(name + ".recovered_from_100_bytes_in", found->base == *base, {},
                           fmt::format("{} bytes", found->size.value()));
        } else {
            tell(report, name + ".recovered_from_100_bytes_in", found.error());
        }
        auto exported = cuda.export_range(*base, size);
        if (!exported) {
            tell(report, name + ".export", exported.error());
        } else {
            report.outcome(name + ".export", 0);
            report.observe(name + ".size", exported->size.value(), "bytes");
            if (kind == MemoryKind::device) {
                ask_descriptor(report, system, std::move(*exported));
            }
        }
        if (const auto part = cuda.export_range(*base + 2_MiB, 2_MiB)) {
            report.outcome(name + ".export_of_2m_at_2m", 0);
        } else {
            tell(report, name + ".export_of_2m_at_2m", part.error());
        }
        if (kind == MemoryKind::device) {
            if (const auto pcie = cuda.export_range(*base, size, gpu::cuda::ExportMapping::pcie)) {
                report.outcome(name + ".export_with_the_pcie_flag", 0);
            } else {
                tell(report, name + ".export_with_the_pcie_flag", pcie.error());
            }
        }
        if (const auto freed = cuda.free(kind, *base); !freed) {
            tell(report, name + ".free", freed.error());
        }
    }
}

} // namespace upcie::probes
