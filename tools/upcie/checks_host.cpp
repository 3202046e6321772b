// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "advice.hpp"
#include "checks.hpp"

namespace upcie::cli {

namespace {

std::string join(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ", "));
}

/// "y", "m", "n", or "unknown"
std::string option_text(const KernelConfig& config, std::string_view name) {
    const auto value = config.option(name);
    return value ? std::string(1, *value) : "unknown";
}

void check_module(const HostFacts& host, std::string_view module, std::string_view needed_by, Checks& checks) {
    const ModuleState state = host.module(module);
    Check check{
        fmt::format("module.{}", module), "vfio", CheckStatus::ok, fmt::format("{}: {}", module, to_string(state)),
        std::string{needed_by},           {}};
    if (state == ModuleState::loadable) {
        check.status = CheckStatus::warn;
        check.fix = fmt::format("modprobe {}", module);
    } else if (state == ModuleState::absent) {
        check.status = CheckStatus::missing;
        check.found = fmt::format("{}: neither loaded, nor built in, nor below /lib/modules/{}", module, host.release);
        check.fix = advice::get_module(module);
    }
    checks.push_back(std::move(check));
}

void check_node(std::string id, std::string node, const NodeFacts& facts, std::string needed_by, Checks& checks) {
    Check check{std::move(id), "vfio", CheckStatus::ok, {}, std::move(needed_by), {}};
    check.found = fmt::format("{}: mode {:04o}, owner {}, group {}", node, facts.mode, facts.uid, facts.gid);
    if (!facts.usable) {
        check.status = CheckStatus::missing;
        check.found += "; this user may not open it";
        check.fix = advice::give_node(node);
    }
    checks.push_back(std::move(check));
}

} // namespace

std::string_view to_string(CheckStatus status) noexcept {
    switch (status) {
    case CheckStatus::ok:
        return "ok";
    case CheckStatus::warn:
        return "warn";
    case CheckStatus::missing:
        return "missing";
    }
    return "unknown";
}

void check_iommu(const HostFacts& host, Checks& checks) {
    Check firmware{"iommu.firmware", "IOMMU", CheckStatus::ok, {}, "cdev, group", {}};
    if (host.iommu_tables.empty()) {
        firmware.status = host.iommu_units.empty() ? CheckStatus::missing : CheckStatus::ok;
        firmware.found = "firmware describes no IOMMU (no ACPI table DMAR, IVRS or IORT)";
        firmware.fix = host.iommu_units.empty() ? advice::turn_iommu_on(host) : std::string{};
    } else {
        firmware.found = "firmware describes an IOMMU: ACPI table " + join(host.iommu_tables);
    }
    checks.push_back(std::move(firmware));

    Check enabled{"iommu.enabled", "IOMMU", CheckStatus::ok, {}, "cdev, group", {}};
    if (host.iommu_active()) {
        enabled.found =
            fmt::format("{} groups; units: {}", host.iommu_groups,
                        host.iommu_units.empty() ? "not named in /sys/class/iommu" : join(host.iommu_units));
    } else {
        enabled.status = CheckStatus::missing;
        enabled.found = "/sys/kernel/iommu_groups is empty: no IOMMU is in use";
        enabled.fix = advice::turn_iommu_on(host);
    }
    checks.push_back(std::move(enabled));

    std::vector<std::string> arguments;
    std::size_t start = 0;
    while (start < host.command_line.size()) {
        const auto end = std::min(host.command_line.find(' ', start), host.command_line.size());
        const auto word = host.command_line.substr(start, end - start);
        if (word.find("iommu") != std::string::npos) {
            arguments.push_back(word);
        }
        start = end + 1;
    }
    Check line{"iommu.command-line", "IOMMU", CheckStatus::ok, {}, "cdev, group", {}};
    line.found = arguments.empty() ? "the kernel's command line says nothing about it"
                                   : fmt::format("{}", fmt::join(arguments, " "));
    const bool intel_needs_it = host.cpu_vendor == "GenuineIntel" && !host.iommu_active() &&
                                host.command_line.find("intel_iommu=on") == std::string::npos;
    if (intel_needs_it) {
        line.status = CheckStatus::missing;
        line.found += "; this Intel kernel leaves it off by default";
        line.fix = advice::turn_iommu_on(host);
    }
    checks.push_back(std::move(line));
}

