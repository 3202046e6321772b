// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <mutex>

#include <upcie/iommu/address_space.hpp>

namespace upcie::test {

/// An address space of made-up addresses: one run a mapping, or runs of `pages_per_run` pages that do not meet. It
/// knows what is mapped, so that a test sees when a mapping goes.
class ScatteredSpace final : public iommu::AddressSpace {
  public:
    explicit ScatteredSpace(std::uint64_t pages_per_run = 0, std::uint64_t granule = 4096)
        : pages_per_run_{pages_per_run}, granule_{granule} {}

    [[nodiscard]] iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    [[nodiscard]] std::string describe() const override { return "a test's address space"; }
    [[nodiscard]] bool translating() const noexcept override { return pages_per_run_ == 0; }
    [[nodiscard]] Result<std::vector<iommu::IovaRange>> iova_ranges() override {
        return std::vector<iommu::IovaRange>{};
    }
    [[nodiscard]] ByteCount granule() const noexcept override { return ByteCount{granule_}; }
    [[nodiscard]] std::size_t mapped() const {
        const std::lock_guard lock{mutex_};
        return live_.size();
    }

  protected:
    Result<Mapped> do_map_memory(void*, ByteCount length, iommu::Access) override {
        const std::lock_guard lock{mutex_};
        Mapped result;
        result.token = next_;
        const std::uint64_t run = pages_per_run_ == 0 ? length.value() : pages_per_run_ * 4096;
        for (std::uint64_t done = 0; done < length.value(); done += run) {
            const std::uint64_t bytes = std::min(run, length.value() - done);
            result.extents.push_back({DmaAddress{next_}, ByteCount{bytes}});
            next_ += bytes + (pages_per_run_ == 0 ? 0 : 4096);
        }
        live_[result.token] = length.value();
        return result;
    }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount length, iommu::Access access) override {
        return do_map_memory(nullptr, length, access);
    }
    Result<void> do_unmap(std::uint64_t token, ByteCount) override {
        const std::lock_guard lock{mutex_};
        live_.erase(token);
        return {};
    }

  private:
    mutable std::mutex mutex_;
    std::uint64_t pages_per_run_;
    std::uint64_t granule_;
    std::uint64_t next_ = 0; // address 0 is legal and handed out first
    std::map<std::uint64_t, std::uint64_t> live_;
};

} // namespace upcie::test
