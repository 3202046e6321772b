// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <upcie/iommu/address_space.hpp>

namespace upcie::test {

/// Device addresses are pointers of this process. `scattered`: no two pages are neighbours.
class PointerSpace final : public iommu::AddressSpace {
  public:
    explicit PointerSpace(bool scattered = false) : scattered_{scattered} {}
    iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    std::string describe() const override { return "pointers"; }
    bool translating() const noexcept override { return !scattered_; }
    Result<std::vector<iommu::IovaRange>> iova_ranges() override { return std::vector<iommu::IovaRange>{}; }
    ByteCount granule() const noexcept override { return ByteCount{unit}; }

    std::size_t live = 0;      ///< mappings
    std::uint64_t unit = 4096; ///< and what every mapping's address is a multiple of

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, iommu::Access) override {
        ++live;
        return Mapped{0, {{DmaAddress{reinterpret_cast<std::uintptr_t>(start)}, length}}};
    }
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, iommu::Access) override {
        ++live;
        Mapped mapped;
        mapped.token = ++tokens_;
        const std::size_t piece = scattered_ ? 4096 : length.value();
        for (std::size_t done = 0; done < length.value(); done += piece) {
            // More room than needed, so that the next piece does not follow.
            const std::size_t reserved = piece + unit + 4096;
            void* const room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            auto* const start =
                reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(room) + unit - 1) & ~(unit - 1));
            void* const page = ::mmap(start, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                                      static_cast<off_t>(offset.value() + done));
            mapped.extents.push_back({DmaAddress{reinterpret_cast<std::uintptr_t>(page)}, ByteCount{piece}});
            rooms_[mapped.token].push_back({room, reserved});
        }
        return mapped;
    }
    Result<void> do_unmap(std::uint64_t token, ByteCount) override {
        --live;
        for (const auto& [address, length] : rooms_[token]) {
            ::munmap(address, length);
        }
        rooms_.erase(token);
        return {};
    }

  private:
    bool scattered_;
    std::uint64_t tokens_ = 0;
    std::map<std::uint64_t, std::vector<std::pair<void*, std::size_t>>> rooms_;
};

} // namespace upcie::test