void check_kernel(const HostFacts& host, Checks& checks) {
    Check version{"kernel.version", "Kernel", CheckStatus::ok, "Linux " + host.release, "all", {}};
    if (host.major == 0) {
        version.status = CheckStatus::warn;
        version.found = "the kernel's release could not be read";
        version.fix = "Mount /proc.";
    } else if (!host.at_least(6, 6)) {
        version.status = CheckStatus::warn;
        version.found += ": no vfio cdev (6.6)";
        version.fix = "Use --path group or uio, or a newer kernel.";
    } else if (!host.at_least(7, 3)) {
        version.found += ": vfio cdev yes (6.6), raw addresses from iommufd no (7.3)";
    } else {
        version.found += ": vfio cdev (6.6) and raw addresses from iommufd (7.3)";
    }
    checks.push_back(std::move(version));

    struct Option {
        std::string_view name;
        std::string_view module; ///< what brings it; empty for what only the kernel itself can have
        std::string_view needed_by;
        std::string_view without_it;
    };
    constexpr Option options[] = {
        {"CONFIG_IOMMUFD", "iommufd", "cdev, noiommu",
         "Debian's kernels (6.12, 7.2, 7.3, cloud too) lack it; --path group does without."},
        {"CONFIG_VFIO_DEVICE_CDEV", "", "cdev, noiommu", "vfio then has groups only: --path group."},
        {"CONFIG_VFIO_PCI", "vfio_pci", "cdev, group, noiommu", "Only --path uio remains."},
        {"CONFIG_VFIO_NOIOMMU", "", "noiommu", "Without an IOMMU only --path uio is left, where uio_pci_generic is."},
        {"CONFIG_UIO_PCI_GENERIC", "uio_pci_generic", "uio",
         "Use --path cdev or group with an IOMMU, noiommu without one."},
        {"CONFIG_UDMABUF", "udmabuf", "dma-buf of host memory", "Host memory cannot be made a dma-buf."},
        {"CONFIG_PCI_P2PDMA", "", "peer-to-peer", "BARs cannot be exported as dma-bufs."},
    };
    if (!host.config.known()) {
        checks.push_back(
            {"kernel.config", "Kernel", CheckStatus::warn,
             fmt::format("the kernel's configuration is not to be found (/boot/config-{0}, /lib/modules/{0}/config, "
                         "/proc/config.gz)",
                         host.release),
             "nothing", "modprobe configs may bring /proc/config.gz; the checks below look at what is there."});
        return;
    }
    for (const auto& option : options) {
        Check check{"kernel." + std::string{option.name},
                    "Kernel",
                    CheckStatus::ok,
                    fmt::format("{}={} ({})", option.name, option_text(host.config, option.name), host.config.source()),
                    std::string{option.needed_by},
                    {}};
        if (host.config.option(option.name) == 'n') {
            // An external module may bring what the kernel was built without, and then its node is there.
            const bool there_all_the_same = !option.module.empty() && host.module(option.module) != ModuleState::absent;
            check.status = there_all_the_same ? CheckStatus::ok : CheckStatus::missing;
            check.found += there_all_the_same ? ", and the module is there all the same (an external one)" : "";
            check.fix = there_all_the_same ? "" : "Another kernel. " + std::string{option.without_it};
        }
        checks.push_back(std::move(check));
    }
    if (!host.lockdown.empty() && host.lockdown != "none") {
        checks.push_back(
            {"kernel.lockdown", "Kernel", CheckStatus::warn,
             fmt::format("lockdown is \"{}\": no raw I/O from user space, no unsigned modules", host.lockdown),
             "noiommu, uio", "Turn Secure Boot off, or use --path cdev or group."});
    }
}

