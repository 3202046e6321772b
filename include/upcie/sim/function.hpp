// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <upcie/os/system.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/sim/controller.hpp>
#include <upcie/sim/options.hpp>

namespace upcie::sim {

/// A simulated controller as a PCI function: what the driver opens in place of a real one.
///
/// Owns its part of the controller; controller() may be kept to watch it, also after this object is gone (bus mastering
/// and interrupts are off then). Threads: as pci::Function.
class Function final : public pci::Function {
  public:
    /// `name` is what identity() answers. `space` may be one that other simulated functions use; null makes one from
    /// the options. Errors: Controller::create's and AddressSpace::create's.
    [[nodiscard]] static Result<std::unique_ptr<Function>> create(const Options& options, std::string name = "sim:",
                                                                  std::shared_ptr<AddressSpace> space = nullptr,
                                                                  os::System& system = os::real_system());
    ~Function() override;

    [[nodiscard]] const std::shared_ptr<Controller>& controller() const noexcept { return controller_; }

    [[nodiscard]] const pci::Identity& identity() const noexcept override { return identity_; }
    [[nodiscard]] std::string path() const override;
    [[nodiscard]] std::string path_reason() const override;
    [[nodiscard]] std::shared_ptr<iommu::AddressSpace> address_space() const override;
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

  private:
    Function(std::shared_ptr<Controller> controller, pci::Identity identity);
    [[nodiscard]] Result<void> check_access(const char* operation, unsigned index, ByteCount offset,
                                            unsigned width) const;
    void fill_config();

    std::shared_ptr<Controller> controller_;
    pci::Identity identity_;
    std::array<std::uint8_t, 4096> config_{};
};

/// Opens a device named "sim:key=value,…" (Options::parse). Errors: Options::parse's and Function::create's.
[[nodiscard]] Result<std::unique_ptr<pci::Function>> open_function(std::string_view spec,
                                                                   os::System& system = os::real_system());

} // namespace upcie::sim
