// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/device_exports.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>

#include <upcie/dmabuf/dma_buf.hpp>

namespace upcie::memory {

namespace {

constexpr std::uint64_t host_page = 4096; // what exporters count in, whatever the host's page is

std::string name_of(const gpu::Allocation& allocation) {
    return fmt::format("device allocation of {} bytes at {:#x}", allocation.size.value(), allocation.base.value());
}

} // namespace

DeviceExports::DeviceExports(std::shared_ptr<gpu::Runtime> runtime, Options options)
    : runtime_{std::move(runtime)}, options_{std::move(options)} {}

Result<std::shared_ptr<DeviceExport>> DeviceExports::make(const gpu::Allocation& allocation) {
    const std::string subject = name_of(allocation);
    const std::uint64_t base = allocation.base.value();
    const std::uint64_t size = allocation.size.value();
    if (size == 0 || size > std::numeric_limits<std::uint64_t>::max() - base - host_page) {
        return fail(EINVAL, "export device memory", subject, "The runtime reports an allocation that cannot be one.");
    }
    const std::uint64_t first = base & ~(host_page - 1);
    const std::uint64_t end = (base + size + host_page - 1) & ~(host_page - 1);
    auto shared = std::make_shared<DeviceExport>();
    DeviceExport& made = *shared;
    made.allocation = allocation;
    made.start = DevicePointer{first};
    made.length = ByteCount{end - first};
    auto exported = runtime_->export_range(made.start, made.length);
    if (!exported) {
        return tl::unexpected{std::move(exported.error())};
    }
    made.exported = std::move(*exported);
    if (made.exported.size < made.length) {
        return fail(ERANGE, "export device memory", subject,
                    fmt::format("{} bytes from {:#x} were asked and the export describes {}: it would end inside the "
                                "allocation.",
                                made.length.value(), first, made.exported.size.value()));
    }
    if (!options_.importer) {
        return shared;
    }
    auto imported = options_.importer(made.exported);
    if (!imported) {
        return tl::unexpected{std::move(imported.error())};
    }
    made.bus = std::move(imported->bus);
    made.keep = std::move(imported->keep);
    made.revoked = std::move(imported->revoked);
    // More is no fault: some exporters describe the whole buffer object, from the same base.
    if (auto described = made.bus.check_describes(ByteCount{}, made.length, subject); !described) {
        return tl::unexpected{std::move(described.error())};
    }
    if (options_.refuse_system_memory) {
        for (const auto& run : made.bus.runs()) {
            if (run.kind == dmabuf::SegmentKind::ram) {
                return fail(EREMOTE, "import device memory", subject,
                            fmt::format("{} bytes from offset {} are in system memory: the exporter moved the buffer, "
                                        "as amdgpu does for an importer that is not allowed peer-to-peer. The device "
                                        "would not see what is written there.",
                                        run.extent.length.value(), run.offset.value()));
            }
        }
    }
    return shared;
}

Result<std::shared_ptr<const DeviceExport>> DeviceExports::export_at(DevicePointer pointer) {
    // Held through the export: two threads that register the same allocation are to have the same one.
    const std::lock_guard lock{mutex_};
    const auto allocation = runtime_->allocation_of(pointer);
    if (!allocation) {
        return tl::unexpected{allocation.error()};
    }
    const std::uint64_t base = allocation->base.value();
    if (pointer.value() < base || pointer.value() - base >= allocation->size.value()) {
        return fail(EPROTO, "find an allocation", fmt::format("device address {:#x}", pointer.value()),
                    fmt::format("The runtime answers a {}, which does not hold it.", name_of(*allocation)));
    }
    std::erase_if(exports_, [](const auto& one) { return one.second.expired(); });
    auto& slot = exports_[{base, allocation->size.value()}];
    if (auto known = slot.lock()) {
        const auto revoked = known->revoked ? known->revoked() : Result<bool>{false};
        if (!revoked) {
            return tl::unexpected{revoked.error()};
        }
        if (!*revoked) {
            return known;
        }
    }
    auto made = make(*allocation);
    if (!made) {
        return tl::unexpected{std::move(made.error())};
    }
    // A count of its own for the uses. It lets go of the export with the last of them, and not when the map above
    // forgets.
    const DeviceExport* const address = made->get();
    std::shared_ptr<const DeviceExport> use{address,
                                            [held = std::move(*made)](const DeviceExport*) mutable { held.reset(); }};
    slot = use;
    return use;
}

std::size_t DeviceExports::live_count() const {
    const std::lock_guard lock{mutex_};
    return static_cast<std::size_t>(
        std::count_if(exports_.begin(), exports_.end(), [](const auto& one) { return !one.second.expired(); }));
}

DeviceExports::Importer import_by_kernel(os::System& system, std::shared_ptr<const dmabuf::Importer> importer,
                                         dmabuf::PciFunction function) {
    return [&system, importer = std::move(importer),
            function](const gpu::Export& exported) -> Result<DeviceExports::Import> {
        // The export keeps its own descriptor; the kernel holds the memory for the import.
        const int copy = system.fcntl(exported.fd.get(), F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            return fail(errno, "duplicate a descriptor", "an export", "The export holds none, or there are too many.");
        }
        const auto buffer = dmabuf::DmaBuf::adopt(system, os::Fd{system, copy});
        if (!buffer) {
            return tl::unexpected{buffer.error()};
        }
        auto made = importer->import(*buffer, function);
        if (!made) {
            return tl::unexpected{std::move(made.error())};
        }
        dmabuf::ScatterList bus = made->scatter_list();
        auto kept = std::make_shared<dmabuf::Import>(std::move(*made));
        return DeviceExports::Import{std::move(bus), kept, [kept] { return kept->revoked(); }};
    };
}

} // namespace upcie::memory
