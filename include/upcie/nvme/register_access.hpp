// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <upcie/nvme/registers.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/pci/function.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// How 64-bit registers are accessed: some devices and bridges break a single access.
enum class WideAccess : std::uint8_t {
    single,        ///< one 64-bit access
    low_then_high, ///< two 32-bit accesses, the lower address first
};

/// BAR0 of one controller: through mappings where its areas let themselves be mapped, else through the Function.
///
/// A register that reads as all ones is a device that is gone (none that this library reads has such a value):
/// that is ENODEV, never a value. Holds its Function. Threads: any.
class RegisterAccess {
  public:
    /// Looks at BAR0. Errors: ENODEV (BAR0 is not there or too small for the registers), and what region() says.
    [[nodiscard]] static Result<std::unique_ptr<RegisterAccess>> create(std::shared_ptr<pci::Function> function,
                                                                        WideAccess wide = WideAccess::single);

    /// Errors: ENODEV (all ones: the device is gone), EINVAL (unaligned or outside BAR0), and what read_region says.
    [[nodiscard]] Result<std::uint32_t> read32(ByteCount offset);
    [[nodiscard]] Result<std::uint64_t> read64(ByteCount offset);
    /// Errors: EINVAL (unaligned or outside BAR0), and what write_region says.
    Result<void> write32(ByteCount offset, std::uint32_t value);
    Result<void> write64(ByteCount offset, std::uint64_t value);

    [[nodiscard]] Result<Capabilities> capabilities();
    [[nodiscard]] Result<Version> version();
    [[nodiscard]] Result<Configuration> configuration();
    Result<void> write(Configuration configuration);
    [[nodiscard]] Result<ControllerStatus> status();

    /// A pointer to a 32-bit register for as long as this object lives: the doorbells of a queue.
    /// Errors: ERANGE (outside BAR0), ENOTSUP (no area that can be mapped holds it), and what map_region says.
    [[nodiscard]] Result<volatile std::uint32_t*> pointer(ByteCount offset);
    /// True when pointer() has an area for it.
    [[nodiscard]] bool mappable(ByteCount offset) const noexcept;

    [[nodiscard]] ByteCount size() const noexcept { return region_.size; }
    [[nodiscard]] const std::string& name() const noexcept { return function_->identity().name; }

  private:
    RegisterAccess(std::shared_ptr<pci::Function> function, pci::RegionInfo region, WideAccess wide);

    struct Window {
        ByteCount start;
        os::Mapping mapping;
    };
    [[nodiscard]] Result<volatile std::byte*> locate(ByteCount offset, unsigned width);
    [[nodiscard]] Result<void> check(const char* operation, ByteCount offset, unsigned width) const;
    [[nodiscard]] Error gone(ByteCount offset) const;
    [[nodiscard]] Result<std::uint64_t> load(ByteCount offset, unsigned width);
    Result<void> store(ByteCount offset, unsigned width, std::uint64_t value);

    std::shared_ptr<pci::Function> function_;
    pci::RegionInfo region_;
    WideAccess wide_;
    std::mutex mutex_; ///< guards windows_ and calls of function_
    std::vector<Window> windows_;
};

} // namespace upcie::nvme
