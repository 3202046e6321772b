// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/function.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "sim/bar.hpp"
#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

// Offsets in config space (PCI Local Bus 3.0, chapter 6; PCI Express Base 5.0, section 7.5).
constexpr unsigned command_register = 0x04;
constexpr unsigned bus_master_bit = 1U << 2;
constexpr unsigned pm_capability = 0x40;
constexpr unsigned express_capability = 0x50;
constexpr unsigned device_control = express_capability + 8;
constexpr unsigned initiate_reset_bit = 1U << 15;
constexpr unsigned msix_capability = 0x90;
constexpr unsigned msix_control = msix_capability + 2;
constexpr std::uint64_t page = 4096;

std::string subject_of(unsigned index, ByteCount offset) {
    return fmt::format("simulated region {}, offset 0x{:x}", index, offset.value());
}

} // namespace

Function::Function(std::shared_ptr<Controller> controller, pci::Identity identity)
    : controller_{std::move(controller)}, identity_{std::move(identity)} {
    fill_config();
}

Function::~Function() {
    controller_->set_bus_master(false);
    static_cast<void>(controller_->set_interrupts({}));
}

Result<std::unique_ptr<Function>> Function::create(const Options& options, std::string name,
                                                   std::shared_ptr<AddressSpace> space, os::System& system) {
    if (!space) {
        auto made = AddressSpace::create(options.addresses, system);
        if (!made) {
            return tl::unexpected{std::move(made.error())};
        }
        space = std::move(*made);
    }
    auto controller = Controller::create(options, std::move(space), system);
    if (!controller) {
        return tl::unexpected{std::move(controller.error())};
    }
    pci::Identity identity;
    identity.name = std::move(name);
    identity.vendor = options.vendor;
    identity.device = options.device;
    identity.class_code = 0x010802;
    return std::unique_ptr<Function>{new Function{std::move(*controller), std::move(identity)}};
}

Result<std::unique_ptr<pci::Function>> open_function(std::string_view spec, os::System& system) {
    const auto options = Options::parse(spec);
    if (!options) {
        return tl::unexpected{options.error()};
    }
    auto function = Function::create(*options, std::string{spec}, nullptr, system);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    return std::unique_ptr<pci::Function>{std::move(*function)};
}

void Function::fill_config() {
    const auto put16 = [&](unsigned offset, unsigned value) {
        config_[offset] = static_cast<std::uint8_t>(value);
        config_[offset + 1] = static_cast<std::uint8_t>(value >> 8);
    };
    const auto put32 = [&](unsigned offset, std::uint32_t value) {
        put16(offset, value & 0xffff);
        put16(offset + 2, value >> 16);
    };
    const Options& options = controller_->options();
    const unsigned vectors = Engine::vector_count(options);
    put16(0x00, options.vendor);
    put16(0x02, options.device);
    put16(command_register, 0x0002); // memory decode on, as a driver finds it after opening through vfio
    put16(0x06, 0x0010);             // a list of capabilities
    put32(0x08, 0x010802U << 8);     // class, revision 0
    put32(0x10, 0x00000004);         // BAR 0: 64-bit memory
    if (options.msix_table == 0 && vectors != 0) {
        put32(0x20, 0x00000004); // BAR 4 likewise
    }
    put16(0x2c, options.vendor);
    put16(0x2e, options.device);
    config_[0x34] = pm_capability;
    put32(pm_capability, 0x00030001U | (express_capability << 8));
    const unsigned after_express = vectors != 0 ? msix_capability : 0;
    put32(express_capability, 0x00020010U | (after_express << 8));
    put32(express_capability + 4, 1U << 28 | 1U << 15); // function level reset, role-based errors
    if (vectors != 0) {
        put16(msix_capability, 0x0011);
        put16(msix_control, vectors - 1);
        const auto table = static_cast<std::uint32_t>(options.msix_table);
        put32(msix_capability + 4, table != 0 ? table : 4U);
        put32(msix_capability + 8, table != 0 ? table : 0x8004U); // pending bits: never read by a driver
    }
}

std::string Function::path() const {
    return controller_->options().threaded ? "simulator with a thread of its own" : "simulator without thread";
}

std::string Function::path_reason() const {
    return fmt::format("the name \"{}\" asks for the simulator", identity_.name);
}

std::shared_ptr<iommu::AddressSpace> Function::address_space() const {
    return controller_->address_space();
}

Result<std::uint32_t> Function::read_config(unsigned offset, unsigned width) {
    if ((width != 1 && width != 2 && width != 4) || offset % width != 0 || offset + width > config_.size()) {
        return fail(EINVAL, "read config space", fmt::format("offset 0x{:x}, width {}", offset, width),
                    "Width 1, 2 or 4 at a multiple of it below 4096.");
    }
    std::uint32_t value = 0;
    std::memcpy(&value, config_.data() + offset, width);
    return value;
}

