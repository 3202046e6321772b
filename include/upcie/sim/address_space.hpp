// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::sim {

/// How a simulated address space hands out addresses.
struct AddressSpaceOptions {
    /// Addresses come from here. The default lies above 4 GiB, so that an address cut to 32 bits is noticed.
    iommu::IovaRange aperture{Iova{std::uint64_t{1} << 32}, Iova{(std::uint64_t{1} << 39) - 1}};
    /// 0: one run a mapping, as behind an IOMMU. N: every N pages of a mapping are a run of their own at an address
    /// drawn at random, as physical memory is (512 imitates 2 MiB pages). A mapping's start is aligned to N pages then,
    /// seen from its own beginning.
    unsigned pages_per_run = 0;
    /// The first mapping gets address 0 where the aperture has it: legal, and never "none".
    bool use_zero = false;
    std::uint64_t seed = 1; ///< of the scattered addresses: the same seed and calls give the same addresses
};

/// Why the device was refused an access.
struct AccessFault {
    DmaAddress address;
    ByteCount length;
    iommu::Access wanted = iommu::Access::read; ///< from the device's side: write is into host memory
    const char* reason = "";                    ///< "not mapped" and so on, a literal
};

/// How a simulated device gets at memory that the CPU cannot map: a GPU's, by the GPU's runtime. Both answer whether
/// all of it was done. Threads: called from whichever thread the device runs in.
struct Reach {
    std::function<bool(ByteCount offset, std::span<std::byte> out)> read;
    std::function<bool(ByteCount offset, std::span<const std::byte> data)> write;
};

/// An IOMMU without hardware: made-up addresses, a table, and access to host memory through that table only.
///
/// Device memory (map_dmabuf) answers at the bus addresses that its importer names, wherever they are.
/// Addresses are never reused while the aperture has fresh ones, and mappings never abut, so that stale and overlong
/// transfers fault instead of hitting a neighbour. Threads: any; an unmap waits for accesses in progress, so after it
/// returned the device touches the memory no more.
class AddressSpace final : public iommu::AddressSpace {
  public:
    /// Errors: EINVAL (aperture empty or not whole pages).
    [[nodiscard]] static Result<std::shared_ptr<AddressSpace>> create(AddressSpaceOptions options = {},
                                                                      os::System& system = os::real_system());
    ~AddressSpace() override;

    [[nodiscard]] iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    [[nodiscard]] std::string describe() const override;
    [[nodiscard]] bool translating() const noexcept override { return options_.pages_per_run == 0; }
    [[nodiscard]] Result<std::vector<iommu::IovaRange>> iova_ranges() override;
    [[nodiscard]] ByteCount granule() const noexcept override { return ByteCount{page_size}; }

    /// Has the memory that the dma-buf `fd` stands for be reached by `reach`, and not by mapping it, in every mapping
    /// of it that is made until the answer is let go of; a mapping keeps what it needs. Error: EBADF.
    [[nodiscard]] Result<std::shared_ptr<void>> reach_by(int fd, Reach reach);

    // ---- the device's side. Each answers the fault instead of touching anything outside.

    /// Copies host memory at `address` out.
    [[nodiscard]] std::optional<AccessFault> read(DmaAddress address, std::span<std::byte> out) const;
    /// Copies `data` into host memory at `address`.
    [[nodiscard]] std::optional<AccessFault> write(DmaAddress address, std::span<const std::byte> data) const;
    /// Fills host memory with zeroes.
    [[nodiscard]] std::optional<AccessFault> write_zeroes(DmaAddress address, ByteCount length) const;
    /// Stores a dword after everything written so far (a completion entry's last). `address` is a multiple of 4.
    [[nodiscard]] std::optional<AccessFault> store_release(DmaAddress address, std::uint32_t value) const;
    /// Whether the device may do `wanted` with all of a range.
    [[nodiscard]] std::optional<AccessFault> check(DmaAddress address, ByteCount length, iommu::Access wanted) const;

    [[nodiscard]] std::size_t mapping_count() const;

    static constexpr std::uint64_t page_size = 4096;

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, iommu::Access access) override;
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, iommu::Access access) override;
    Result<Mapped> do_map_bus(int fd, ByteCount offset, std::vector<Extent> extents, iommu::Access access) override;
    Result<void> do_unmap(std::uint64_t token, ByteCount length) override;

  private:
    struct FileByte { ///< of a regular file
        std::uint64_t device;
        std::uint64_t inode;
        std::uint64_t offset;
        friend bool operator==(const FileByte&, const FileByte&) noexcept = default;
    };
    /// Where a device's access goes: into memory of this process, or through somebody who reaches it.
    struct Place {
        std::byte* host = nullptr;
        std::shared_ptr<const Reach> reach{};
        std::uint64_t offset = 0; ///< of `reach`

        [[nodiscard]] Place operator+(std::uint64_t bytes) const {
            return {host != nullptr ? host + bytes : nullptr, reach, offset + bytes};
        }
        /// From `inside` on. False where it is not reached.
        [[nodiscard]] bool read(std::uint64_t inside, std::span<std::byte> out) const;
        [[nodiscard]] bool write(std::uint64_t inside, std::span<const std::byte> data) const;
    };
    struct Window { ///< a run: keyed by its first address
        std::uint64_t length;
        Place place;
        iommu::Access access;
        std::uint64_t token;
        std::vector<Window> others{}; ///< of further mappings of the same device memory: the bus has one place for it
        std::optional<FileByte> backing{}; ///< of device memory: what its first byte is
    };
    struct Record {
        std::uint64_t length;
        std::vector<std::uint64_t> windows;
        os::Mapping own; ///< of a mapped file
    };

    AddressSpace(AddressSpaceOptions options, os::System& system);
    /// What a file's mapping is of: the file mapped into this process, or who reaches it.
    struct Source {
        os::Mapping own;
        Place place;
    };
    [[nodiscard]] Result<Source> open_source(int fd, ByteCount offset, ByteCount length, iommu::Access access);
    Result<Mapped> place(Source source, ByteCount length, iommu::Access access);
    void drop(std::uint64_t address, std::uint64_t token);
    void split(std::uint64_t address);
    [[nodiscard]] bool add_to_bus(std::uint64_t first, Window window, Record& record);
    std::optional<std::uint64_t> find_room(std::uint64_t length);
    [[nodiscard]] bool is_free(std::uint64_t first, std::uint64_t length) const;
    template <class Visit>
    std::optional<AccessFault> visit(DmaAddress address, std::uint64_t length, iommu::Access wanted,
                                     Visit&& each) const;

    const AddressSpaceOptions options_;
    os::System& system_;
    mutable std::shared_mutex mutex_;
    std::map<std::uint64_t, Window> windows_;
    std::map<std::uint64_t, Record> records_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<const Reach>> reaches_; ///< by device and inode
    std::uint64_t next_token_ = 1;
    std::uint64_t cursor_;
    std::mt19937_64 random_;
};

} // namespace upcie::sim
