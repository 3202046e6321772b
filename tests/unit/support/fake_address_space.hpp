// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>

#include <upcie/iommu/address_space.hpp>

namespace upcie::test {

/// An address space that refuses every mapping: for tests that only hand it around.
class FakeAddressSpace final : public iommu::AddressSpace {
  public:
    explicit FakeAddressSpace(iommu::AddressSpaceKind kind) : kind_{kind} {}
    [[nodiscard]] iommu::AddressSpaceKind kind() const noexcept override { return kind_; }
    [[nodiscard]] std::string describe() const override { return "a fake address space"; }
    [[nodiscard]] bool translating() const noexcept override {
        return kind_ == iommu::AddressSpaceKind::iommufd || kind_ == iommu::AddressSpaceKind::type1;
    }
    [[nodiscard]] Result<std::vector<iommu::IovaRange>> iova_ranges() override {
        return std::vector<iommu::IovaRange>{};
    }
    [[nodiscard]] ByteCount granule() const noexcept override { return ByteCount{4096}; }

  protected:
    Result<Mapped> do_map_memory(void*, ByteCount, iommu::Access) override { return refuse(); }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount, iommu::Access) override { return refuse(); }
    Result<void> do_unmap(std::uint64_t, ByteCount) override { return {}; }

  private:
    static tl::unexpected<Error> refuse() { return fail(EOPNOTSUPP, "map", "a fake address space", ""); }
    iommu::AddressSpaceKind kind_;
};

} // namespace upcie::test
