// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <upcie/dmabuf/importer.hpp>
#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::memory {

/// One allocation of device memory, exported: whole host pages around it, so that its neighbours' bytes may be in it,
/// which never resolve.
///
/// Held in two ways. What DeviceExports::export_at() answers is a *use*: while there is one, the export is the
/// allocation's, and whoever asks gets the same. memory() keeps the export itself and is no use of it: what a device
/// may still be touching stays exported, after the allocation has been freed and its addresses belong to another.
struct DeviceExport : std::enable_shared_from_this<DeviceExport> {
    [[nodiscard]] std::shared_ptr<const DeviceExport> memory() const { return shared_from_this(); }

    gpu::Allocation allocation;
    DevicePointer start;     ///< of what was asked to be exported: the allocation's base, rounded down to a host page
    ByteCount length;        ///< to its end, rounded up
    gpu::Export exported;    ///< may describe more, never less
    dmabuf::ScatterList bus; ///< where an importer found it on the bus; empty without an importer
    std::shared_ptr<void> keep; ///< the import
    /// Whether the exporter took the memory away since it was imported; empty where nobody can tell.
    std::function<Result<bool>()> revoked;
};

/// The exports of a GPU runtime, one an allocation, however many registrations and registries use it: an export takes
/// BAR space on the device. Device addresses are not shared: each registry has those of its own AddressSpace.
///
/// Held by shared_ptr. Threads: any; locks, for cold paths.
class DeviceExports {
  public:
    /// What an importer answers: where the bytes are, and what keeps them there.
    struct Import {
        dmabuf::ScatterList bus;
        std::shared_ptr<void> keep;
        std::function<Result<bool>()> revoked = {}; ///< asked before the import serves another registration
    };
    using Importer = std::function<Result<Import>(const gpu::Export&)>;

    struct Options {
        /// Needed for address spaces that do not translate; without it they refuse device memory.
        Importer importer;
        /// An import that describes system memory is refused: the exporter moved the buffer away from the device, and
        /// what is written there the device never sees. Off where device memory is system memory (integrated GPUs, the
        /// stub over real udmabufs).
        bool refuse_system_memory = true;
    };

    DeviceExports(std::shared_ptr<gpu::Runtime> runtime, Options options);

    /// The export that holds `pointer`: the one in use, or made now where there is none or its memory was revoked.
    /// Errors: the runtime's, the importer's, ERANGE (exported or imported less than was asked), EREMOTE (it moved to
    /// system memory).
    [[nodiscard]] Result<std::shared_ptr<const DeviceExport>> export_at(DevicePointer pointer);
    /// Exports that are in use.
    [[nodiscard]] std::size_t live_count() const;
    [[nodiscard]] gpu::Runtime& runtime() const noexcept { return *runtime_; }

  private:
    Result<std::shared_ptr<DeviceExport>> make(const gpu::Allocation& allocation);

    std::shared_ptr<gpu::Runtime> runtime_;
    Options options_;
    mutable std::mutex mutex_;
    /// Uses, by base and size. One ends with the last registration of it, and not with the mapping that queues may
    /// still need: memory that was freed and allocated anew at the same address has another export.
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<const DeviceExport>> exports_;
};

/// An importer for DeviceExports::Options, by the kernel module (src/kmod/dmabuf_import): attaches to each export as
/// `function`, which is the one whose DMA will go there, and keeps it attached as long as the export is in use. Only
/// physical addresses come out of it. `system` and `importer` are kept. Errors: those of DmaBuf::adopt (the export is
/// no real dma-buf) and dmabuf::Importer::import.
[[nodiscard]] DeviceExports::Importer
import_by_kernel(os::System& system, std::shared_ptr<const dmabuf::Importer> importer, dmabuf::PciFunction function);

} // namespace upcie::memory
