// SPDX-License-Identifier: BSD-3-Clause
#include "advice.hpp"

#include <fmt/format.h>

namespace upcie::cli::advice {

namespace {

constexpr std::string_view grub_recipe =
    "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{} /' /etc/default/grub && update-grub && reboot";

} // namespace

std::string turn_iommu_on(const HostFacts& host) {
    if (host.iommu_tables.empty() && host.iommu_units.empty()) {
        return "Switch it on in the firmware set-up (\"VT-d\", \"AMD-Vi\", \"IOMMU\", \"SMMU\"); in a virtual machine "
               "give it a "
               "virtual IOMMU (QEMU: -machine q35,kernel-irqchip=split -device intel-iommu,intremap=on).";
    }
    if (host.command_line.find("iommu=off") != std::string::npos) {
        return "The kernel's command line turns it off: remove \"iommu=off\" from it and reboot.";
    }
    const bool intel = host.cpu_vendor == "GenuineIntel";
    const std::string argument = intel ? "intel_iommu=on" : "iommu.passthrough=0";
    return fmt::format(grub_recipe, argument);
}

std::string get_module(std::string_view module) {
    return fmt::format(
        "modprobe {}; if modprobe does not find it, install the kernel's full package (not its cloud or minimal "
        "flavour)",
        module);
}

std::string get_dev_iommu(const HostFacts& host) {
    if (host.module("iommufd") == ModuleState::loadable) {
        return "modprobe iommufd";
    }
    if (host.config.option("CONFIG_IOMMUFD").value_or('n') == 'm') {
        return "modprobe iommufd; the module is configured but not installed: install the kernel's full package";
    }
    if (!host.at_least(6, 2)) {
        return "It came with Linux 6.2: use --path group (vfio type1), or a newer kernel.";
    }
    return "This kernel is built without CONFIG_IOMMUFD, as Debian's are (6.12, 7.2 and 7.3, cloud flavour too): use "
           "--path "
           "group (vfio type1), or a kernel with CONFIG_IOMMUFD=y and CONFIG_VFIO_DEVICE_CDEV=y.";
}

std::string give_node(const std::string& node) {
    return fmt::format(
        "sudo chown $USER {} (until the next boot; docs/permissions.md has a udev rule that stays), or run it as "
        "root",
        node);
}

std::string turn_noiommu_on(const HostFacts& host) {
    if (host.config.option("CONFIG_VFIO_NOIOMMU").value_or('y') == 'n') {
        const bool uio = host.module("uio_pci_generic") != ModuleState::absent;
        return uio ? "This kernel is built without CONFIG_VFIO_NOIOMMU: use --path uio."
                   : "This kernel has neither CONFIG_VFIO_NOIOMMU nor uio_pci_generic: turn the IOMMU on, or use a "
                     "distribution's full kernel.";
    }
    return "modprobe vfio && echo Y > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode (any device can then "
           "overwrite any "
           "memory), and bind the device again";
}

std::string reserve_hugepages() {
    return "echo 64 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages (128 MiB; at boot: hugepages=64)";
}

std::string raise_memlock() {
    return "ulimit -l unlimited in a root shell that then becomes the user; for good: echo '* - memlock unlimited' > "
           "/etc/security/limits.d/upcie.conf and log in again; in a unit: LimitMEMLOCK=infinity";
}

} // namespace upcie::cli::advice
