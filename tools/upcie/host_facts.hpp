// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel_config.hpp"
#include "output.hpp"

namespace upcie::cli {

/// Whether a kernel module is there to be used.
enum class ModuleState : std::uint8_t { absent, loadable, loaded, built_in };
[[nodiscard]] std::string_view to_string(ModuleState state) noexcept;

/// A device node as this process sees it.
struct NodeFacts {
    bool exists = false;
    bool usable = false; ///< may be opened for reading and writing
    std::uint32_t mode = 0;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
};

/// Huge pages of one size, on one node or (-1) all together.
struct HugepagePool {
    std::uint64_t page_kib = 0;
    int node = -1;
    std::uint64_t total = 0;
    std::uint64_t free = 0;
};

/// What the host is like, as far as the ways to a device depend on it. Gathered without opening any device or loading
/// anything.
struct HostFacts {
    std::string release;
    unsigned major = 0; ///< of the kernel; 0 when unknown
    unsigned minor = 0;
    std::string cpu_vendor; ///< "GenuineIntel", "AuthenticAMD"; empty where /proc/cpuinfo has none (Arm)
    std::string command_line;
    std::string lockdown; ///< "none", "integrity", "confidentiality"; empty when the kernel has no lockdown
    KernelConfig config;

    std::vector<std::string> iommu_units;  ///< /sys/class/iommu: "dmar0", "ivhd0"
    std::vector<std::string> iommu_tables; ///< ACPI tables by which firmware describes an IOMMU: "DMAR"
    std::size_t iommu_groups = 0;          ///< without those that vfio makes for no-IOMMU mode

    NodeFacts dev_iommu;
    NodeFacts dev_vfio; ///< the container, /dev/vfio/vfio
    NodeFacts dev_udmabuf;
    std::vector<std::pair<std::string, NodeFacts>> cdevs; ///< nodes in /dev/vfio/devices
    std::optional<bool> unsafe_noiommu;                   ///< nullopt: vfio is not loaded, or has no such mode

    std::uint32_t uid = 0;
    std::uint64_t capabilities = 0;
    std::optional<std::uint64_t> memlock; ///< soft limit in bytes; nullopt: unlimited
    std::vector<HugepagePool> hugepages;

    [[nodiscard]] ModuleState module(std::string_view name) const;
    [[nodiscard]] bool at_least(unsigned want_major, unsigned want_minor) const noexcept {
        return major > want_major || (major == want_major && minor >= want_minor);
    }
    [[nodiscard]] bool has_capability(unsigned number) const noexcept { return (capabilities >> number & 1) != 0; }
    [[nodiscard]] bool iommu_active() const noexcept { return iommu_groups > 0; }
    [[nodiscard]] std::uint64_t free_hugepages(std::uint64_t page_kib) const noexcept;

    std::vector<std::pair<std::string, ModuleState>> modules;
};

// linux/capability.h
constexpr unsigned cap_ipc_lock = 14;
constexpr unsigned cap_sys_rawio = 17;
constexpr unsigned cap_sys_admin = 21;

[[nodiscard]] HostFacts gather_host_facts(Context& context);

} // namespace upcie::cli
