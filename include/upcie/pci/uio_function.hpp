// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <memory>
#include <string>

#include <upcie/iommu/address_space.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>

namespace upcie::pci {

/// A function bound to uio_pci_generic and driven through sysfs: for kernels whose vfio has no no-IOMMU cdev. DMA
/// addresses are physical and nothing protects the machine; there are no interrupts.
///
/// At the end: bus master off, then the claim goes. Threads: one at a time.
class UioFunction final : public Function {
  public:
    /// `space` answers physical addresses (hugepages and pagemap). The claim is a lock on /dev/uioN, which every user
    /// of this library takes; uio itself lets anybody in. Errors: ENODEV (not bound to uio_pci_generic), EBUSY (claimed
    /// by another process), EPERM (the IOMMU translates for this function: physical addresses would fault; or the
    /// kernel is locked down), EACCES (needs root), EINVAL (`space` does not answer physical addresses).
    [[nodiscard]] static Result<std::unique_ptr<UioFunction>> open(os::System& system, const FunctionInfo& function,
                                                                   std::shared_ptr<iommu::AddressSpace> space,
                                                                   const Roots& roots = {});
    ~UioFunction() override;

    [[nodiscard]] const Identity& identity() const noexcept override { return identity_; }
    [[nodiscard]] std::string path() const override { return "uio_pci_generic + hugepages + pagemap"; }
    [[nodiscard]] std::string path_reason() const override { return path_reason_; }
    void set_path_reason(std::string reason) { path_reason_ = std::move(reason); }
    [[nodiscard]] std::shared_ptr<iommu::AddressSpace> address_space() const override { return space_; }

    [[nodiscard]] Result<std::uint32_t> read_config(unsigned offset, unsigned width) override;
    Result<void> write_config(unsigned offset, unsigned width, std::uint32_t value) override;
    [[nodiscard]] Result<RegionInfo> region(unsigned index) override;
    [[nodiscard]] Result<os::Mapping> map_region(unsigned index, ByteCount offset, ByteCount length) override;
    [[nodiscard]] Result<std::uint64_t> read_region(unsigned index, ByteCount offset, unsigned width) override;
    Result<void> write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) override;
    Result<void> set_bus_master(bool enabled) override;
    [[nodiscard]] Result<unsigned> interrupt_count() override { return 0U; }
    Result<void> enable_interrupts(std::span<const int> eventfds) override;
    Result<void> disable_interrupts() override { return {}; }
    Result<void> reset() override;
    void pause() noexcept override;

  private:
    UioFunction(os::System& system, Identity identity, FunctionInfo info, std::string directory,
                std::shared_ptr<iommu::AddressSpace> space);
    /// The BAR mapped whole, once, for accesses of single registers.
    Result<std::byte*> register_at(unsigned index, ByteCount offset, unsigned width);

    os::System& system_;
    Identity identity_;
    FunctionInfo info_;
    std::string directory_; ///< in sysfs
    std::string path_reason_;
    std::shared_ptr<iommu::AddressSpace> space_;
    os::Fd claim_;
    os::Fd config_;
    std::array<os::Mapping, 6> bars_;
};

} // namespace upcie::pci