Result<void> Function::write_config(unsigned offset, unsigned width, std::uint32_t value) {
    const auto old = read_config(offset & ~3U, 4);
    if ((width != 1 && width != 2 && width != 4) || offset % width != 0 || !old || offset + width > config_.size()) {
        return fail(EINVAL, "write config space", fmt::format("offset 0x{:x}, width {}", offset, width),
                    "Width 1, 2 or 4 at a multiple of it below 4096.");
    }
    std::array<std::uint8_t, 4> written{};
    std::memcpy(written.data(), &value, width);
    for (unsigned i = 0; i < width; ++i) {
        const unsigned at = offset + i;
        std::uint8_t writable = 0;
        if (at == command_register) {
            writable = 0x06; // memory decode, bus master
        } else if (at == command_register + 1) {
            writable = 0x04; // pin interrupt off
        } else if (at == msix_control + 1 && config_[msix_capability] == 0x11) {
            writable = 0xc0; // enable, mask all
        } else if (at == device_control || at == 0x3c) {
            writable = 0xff;
        } else if (at == device_control + 1) {
            writable = 0x7f; // the top bit starts a reset and reads as 0
        }
        config_[at] = static_cast<std::uint8_t>((config_[at] & ~writable) | (written[i] & writable));
        if (at == command_register) {
            controller_->set_bus_master((config_[at] & bus_master_bit) != 0);
        } else if (at == device_control + 1 && (written[i] & (initiate_reset_bit >> 8)) != 0) {
            return reset();
        }
    }
    return {};
}

Result<pci::RegionInfo> Function::region(unsigned index) {
    if (index > 6) {
        return fail(EINVAL, "ask region", fmt::format("region {}", index), "There are BARs 0 to 5, and 6 for the ROM.");
    }
    pci::RegionInfo info;
    info.index = index;
    const Options& options = controller_->options();
    if (index == 0) {
        info.size = controller_->bar_size();
        info.readable = info.writable = true;
        if (options.msix_table == 0) {
            info.areas = {{ByteCount{0}, info.size}};
        } else {
            // What shares a page with the table cannot be mapped either.
            const std::uint64_t end = options.msix_table + std::uint64_t{Engine::vector_count(options)} * 16;
            const std::uint64_t first = options.msix_table / page * page;
            const std::uint64_t after = (end + page - 1) / page * page;
            info.areas = {{ByteCount{0}, ByteCount{first}}};
            if (after < info.size.value()) {
                info.areas.push_back({ByteCount{after}, ByteCount{info.size.value() - after}});
            }
        }
    } else if (index == 4 && options.msix_table == 0 && Engine::vector_count(options) != 0) {
        info.size = ByteCount{0x10000};
        info.readable = info.writable = true;
    }
    return info;
}

Result<os::Mapping> Function::map_region(unsigned index, ByteCount offset, ByteCount length) {
    const auto info = region(index);
    if (!info) {
        return tl::unexpected{info.error()};
    }
    if (info->areas.empty()) {
        return fail(ENOTSUP, "map region", subject_of(index, offset), "This region cannot be mapped.");
    }
    if (length.value() == 0 || offset.value() % page != 0) {
        return fail(EINVAL, "map region", subject_of(index, offset), "Map whole pages, one at least.");
    }
    for (const pci::MappableArea& area : info->areas) {
        if (offset >= area.offset && offset - area.offset < area.size && length <= area.size - (offset - area.offset)) {
            return controller_->map_bar(offset, length);
        }
    }
    return fail(EINVAL, "map region", subject_of(index, offset), "The range must lie inside one mappable area.");
}

Result<void> Function::check_access(const char* operation, unsigned index, ByteCount offset, unsigned width) const {
    const bool good_width = width == 1 || width == 2 || width == 4 || width == 8;
    const std::uint64_t size = index == 0 ? controller_->bar_size().value() : 0;
    if (!good_width || offset.value() % width != 0 || size < width || offset.value() > size - width) {
        return fail(EINVAL, operation, subject_of(index, offset),
                    "Width 1, 2, 4 or 8 at a multiple of it, inside BAR 0.");
    }
    return {};
}

Result<std::uint64_t> Function::read_region(unsigned index, ByteCount offset, unsigned width) {
    const auto checked = check_access("read region", index, offset, width);
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    return controller_->read_bar(offset, width);
}

Result<void> Function::write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) {
    auto checked = check_access("write region", index, offset, width);
    if (!checked) {
        return checked;
    }
    controller_->write_bar(offset, width, value);
    return {};
}

Result<void> Function::set_bus_master(bool enabled) {
    const auto command = read_config(command_register, 2);
    return write_config(command_register, 2, enabled ? *command | bus_master_bit : *command & ~bus_master_bit);
}

Result<unsigned> Function::interrupt_count() {
    return Engine::vector_count(controller_->options());
}

Result<void> Function::enable_interrupts(std::span<const int> eventfds) {
    const unsigned vectors = Engine::vector_count(controller_->options());
    if (vectors == 0) {
        return fail(ENOTSUP, "enable interrupts", identity_.name,
                    "This simulated device has none (vectors=none): poll.");
    }
    if (eventfds.size() > vectors) {
        return fail(EINVAL, "enable interrupts", fmt::format("{}, {} eventfds", identity_.name, eventfds.size()),
                    fmt::format("There are {} vectors.", vectors));
    }
    return controller_->set_interrupts(eventfds);
}

Result<void> Function::disable_interrupts() {
    return controller_->set_interrupts({});
}

Result<void> Function::reset() {
    controller_->reset();
    fill_config(); // command and control registers are as after power-on, so that bus mastering is off
    return {};
}

void Function::pause() noexcept {
    if (controller_->options().threaded) {
        sched_yield();
    } else {
        controller_->step();
    }
}

} // namespace upcie::sim
