// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/vfio/device.hpp>

#include <cerrno>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <uapi/vfio.hpp>

namespace upcie::vfio {

namespace {

constexpr unsigned bar_and_rom_count = uapi::vfio_pci_rom_region_index + 1;
constexpr unsigned config = uapi::vfio_pci_config_region_index;
constexpr unsigned config_command = 0x04;     // PCI Base 3.0, 6.2.2
constexpr std::uint32_t command_memory = 0x2; // answer accesses to BARs
constexpr std::uint32_t command_master = 0x4; // start DMA
constexpr unsigned config_space_size = 4096;

bool is_access_width(unsigned width, unsigned largest) {
    return width != 0 && width <= largest && (width & (width - 1)) == 0;
}

std::string list_areas(const pci::RegionInfo& region) {
    std::string text;
    for (const auto& area : region.areas) {
        text += fmt::format("{}[{:#x}, {:#x})", text.empty() ? "" : ", ", area.offset.value(),
                            (area.offset + area.size).value());
    }
    return text;
}

} // namespace

VfioFunction::VfioFunction(os::System& system, pci::Identity identity, Parts parts)
    : system_{system},
      identity_{std::move(identity)},
      path_{std::move(parts.path)},
      device_id_{parts.device_id},
      owner_{parts.owner},
      space_{std::move(parts.space)},
      group_{std::move(parts.group)},
      container_{parts.container},
      device_{std::move(parts.device)} {}

VfioFunction::~VfioFunction() {
    // Nothing may write to memory or raise an interrupt for an owner that is gone. Failures mean that the device is
    // gone.
    if (interrupts_) {
        (void)disable_interrupts();
    }
    if (owner_ || bus_master_on_) {
        (void)set_bus_master(false);
    }
    if (container_ != nullptr) {
        // The container counts its groups; a mapped BAR makes this EBUSY, and then the kernel does it at the last
        // unmap.
        device_.reset();
        (void)container_->detach_group(group_.fd());
    }
}

Result<const Region*> VfioFunction::find_region(unsigned index) {
    if (index >= regions_.size()) {
        return fail(EINVAL, fmt::format("access region {}", index), identity_.name,
                    "A PCI function has BARs 0 to 5 and its ROM as number 6.");
    }
    auto& known = regions_[index];
    if (!known) {
        auto region = get_region(system_, device_.get(), index, identity_.name);
        if (!region) {
            return tl::unexpected{std::move(region.error())};
        }
        known = std::move(*region);
    }
    return &*known;
}

Result<std::uint64_t> VfioFunction::read_at(unsigned index, std::uint64_t offset, unsigned width) {
    auto region = find_region(index);
    if (!region) {
        return tl::unexpected{std::move(region.error())};
    }
    const std::string operation = fmt::format("read {} bytes at {:#x} of region {}", width, offset, index);
    const std::uint64_t size = (*region)->info.size.value();
    if (offset % width != 0 || width > size || offset > size - width) {
        return fail(EINVAL, operation, identity_.name, "Offset and width must be aligned and inside the region.");
    }
    std::array<unsigned char, 8> bytes{};
    const ssize_t got =
        system_.pread(device_.get(), bytes.data(), width, static_cast<off_t>((*region)->file_offset + offset));
    if (got != static_cast<ssize_t>(width)) {
        return fail(got < 0 ? errno : EIO, operation, identity_.name,
                    "The device does not answer: memory decode is off, or it is asleep or gone.");
    }
    std::uint64_t value = 0; // vfio's files are little-endian on every host
    for (unsigned i = width; i-- > 0;) {
        value = value << 8 | bytes[i];
    }
    return value;
}

Result<void> VfioFunction::write_at(unsigned index, std::uint64_t offset, unsigned width, std::uint64_t value) {
    auto region = find_region(index);
    if (!region) {
        return tl::unexpected{std::move(region.error())};
    }
    const std::string operation = fmt::format("write {} bytes at {:#x} of region {}", width, offset, index);
    const std::uint64_t size = (*region)->info.size.value();
    if (offset % width != 0 || width > size || offset > size - width) {
        return fail(EINVAL, operation, identity_.name, "Offset and width must be aligned and inside the region.");
    }
    std::array<unsigned char, 8> bytes{};
    for (unsigned i = 0; i < width; ++i) {
        bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    const ssize_t put =
        system_.pwrite(device_.get(), bytes.data(), width, static_cast<off_t>((*region)->file_offset + offset));
    if (put != static_cast<ssize_t>(width)) {
        return fail(put < 0 ? errno : EIO, operation, identity_.name,
                    "The device does not take it: memory decode is off, or it is asleep or gone.");
    }
    return {};
}

Result<std::uint32_t> VfioFunction::read_config(unsigned offset, unsigned width) {
    if (!is_access_width(width, 4) || offset >= config_space_size) {
        return fail(EINVAL, "read config space", identity_.name, "Widths are 1, 2 and 4, offsets below 4096.");
    }
    auto value = read_at(config, offset, width);
    if (!value) {
        return tl::unexpected{std::move(value.error())};
    }
    return static_cast<std::uint32_t>(*value);
}

Result<void> VfioFunction::write_config(unsigned offset, unsigned width, std::uint32_t value) {
    if (!is_access_width(width, 4) || offset >= config_space_size) {
        return fail(EINVAL, "write config space", identity_.name, "Widths are 1, 2 and 4, offsets below 4096.");
    }
    return write_at(config, offset, width, value);
}

Result<pci::RegionInfo> VfioFunction::region(unsigned index) {
    if (index >= bar_and_rom_count) {
        return fail(EINVAL, fmt::format("describe region {}", index), identity_.name,
                    "A PCI function has BARs 0 to 5 and its ROM as number 6.");
    }
    auto found = find_region(index);
    if (!found) {
        return tl::unexpected{std::move(found.error())};
    }
    return (*found)->info;
}

Result<os::Mapping> VfioFunction::map_region(unsigned index, ByteCount offset, ByteCount length) {
    auto found = find_region(index);
    if (!found) {
        return tl::unexpected{std::move(found.error())};
    }
    const pci::RegionInfo& info = (*found)->info;
    const std::string operation =
        fmt::format("map [{:#x}, +{:#x}) of region {}", offset.value(), length.value(), index);
    if (info.areas.empty()) {
        return fail(ENOTSUP, operation, identity_.name,
                    "No part of this region can be mapped: use read_region and write_region.");
    }
    for (const auto& area : info.areas) {
        if (length.value() != 0 && length <= area.size && offset >= area.offset &&
            offset - area.offset <= area.size - length) {
            return os::Mapping::map(system_, device_.get(), static_cast<off_t>((*found)->file_offset + offset.value()),
                                    length);
        }
    }
    return fail(EINVAL, operation, identity_.name,
                fmt::format("It must lie inside one of the areas that may be mapped: {}.", list_areas(info)));
}

Result<std::uint64_t> VfioFunction::read_region(unsigned index, ByteCount offset, unsigned width) {
    if (!is_access_width(width, 8) || index >= bar_and_rom_count) {
        return fail(EINVAL, "read region", identity_.name, "Widths are 1, 2, 4 and 8, regions 0 to 6.");
    }
    return read_at(index, offset.value(), width);
}

Result<void> VfioFunction::write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) {
    if (!is_access_width(width, 8) || index >= bar_and_rom_count) {
        return fail(EINVAL, "write region", identity_.name, "Widths are 1, 2, 4 and 8, regions 0 to 6.");
    }
    return write_at(index, offset.value(), width, value);
}

Result<void> VfioFunction::set_bus_master(bool enabled) {
    auto command = read_config(config_command, 2);
    if (!command) {
        return tl::unexpected{std::move(command.error())};
    }
    // Memory decode comes along: a BAR that does not answer is of no use to who starts DMA.
    const std::uint32_t wanted = enabled ? *command | command_memory | command_master : *command & ~command_master;
    if (wanted != *command) {
        if (auto written = write_config(config_command, 2, wanted); !written) {
            return written;
        }
    }
    bus_master_on_ = enabled;
    return {};
}

Result<unsigned> VfioFunction::interrupt_count() {
    auto count = get_interrupt_count(system_, device_.get(), InterruptKind::msix, identity_.name);
    if (count && *count == 0) {
        return get_interrupt_count(system_, device_.get(), InterruptKind::msi, identity_.name);
    }
    return count;
}

Result<void> VfioFunction::enable_interrupts(std::span<const int> eventfds) {
    auto msix = get_interrupt_count(system_, device_.get(), InterruptKind::msix, identity_.name);
    if (!msix) {
        return tl::unexpected{std::move(msix.error())};
    }
    const auto kind = *msix > 0 ? InterruptKind::msix : InterruptKind::msi;
    auto count = *msix > 0 ? msix : get_interrupt_count(system_, device_.get(), kind, identity_.name);
    if (!count) {
        return tl::unexpected{std::move(count.error())};
    }
    if (*count == 0) {
        return fail(ENOTSUP, "enable interrupts", identity_.name, "The function has neither MSI-X nor MSI: poll.");
    }
    if (eventfds.empty() || eventfds.size() > *count) {
        return fail(EINVAL, "enable interrupts", identity_.name,
                    fmt::format("{} vectors were asked for, the function has {}.", eventfds.size(), *count));
    }
    if (interrupts_) { // the kernel takes a new set only after the old one is off
        if (auto off = disable_interrupts(); !off) {
            return off;
        }
    }
    if (auto on = set_interrupts(system_, device_.get(), kind, eventfds, identity_.name); !on) {
        return on;
    }
    interrupts_ = kind;
    return {};
}

Result<void> VfioFunction::disable_interrupts() {
    if (!interrupts_) {
        return {};
    }
    auto off = clear_interrupts(system_, device_.get(), *interrupts_, identity_.name);
    if (off) {
        interrupts_.reset();
    }
    return off;
}

Result<void> VfioFunction::reset() {
    auto done = vfio::reset(system_, device_.get(), identity_.name);
    if (!done && (done.error().is(EINVAL) || done.error().is(ENOTTY))) {
        done.error().code = ENOTSUP; // what the seam promises for a function without a reset
    }
    return done;
}

void VfioFunction::pause() noexcept {
    std::this_thread::yield();
}

Result<HotResetInfo> VfioFunction::hot_reset_info() {
    return get_hot_reset_info(system_, device_.get(), identity_.name);
}

Result<void> VfioFunction::hot_reset() {
    auto info = hot_reset_info();
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    std::string others;
    for (const auto& function : info->affected) {
        const bool ours = info->by_device_id ? function.owned : function.id == group_.number();
        if (!ours) {
            others += fmt::format("{}{}", others.empty() ? "" : ", ", function.bdf.to_string());
        }
    }
    if (!others.empty()) {
        return fail(EPERM, "hot reset", identity_.name,
                    fmt::format("It would reset {} too, which this process does not own.", others));
    }
    const int group = group_.fd();
    return vfio::hot_reset(system_, device_.get(),
                           info->by_device_id ? std::span<const int>{} : std::span<const int>{&group, 1},
                           identity_.name);
}

Result<os::Fd> VfioFunction::export_bar(unsigned index, ByteCount offset, ByteCount length) {
    auto found = find_region(index);
    if (!found) {
        return tl::unexpected{std::move(found.error())};
    }
    const ByteCount size = (*found)->info.size;
    if (length > size || offset > size - length) {
        return fail(EINVAL, fmt::format("export [{:#x}, +{:#x}) of region {}", offset.value(), length.value(), index),
                    identity_.name, fmt::format("The region has {:#x} bytes.", size.value()));
    }
    const DmaRange range{offset, length};
    return export_dmabuf(system_, device_.get(), index, {&range, 1}, identity_.name);
}

FeatureAnswer VfioFunction::probe(Feature feature) {
    return probe_feature(system_, device_.get(), feature);
}

} // namespace upcie::vfio
