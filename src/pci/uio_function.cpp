// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/uio_function.hpp>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::pci {

namespace {

constexpr unsigned config_command = 0x04;
constexpr std::uint32_t command_memory = 0x2;
constexpr std::uint32_t command_master = 0x4;

Result<void> check_usable(const FunctionInfo& function, const iommu::AddressSpace& space) {
    const std::string name = function.bdf.to_string();
    if (function.driver != "uio_pci_generic") {
        return fail(ENODEV, "open through uio", name,
                    fmt::format("It is bound to {}, not to uio_pci_generic.",
                                function.driver.empty() ? "no driver" : function.driver));
    }
    if (space.translating()) {
        return fail(EINVAL, "open through uio", name,
                    fmt::format("{} answers IOVAs, and without vfio nothing translates them.", space.describe()));
    }
    if (function.iommu_group && !function.iommu_group->noiommu && function.iommu_group->type != "identity") {
        return fail(
            EPERM, "open through uio", name,
            fmt::format("The IOMMU translates for its group {} ({}): physical addresses would fault. Unbind it, "
                        "write \"identity\" to /sys/kernel/iommu_groups/{}/type and bind it again, or use "
                        "vfio-pci.",
                        function.iommu_group->number, function.iommu_group->type, function.iommu_group->number));
    }
    return {};
}

/// /dev/uioN of the function: /sys/bus/pci/devices/BDF/uio/uioN.
Result<os::Fd> claim(os::System& system, const FunctionInfo& function, const Roots& roots) {
    auto names = os::list_names(system, roots.device(function.bdf) + "/uio");
    if (!names || names->empty()) {
        return fail(ENODEV, "open through uio", function.bdf.to_string(),
                    "uio_pci_generic made no uio device for it; the kernel's log may say why.");
    }
    const std::string node = roots.dev + "/" + names->front();
    os::Fd fd{system, system.open(node.c_str(), O_RDWR | O_CLOEXEC)};
    if (!fd) {
        const int code = errno;
        return fail(code, "open", node, code == EACCES ? "Driving a device through uio needs root." : "");
    }
    if (system.flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
        const int code = errno;
        return code == EWOULDBLOCK
                   ? fail(EBUSY, "claim", node,
                          fmt::format("Another process drives this device: `fuser -v {}` names it.", node))
                   : fail(code, "claim", node, "");
    }
    return fd;
}

} // namespace

UioFunction::UioFunction(os::System& system, Identity identity, FunctionInfo info, std::string directory,
                         std::shared_ptr<iommu::AddressSpace> space)
    : system_{system},
      identity_{std::move(identity)},
      info_{std::move(info)},
      directory_{std::move(directory)},
      space_{std::move(space)} {}

UioFunction::~UioFunction() {
    if (config_) {
        (void)set_bus_master(false); // a failure means that the device is gone
    }
}

Result<std::unique_ptr<UioFunction>> UioFunction::open(os::System& system, const FunctionInfo& function,
                                                       std::shared_ptr<iommu::AddressSpace> space, const Roots& roots) {
    if (!space) {
        return fail(EINVAL, "open", function.bdf.to_string(), "There is no address space: uio brings none along.");
    }
    if (auto usable = check_usable(function, *space); !usable) {
        return tl::unexpected{std::move(usable.error())};
    }
    auto claimed = claim(system, function, roots);
    if (!claimed) {
        return tl::unexpected{std::move(claimed.error())};
    }
    const std::string directory = roots.device(function.bdf);
    const std::string config = directory + "/config";
    os::Fd config_fd{system, system.open(config.c_str(), O_RDWR | O_CLOEXEC)};
    if (!config_fd) {
        const int code = errno;
        return fail(code, "open", config, "Driving a device through uio needs root.");
    }
    std::unique_ptr<UioFunction> made{
        new UioFunction{system, function.identity(), function, directory, std::move(space)}};
    made->claim_ = std::move(*claimed);
    made->config_ = std::move(config_fd);
    return made;
}

Result<std::uint32_t> UioFunction::read_config(unsigned offset, unsigned width) {
    const std::string operation = fmt::format("read {} bytes at {:#x} of config space", width, offset);
    if ((width != 1 && width != 2 && width != 4) || offset % width != 0 || offset >= 4096) {
        return fail(EINVAL, operation, identity_.name, "Widths are 1, 2 and 4, aligned, below 4096.");
    }
    std::array<unsigned char, 4> bytes{};
    const ssize_t got = system_.pread(config_.get(), bytes.data(), width, static_cast<off_t>(offset));
    if (got == 0) {
        return fail(EINVAL, operation, identity_.name,
                    "The function's config space ends before (root sees all of it).");
    }
    if (got != static_cast<ssize_t>(width)) {
        return fail(got < 0 ? errno : EIO, operation, identity_.name, "The device does not answer.");
    }
    std::uint32_t value = 0; // config space is little-endian
    for (unsigned i = width; i-- > 0;) {
        value = value << 8 | bytes[i];
    }
    return value;
}

