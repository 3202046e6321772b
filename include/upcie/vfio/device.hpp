// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include <upcie/iommu/address_space.hpp>
#include <upcie/iommu/iommufd.hpp>
#include <upcie/iommu/type1.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/vfio/feature.hpp>
#include <upcie/vfio/group.hpp>
#include <upcie/vfio/requests.hpp>

namespace upcie::vfio {

/// A PCI function behind vfio. upcie::open_function() chooses the way in; these take the one they are named for.
///
/// At the end: interrupts off, bus master off, then the device's file closes, and after it the group and the address
/// space. A mapped BAR keeps the kernel's side of the device open until it is unmapped as well.
/// Threads: one at a time.
class VfioFunction final : public pci::Function {
  public:
    /// Through the device's own node and an iommufd. `space` may be shared with other devices of the same Iommufd;
    /// without one, an iommufd and an IOAS are made. Errors: ENODEV (not bound to vfio-pci), ENOENT (no node, or no
    /// /dev/iommu), and those of open_cdev(), bind_iommufd(), attach_ioas(); a bind refused with EPERM names the
    /// group's other devices.
    [[nodiscard]] static Result<std::unique_ptr<VfioFunction>>
    open_cdev(os::System& system, const pci::FunctionInfo& function,
              std::shared_ptr<iommu::IoasAddressSpace> space = nullptr, const pci::Roots& roots = {});

    /// Through the node of vfio's no-IOMMU mode (Linux 7.3): DMA addresses are physical and nothing protects the
    /// machine. Errors: as open_cdev; EPERM without CAP_SYS_RAWIO.
    [[nodiscard]] static Result<std::unique_ptr<VfioFunction>>
    open_noiommu_cdev(os::System& system, const pci::FunctionInfo& function,
                      std::shared_ptr<iommu::NoIommuIoasAddressSpace> space = nullptr, const pci::Roots& roots = {});

    /// Through /dev/vfio/N and a type1 container, which may be shared with devices of other groups. A group has one
    /// opener: of two devices in the same group only one can be opened this way.
    /// Errors: ENODEV (not bound to vfio-pci) and those of Type1Container::open, Group::open,
    /// Type1Container::attach_group, Group::open_device.
    [[nodiscard]] static Result<std::unique_ptr<VfioFunction>>
    open_group(os::System& system, const pci::FunctionInfo& function,
               std::shared_ptr<iommu::Type1Container> container = nullptr, const pci::Roots& roots = {});

    /// A descriptor that its owner passed, bound and attached already, with an address space over the IOAS that it is
    /// attached to (the id travels with the iommufd). What the owner has set up stays when this object ends.
    /// Errors: EINVAL (the device is not bound, or there is no address space), ENODEV.
    [[nodiscard]] static Result<std::unique_ptr<VfioFunction>>
    adopt(os::System& system, os::Fd device, std::shared_ptr<iommu::AddressSpace> space, std::string name);
    ~VfioFunction() override;

    [[nodiscard]] const pci::Identity& identity() const noexcept override { return identity_; }
    [[nodiscard]] std::string path() const override { return path_; }
    [[nodiscard]] std::string path_reason() const override { return path_reason_; }
    void set_path_reason(std::string reason) { path_reason_ = std::move(reason); }
    [[nodiscard]] std::shared_ptr<iommu::AddressSpace> address_space() const override { return space_; }

    [[nodiscard]] Result<std::uint32_t> read_config(unsigned offset, unsigned width) override;
    Result<void> write_config(unsigned offset, unsigned width, std::uint32_t value) override;
    [[nodiscard]] Result<pci::RegionInfo> region(unsigned index) override;
    [[nodiscard]] Result<os::Mapping> map_region(unsigned index, ByteCount offset, ByteCount length) override;
    [[nodiscard]] Result<std::uint64_t> read_region(unsigned index, ByteCount offset, unsigned width) override;
    Result<void> write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) override;
    Result<void> set_bus_master(bool enabled) override;
    [[nodiscard]] Result<unsigned> interrupt_count() override;
    Result<void> enable_interrupts(std::span<const int> eventfds) override;
    Result<void> disable_interrupts() override;
    Result<void> reset() override;
    void pause() noexcept override;

    /// Resets the whole bus or slot. Refused with EPERM, naming them, when functions of others are on it.
    Result<void> hot_reset();
    /// Those that hot_reset() would hit as well. Errors: as get_hot_reset_info().
    [[nodiscard]] Result<HotResetInfo> hot_reset_info();
    /// [offset, offset + length) of a BAR as a dma-buf: for AddressSpace::map_file of another device's address space.
    /// Errors: EINVAL (outside the BAR) and those of export_dmabuf().
    [[nodiscard]] Result<os::Fd> export_bar(unsigned index, ByteCount offset, ByteCount length);
    [[nodiscard]] FeatureAnswer probe(Feature feature);

    /// The device's file, for passing it to another process; still owned by this object.
    [[nodiscard]] int device_fd() const noexcept { return device_.get(); }
    /// Its id in the iommufd that it is bound to; none through a group or when adopted.
    [[nodiscard]] std::optional<std::uint32_t> device_id() const noexcept { return device_id_; }

  private:
    struct Parts {
        std::shared_ptr<iommu::AddressSpace> space;
        Group group;                                ///< empty through a cdev
        iommu::Type1Container* container = nullptr; ///< `space`, where the group is attached to it
        os::Fd device;
        std::optional<std::uint32_t> device_id;
        std::string path;
        bool owner = true;
    };
    VfioFunction(os::System& system, pci::Identity identity, Parts parts);
    static Result<std::unique_ptr<VfioFunction>> finish(os::System& system, const pci::FunctionInfo& function,
                                                        Parts parts);
    template <class Space>
    static Result<std::unique_ptr<VfioFunction>> open_node(os::System& system, const pci::FunctionInfo& function,
                                                           std::shared_ptr<Space> space, const pci::Roots& roots,
                                                           const char* path);
    Result<const Region*> find_region(unsigned index);
    Result<std::uint64_t> read_at(unsigned index, std::uint64_t offset, unsigned width);
    Result<void> write_at(unsigned index, std::uint64_t offset, unsigned width, std::uint64_t value);

    os::System& system_;
    pci::Identity identity_;
    std::string path_;
    std::string path_reason_;
    std::optional<std::uint32_t> device_id_;
    bool owner_; ///< false: adopted, leave behind what was found
    bool bus_master_on_ = false;
    std::optional<InterruptKind> interrupts_;
    std::array<std::optional<Region>, 8> regions_; ///< asked of the kernel once; 7 is config space
    // Destroyed from the last to the first: the device's file, its group, the address space.
    std::shared_ptr<iommu::AddressSpace> space_;
    Group group_;
    iommu::Type1Container* container_; ///< what group_ is attached to
    os::Fd device_;
};

} // namespace upcie::vfio
