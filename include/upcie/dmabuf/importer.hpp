// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <upcie/dmabuf/dma_buf.hpp>
#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::dmabuf {

/// The PCI function that will do the DMA, by the numbers of its address (pci::Bdf has the same).
struct PciFunction {
    std::uint32_t domain = 0;
    std::uint8_t bus = 0;
    std::uint8_t device = 0;   ///< 0 to 31
    std::uint8_t function = 0; ///< 0 to 7
};

/// What keeps the memory of an import in its place.
enum class Pinning : std::uint8_t {
    refused,   ///< nothing: the exporter refuses to pin, and may move or revoke it
    pinned,    ///< the exporter has pinned it
    immovable, ///< the exporter knows no pinning: it never moves memory, but may revoke it (udmabuf, vfio)
};
/// "refused", "pinned", "immovable"
[[nodiscard]] std::string_view to_string(Pinning pinning) noexcept;

/// What the addresses of an import are.
enum class Addressing : std::uint8_t {
    physical,       ///< as the function puts them on the bus: no IOMMU, or an identity domain is live
    default_domain, ///< of the function's default DMA domain: wrong in every other, so for vfio and iommufd
    bounced,        ///< perhaps of copies (bounce buffers), as the function's DMA mask does not reach all memory
};
/// "physical", "default domain", "bounce buffers"
[[nodiscard]] std::string_view to_string(Addressing addressing) noexcept;

/// What the module says of a dma-buf when it imports it; true of that moment.
struct ImportFacts {
    std::string exporter;
    ByteCount size; ///< of the dma-buf
    std::uint64_t segment_count = 0;
    Pinning pinning = Pinning::refused;
    bool peer_to_peer = false; ///< the exporter may answer with addresses of device memory
    Addressing addressing = Addressing::default_domain;
};

/// A dma-buf that is attached as one PCI function, and where its bytes are for that function. As long as this lives,
/// the memory stays attached (and pinned, where the exporter pins); ~Import lets go of it. It keeps its Importer's node
/// open, and needs neither the Importer nor the DmaBuf any more.
///
/// Move-only. Threads: one at a time.
class Import {
  public:
    Import(Import&& other) noexcept;
    Import& operator=(Import&& other) noexcept;
    ~Import();

    [[nodiscard]] const ImportFacts& facts() const noexcept { return facts_; }
    /// The addresses. Whether they may be used, facts().addressing tells, and Importer::import made sure of; whether
    /// they are still true, revoked() tells.
    [[nodiscard]] const ScatterList& scatter_list() const noexcept { return list_; }
    /// True when the exporter has moved the memory or taken it away since: the addresses must not be used any more.
    /// Never becomes false again; import anew. Asks the kernel. Errors: EBADF (was released), and what ioctl(2) says.
    [[nodiscard]] Result<bool> revoked() const;
    /// Lets go of the memory now. Errors: EBADF (was released), and what ioctl(2) says.
    Result<void> release();

  private:
    friend class Importer;
    Import(os::System& system, std::shared_ptr<os::Fd> node, std::uint32_t handle) noexcept
        : system_{&system}, node_{std::move(node)}, handle_{handle} {}
    Result<void> read_segments(const std::string& subject);

    os::System* system_;
    std::shared_ptr<os::Fd> node_; // empty: released or moved from
    std::uint32_t handle_;
    ImportFacts facts_;
    ScatterList list_;
};

/// The client of the kernel module upcie_dmabuf_import (src/kmod/dmabuf_import): mainline Linux shows no dma-buf's
/// addresses to userspace.
///
/// Move-only, owns the open node. Threads: any may import and ask at the same time.
class Importer {
  public:
    static constexpr const char* default_node = "/dev/upcie_dmabuf_import";

    /// Opens the module's node and checks that both speak the same version. Errors: ENOENT (the module is not loaded),
    /// EACCES (the node is root's, mode 0600), ENOTTY (the node is something else), EPROTONOSUPPORT (the module is
    /// older or newer than this library), and what open(2) says.
    [[nodiscard]] static Result<Importer> open(os::System& system, const char* node = default_node);

    /// Which addresses import() may answer with.
    enum class Accept : std::uint8_t {
        physical, ///< only those that the function may use on a path without translation
        any,      ///< all, to be looked at: a probe's business, never for DMA
    };
    /// Attaches to the buffer as `function`, with device memory allowed, pins it where that can be had, and reads its
    /// scatter list, which is made sure to describe all of the buffer.
    /// Errors: EOPNOTSUPP (the addresses are not physical ones, or the exporter does not serve this function), EINVAL
    /// (likewise, or numbers out of range), ENXIO (no such PCI function), ENODEV and ESTALE (revoked), EMFILE (the
    /// module's limit of handles), EAGAIN (the function's IOMMU domain changed meanwhile), E2BIG (too many segments),
    /// EIO (the kernel cannot map it for this function), ENOMEM, EBADF (no dma-buf), ERANGE (the list describes less
    /// than the buffer's size), EPROTO (the module contradicts itself).
    [[nodiscard]] Result<Import> import(const DmaBuf& buffer, const PciFunction& function,
                                        Accept accept = Accept::physical) const;

    /// Whether any Import of this Importer is revoked, waiting at most `wait` (whole milliseconds, at most 2^31-1) for
    /// that to happen. Each Import says itself whether it is the one. Errors: what poll(2) says.
    [[nodiscard]] Result<bool> any_revoked(std::chrono::milliseconds wait = {}) const;
    /// For an event loop: POLLPRI as long as any_revoked().
    [[nodiscard]] int fd() const noexcept { return node_->get(); }

  private:
    Importer(os::System& system, std::shared_ptr<os::Fd> node) noexcept : system_{&system}, node_{std::move(node)} {}

    os::System* system_;
    std::shared_ptr<os::Fd> node_;
};

} // namespace upcie::dmabuf