Result<void> UioFunction::write_config(unsigned offset, unsigned width, std::uint32_t value) {
    const std::string operation = fmt::format("write {} bytes at {:#x} of config space", width, offset);
    if ((width != 1 && width != 2 && width != 4) || offset % width != 0 || offset >= 4096) {
        return fail(EINVAL, operation, identity_.name, "Widths are 1, 2 and 4, aligned, below 4096.");
    }
    std::array<unsigned char, 4> bytes{};
    for (unsigned i = 0; i < width; ++i) {
        bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    const ssize_t put = system_.pwrite(config_.get(), bytes.data(), width, static_cast<off_t>(offset));
    if (put != static_cast<ssize_t>(width)) {
        const int code = put < 0 ? errno : EIO;
        return fail(code, operation, identity_.name,
                    code == EPERM ? "The kernel is locked down: it lets nobody write to config space." : "");
    }
    return {};
}

Result<RegionInfo> UioFunction::region(unsigned index) {
    if (index > 6) {
        return fail(EINVAL, fmt::format("describe region {}", index), identity_.name,
                    "A PCI function has BARs 0 to 5 and its ROM as number 6.");
    }
    RegionInfo region;
    region.index = index;
    const BarInfo* bar = info_.bar(index);
    if (bar == nullptr) {
        return region;
    }
    region.size = bar->size;
    // I/O ports and the ROM are not reached through a mapping, an unassigned BAR not at all.
    const bool memory = !bar->io && !bar->unassigned && index < 6;
    region.readable = memory;
    region.writable = memory;
    // sysfs maps whole pages from the one that the BAR begins in: a BAR that shares its page is not mapped.
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (memory && bar->address.value() % page == 0) {
        region.areas.push_back({ByteCount{0}, bar->size});
    }
    return region;
}

Result<os::Mapping> UioFunction::map_region(unsigned index, ByteCount offset, ByteCount length) {
    auto info = region(index);
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    const std::string operation =
        fmt::format("map [{:#x}, +{:#x}) of region {}", offset.value(), length.value(), index);
    if (info->areas.empty()) {
        return fail(ENOTSUP, operation, identity_.name,
                    "This region cannot be mapped (absent, I/O ports, or not a page).");
    }
    if (length.value() == 0 || length > info->size || offset > info->size - length) {
        return fail(EINVAL, operation, identity_.name, fmt::format("The region has {:#x} bytes.", info->size.value()));
    }
    const std::string file = fmt::format("{}/resource{}", directory_, index);
    const os::Fd resource{system_, system_.open(file.c_str(), O_RDWR | O_CLOEXEC)};
    if (!resource) {
        const int code = errno;
        return fail(code, "open", file, code == EACCES ? "Mapping a BAR through sysfs needs root." : "");
    }
    auto mapping = os::Mapping::map(system_, resource.get(), static_cast<off_t>(offset.value()), length);
    if (!mapping && mapping.error().is(EPERM)) {
        mapping.error().hint = "The kernel is locked down: it lets nobody map a BAR outside vfio.";
    }
    return mapping;
}

Result<std::byte*> UioFunction::register_at(unsigned index, ByteCount offset, unsigned width) {
    auto info = region(index);
    if (!info) {
        return tl::unexpected{std::move(info.error())};
    }
    const std::uint64_t size = info->size.value();
    if (index > 5 || (width != 1 && width != 2 && width != 4 && width != 8) || width > size ||
        offset.value() % width != 0 || offset.value() > size - width) {
        return fail(EINVAL, fmt::format("access {} bytes at {:#x} of region {}", width, offset.value(), index),
                    identity_.name, "Offset and width must be aligned and inside a BAR.");
    }
    if (!bars_[index]) {
        auto mapping = map_region(index, ByteCount{0}, info->size);
        if (!mapping) {
            return tl::unexpected{std::move(mapping.error())};
        }
        bars_[index] = std::move(*mapping);
    }
    return bars_[index].data() + offset.value();
}

Result<std::uint64_t> UioFunction::read_region(unsigned index, ByteCount offset, unsigned width) {
    auto place = register_at(index, offset, width);
    if (!place) {
        return tl::unexpected{std::move(place.error())};
    }
    // A device register: one access of just this width.
    switch (width) {
    case 1:
        return *reinterpret_cast<const volatile std::uint8_t*>(*place);
    case 2:
        return *reinterpret_cast<const volatile std::uint16_t*>(*place);
    case 4:
        return *reinterpret_cast<const volatile std::uint32_t*>(*place);
    default:
        return *reinterpret_cast<const volatile std::uint64_t*>(*place);
    }
}

Result<void> UioFunction::write_region(unsigned index, ByteCount offset, unsigned width, std::uint64_t value) {
    auto place = register_at(index, offset, width);
    if (!place) {
        return tl::unexpected{std::move(place.error())};
    }
    switch (width) {
    case 1:
        *reinterpret_cast<volatile std::uint8_t*>(*place) = static_cast<std::uint8_t>(value);
        break;
    case 2:
        *reinterpret_cast<volatile std::uint16_t*>(*place) = static_cast<std::uint16_t>(value);
        break;
    case 4:
        *reinterpret_cast<volatile std::uint32_t*>(*place) = static_cast<std::uint32_t>(value);
        break;
    default:
        *reinterpret_cast<volatile std::uint64_t*>(*place) = value;
        break;
    }
    return {};
}

Result<void> UioFunction::set_bus_master(bool enabled) {
    auto command = read_config(config_command, 2);
    if (!command) {
        return tl::unexpected{std::move(command.error())};
    }
    const std::uint32_t wanted = enabled ? *command | command_memory | command_master : *command & ~command_master;
    return wanted == *command ? Result<void>{} : write_config(config_command, 2, wanted);
}

Result<void> UioFunction::enable_interrupts(std::span<const int> /*eventfds*/) {
    return fail(ENOTSUP, "enable interrupts", identity_.name, "uio_pci_generic has no MSI-X: poll, or use vfio-pci.");
}

Result<void> UioFunction::reset() {
    auto done = os::write_text(system_, directory_ + "/reset", "1");
    if (!done && done.error().is(ENOENT)) {
        return fail(ENOTSUP, "reset", identity_.name, "The kernel knows no way to reset this function.");
    }
    return done;
}

void UioFunction::pause() noexcept {
    std::this_thread::yield();
}

} // namespace upcie::pci
