// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <upcie/pci/function.hpp>

namespace upcie::test {

/// A function that is nothing but config space, which the test fills.
class ConfigOnlyFunction final : public pci::Function {
  public:
    std::array<std::uint8_t, 4096> config{};
    unsigned config_size = 4096;
    int reads = 0;

    void set8(unsigned offset, unsigned value) { config[offset] = static_cast<std::uint8_t>(value); }
    void set16(unsigned offset, unsigned value) {
        set8(offset, value & 0xff);
        set8(offset + 1, value >> 8 & 0xff);
    }
    void set32(unsigned offset, std::uint32_t value) {
        set16(offset, value & 0xffff);
        set16(offset + 2, value >> 16);
    }

    [[nodiscard]] const pci::Identity& identity() const noexcept override { return identity_; }
    [[nodiscard]] std::string path() const override { return "fake"; }
    [[nodiscard]] std::string path_reason() const override { return "a test"; }
    [[nodiscard]] std::shared_ptr<iommu::AddressSpace> address_space() const override { return nullptr; }
    [[nodiscard]] Result<std::uint32_t> read_config(unsigned offset, unsigned width) override {
        ++reads;
        if (offset + width > config_size) {
            return fail(EINVAL, "read config", "fake", "");
        }
        std::uint32_t value = 0;
        for (unsigned i = width; i-- > 0;) {
            value = value << 8 | config[offset + i];
        }
        return value;
    }
    Result<void> write_config(unsigned, unsigned, std::uint32_t) override { return unsupported(); }
    [[nodiscard]] Result<pci::RegionInfo> region(unsigned) override { return unsupported(); }
    [[nodiscard]] Result<os::Mapping> map_region(unsigned, ByteCount, ByteCount) override { return unsupported(); }
    [[nodiscard]] Result<std::uint64_t> read_region(unsigned, ByteCount, unsigned) override { return unsupported(); }
    Result<void> write_region(unsigned, ByteCount, unsigned, std::uint64_t) override { return unsupported(); }
    Result<void> set_bus_master(bool) override { return unsupported(); }
    [[nodiscard]] Result<unsigned> interrupt_count() override { return 0U; }
    Result<void> enable_interrupts(std::span<const int>) override { return unsupported(); }
    Result<void> disable_interrupts() override { return unsupported(); }
    Result<void> reset() override { return unsupported(); }
    void pause() noexcept override {}

  private:
    static tl::unexpected<Error> unsupported() { return fail(ENOTSUP, "use", "fake", ""); }
    pci::Identity identity_{"fake", {}, 0, 0, 0, -1};
};

} // namespace upcie::test