void check_vfio(const HostFacts& host, Checks& checks) {
    check_module(host, "vfio_pci", "cdev, group, noiommu", checks);
    check_module(host, "vfio_iommu_type1", "group", checks);
    check_module(host, "uio_pci_generic", "uio", checks);
    if (host.dev_iommu.exists) {
        check_node("iommufd.node", "/dev/iommu", host.dev_iommu, "cdev, noiommu", checks);
    } else {
        checks.push_back({"iommufd.node", "vfio", CheckStatus::missing, "/dev/iommu does not exist", "cdev, noiommu",
                          advice::get_dev_iommu(host)});
    }
    if (host.dev_vfio.exists) {
        check_node("vfio.container", "/dev/vfio/vfio", host.dev_vfio, "group", checks);
    } else {
        checks.push_back({"vfio.container", "vfio", CheckStatus::missing, "/dev/vfio/vfio does not exist", "group",
                          "modprobe vfio_iommu_type1"});
    }
    for (const auto& [name, node] : host.cdevs) {
        check_node("vfio.cdev." + name, "/dev/vfio/devices/" + name, node, "cdev, noiommu", checks);
    }
    if (host.cdevs.empty()) {
        checks.push_back({"vfio.cdev", "vfio", CheckStatus::warn, "no device node in /dev/vfio/devices yet",
                          "cdev, noiommu",
                          "upcie bind <address> makes one, where the kernel has CONFIG_VFIO_DEVICE_CDEV"});
    }
    Check unsafe{"vfio.noiommu-mode", "vfio", CheckStatus::ok, {}, "noiommu", {}};
    if (host.unsafe_noiommu.value_or(false)) {
        unsafe.status = host.iommu_active() ? CheckStatus::warn : CheckStatus::ok;
        unsafe.found = "enable_unsafe_noiommu_mode is on: devices can reach all of memory";
        unsafe.fix = host.iommu_active() ? "There is an IOMMU, so it can be off: echo N > "
                                           "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
                                         : "";
    } else if (host.iommu_active()) {
        unsafe.found = "enable_unsafe_noiommu_mode is off, as it should be where there is an IOMMU";
    } else {
        unsafe.status = CheckStatus::missing;
        unsafe.found =
            host.unsafe_noiommu ? "enable_unsafe_noiommu_mode is off" : "vfio is not loaded or has no such mode";
        unsafe.fix = advice::turn_noiommu_on(host);
    }
    checks.push_back(std::move(unsafe));
    checks.push_back(
        host.dev_udmabuf.exists
            ? Check{"udmabuf.node", "vfio", CheckStatus::ok, "/dev/udmabuf is there", "dma-buf of host memory", {}}
            : Check{"udmabuf.node", "vfio", CheckStatus::warn, "/dev/udmabuf does not exist", "dma-buf of host memory",
                    "modprobe udmabuf (the kernel needs CONFIG_UDMABUF)"});
}

void check_memory(const HostFacts& host, Checks& checks) {
    const bool unlimited = host.has_capability(cap_ipc_lock) || !host.memlock;
    Check memlock{"memory.memlock", "Memory", CheckStatus::ok, {}, "cdev, group", {}};
    const std::string limit = host.memlock ? human_size(*host.memlock) : "unlimited";
    memlock.found = fmt::format("RLIMIT_MEMLOCK is {}, CAP_IPC_LOCK {}", limit,
                                host.has_capability(cap_ipc_lock) ? "held: the limit does not bind" : "not held");
    constexpr std::uint64_t comfortable = std::uint64_t{1} << 30;
    if (!unlimited && *host.memlock < comfortable) {
        memlock.status = CheckStatus::warn;
        memlock.found +=
            "; all memory mapped for devices counts, of all this user's processes together (beyond it: ENOMEM)";
        memlock.fix = advice::raise_memlock();
    }
    checks.push_back(std::move(memlock));
    checks.push_back({"memory.capabilities",
                      "Memory",
                      CheckStatus::ok,
                      fmt::format("uid {}, CAP_SYS_ADMIN {} (pagemap), CAP_SYS_RAWIO {} (no-IOMMU mode)", host.uid,
                                  host.has_capability(cap_sys_admin) ? "held" : "not held",
                                  host.has_capability(cap_sys_rawio) ? "held" : "not held"),
                      "noiommu, uio",
                      {}});
    bool any = false;
    for (const auto& pool : host.hugepages) {
        if (pool.node != -1 && pool.total == 0) {
            continue;
        }
        const std::string where = pool.node == -1 ? "in all" : fmt::format("node {}", pool.node);
        any = any || pool.free > 0;
        checks.push_back({fmt::format("memory.hugepages.{}k{}", pool.page_kib,
                                      pool.node == -1 ? "" : fmt::format(".node{}", pool.node)),
                          "Memory",
                          CheckStatus::ok,
                          fmt::format("hugepages of {}, {}: {} free of {}", human_size(pool.page_kib * 1024), where,
                                      pool.free, pool.total),
                          "uio",
                          {}});
    }
    if (!any) {
        checks.push_back({"memory.hugepages", "Memory", CheckStatus::warn, "no hugepage is free", "uio",
                          advice::reserve_hugepages()});
    }
}

} // namespace upcie::cli
