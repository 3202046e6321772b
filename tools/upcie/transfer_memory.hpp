// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <CLI/App.hpp>

#include <upcie/gpu/open.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>

#include "device.hpp"

namespace upcie::cli {

/// Whose memory blocks are moved into and out of.
struct MemoryChoice {
    std::string name; ///< "bar:BDF:N", "cuda:0", "hip", "stub:exact"; empty: the host's
    bool system_memory_ok = false;

    [[nodiscard]] bool host() const noexcept { return name.empty(); }
    [[nodiscard]] bool bar() const noexcept { return std::string_view{name}.substr(0, 4) == "bar:"; }
};

/// --into and --system-memory-ok
void add_memory_options(CLI::App& subcommand, MemoryChoice& choice);

/// Memory that a controller may use, registered. The CPU gets at it, but for a GPU's, which the runtime copies.
class TransferMemory {
  public:
    TransferMemory() = default;

    /// `wanted` bytes, or of a BAR what whole pieces of `piece` bytes it has room for. Failure: usage (another form of
    /// text), precondition (there is no such device, runtime or importer), failed (all that making it says).
    [[nodiscard]] static Outcome<TransferMemory> make(Context& context, const Session& session,
                                                      const MemoryChoice& choice, ByteCount wanted, ByteCount piece);

    /// Of the first byte, as commands are given it.
    [[nodiscard]] std::byte* data() const noexcept { return registration_.data(); }
    [[nodiscard]] ByteCount size() const noexcept { return registration_.size(); }
    [[nodiscard]] std::shared_ptr<memory::Registry> registry() const noexcept { return registry_; }
    /// The runtime whose memory it is; null where the CPU gets at it by itself.
    [[nodiscard]] const std::shared_ptr<gpu::Runtime>& gpu() const noexcept { return gpu_; }

  private:
    Result<void> on_host(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space, ByteCount size);
    Result<void> in_bar(os::System& system, std::string_view spec, ByteCount wanted, ByteCount piece);
    Result<void> on_gpu(os::System& system, const Session& session, const MemoryChoice& choice, ByteCount size);

    std::shared_ptr<gpu::Runtime> gpu_;
    memory::Buffer buffer_;
    std::shared_ptr<memory::Registry> registry_;
    memory::Registration registration_; // declared last: unregistered before the memory goes
};

/// One command's part of it.
class MemoryPart {
  public:
    MemoryPart(const TransferMemory& memory, ByteCount offset, ByteCount length);

    /// As the command is given it.
    [[nodiscard]] std::byte* address() const noexcept { return address_; }
    /// For the CPU: the memory itself, or, of a GPU's, a copy that to_device() and to_host() make the same.
    [[nodiscard]] std::span<std::byte> bytes() noexcept { return gpu_ ? std::span{copy_} : direct_; }
    /// Errors: the runtime's. Nothing to do where the CPU gets at it.
    Result<void> to_device();
    Result<void> to_host(std::size_t length);
    /// gpu::checksum of the first `length` bytes, computed where they are; nothing where no device code does it here.
    /// Errors: the GPU runtime's.
    [[nodiscard]] Result<std::optional<std::uint64_t>> checksum_on_device(std::size_t length) const;

  private:
    gpu::Runtime* gpu_;
    std::byte* address_;
    std::span<std::byte> direct_;
    std::vector<std::byte> copy_;
};

/// What a command brought, which is on the host only where somebody asks for it.
class Landed {
  public:
    Landed(MemoryPart& part, std::size_t length) noexcept : part_{part}, length_{length} {}
    /// Errors: the GPU runtime's, of the copy.
    [[nodiscard]] Result<std::span<std::byte>> bytes();
    [[nodiscard]] Result<std::optional<std::uint64_t>> checksum_on_device() const {
        return part_.checksum_on_device(length_);
    }

  private:
    MemoryPart& part_;
    std::size_t length_;
    bool here_ = false;
};

} // namespace upcie::cli
