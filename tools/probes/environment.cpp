// SPDX-License-Identifier: BSD-3-Clause
#include "environment.hpp"

#include <cerrno>

#include <fmt/format.h>
#include <sys/utsname.h>

#include <upcie/os/sysfs.hpp>
#include <upcie/pci/bdf.hpp>

#ifndef UPCIE_VERSION
#error "the build passes the project's version as UPCIE_VERSION"
#endif

namespace upcie::probes {

namespace {

std::string kernel_name() {
    utsname name{};
    if (::uname(&name) < 0) {
        return {};
    }
    return fmt::format("{} {} {}", static_cast<const char*>(name.sysname), static_cast<const char*>(name.release),
                       static_cast<const char*>(name.machine));
}

std::string iommu_mode(const pci::FunctionInfo& function) {
    if (function.vfio_name.rfind("noiommu-", 0) == 0 || (function.iommu_group && function.iommu_group->noiommu)) {
        return "no-IOMMU (vfio's enable_unsafe_noiommu_mode: nothing translates)";
    }
    if (!function.iommu_group) {
        return "none (the device is in no IOMMU group)";
    }
    const std::string& type = function.iommu_group->type;
    if (type == "identity") {
        return "on, default domain identity (passthrough)";
    }
    return fmt::format("on, default domain {}", type.empty() ? "unknown" : type);
}

/// A module's version is what it declares, else the checksum of its source, else only that it is there.
Value driver_versions(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    Value result = Value::object();
    result["bound"] = function.driver.empty() ? Value(nullptr) : Value(function.driver);
    for (const char* module : {"vfio", "vfio_pci", "vfio_pci_core", "iommufd", "vfio_iommu_type1", "udmabuf"}) {
        const std::string folder = roots.sysfs + "/module/" + module;
        if (!os::exists(system, folder)) {
            continue; // absent, or built in without parameters: sysfs cannot tell these apart
        }
        std::string version = "present";
        if (const Result<std::string> declared = os::read_text(system, folder + "/version")) {
            version = *declared;
        } else if (const Result<std::string> source = os::read_text(system, folder + "/srcversion")) {
            version = "srcversion " + *source;
        }
        result[module] = version;
    }
    return result;
}

Value device_facts(const pci::FunctionInfo& function) {
    Value result = {{"bdf", function.bdf.to_string()},
                    {"ids", fmt::format("{:04x}:{:04x}", function.vendor, function.device)},
                    {"class", fmt::format("{:06x}", function.class_code)},
                    {"cdev", function.vfio_cdev}};
    result["iommu_group"] = function.iommu_group ? Value(function.iommu_group->number) : Value(nullptr);
    Value members = Value::array();
    if (function.iommu_group) {
        for (const pci::Bdf& one : function.iommu_group->members) {
            members.push_back(one.to_string());
        }
    }
    result["group_members"] = members;
    if (const pci::BarInfo* const bar = function.bar(0)) {
        result["bar0_address"] = hex(bar->address.value());
        result["bar0_bytes"] = bar->size.value();
    }
    return result;
}

/// "vfio0" of "/dev/vfio/devices/vfio0" or of itself; empty when the name is no cdev's.
std::string cdev_name(const std::string& name, const pci::Roots& roots) {
    const std::string folder = roots.dev + "/vfio/devices/";
    std::string last = name.rfind(folder, 0) == 0 ? name.substr(folder.size()) : name;
    return last.rfind("vfio", 0) == 0 || last.rfind("noiommu-vfio", 0) == 0 ? last : std::string{};
}

} // namespace

bool is_device_name(const std::string& name, const pci::Roots& roots) {
    return !cdev_name(name, roots).empty() || pci::Bdf::parse(name).has_value();
}

Result<pci::FunctionInfo> find_device(os::System& system, const std::string& name, const pci::Roots& roots) {
    if (const std::string cdev = cdev_name(name, roots); !cdev.empty()) {
        return pci::find_by_vfio_name(system, cdev, roots);
    }
    const Result<pci::Bdf> bdf = pci::Bdf::parse(name);
    if (!bdf) {
        return tl::unexpected{bdf.error()};
    }
    return pci::find_function(system, *bdf, roots);
}

Environment describe_kernel() {
    Environment result;
    result.tool_version = UPCIE_VERSION;
    result.kernel = kernel_name();
    result.iommu_mode = "unknown (no device)";
    return result;
}

Environment describe_machine(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    Environment result = describe_kernel();
    result.iommu_mode = iommu_mode(function);
    result.device = device_facts(function);
    result.drivers = driver_versions(system, function, roots);
    return result;
}

Obstacle cdev_obstacle(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    const std::string bdf = function.bdf.to_string();
    if (function.driver != "vfio-pci") {
        return {fmt::format("{} is {}, not vfio-pci", bdf,
                            function.driver.empty() ? "bound to no driver" : "bound to " + function.driver),
                fmt::format("`upcie bind {}` (or through driver_override) gives it to vfio-pci; without an IOMMU, "
                            "enable_unsafe_noiommu_mode of module vfio must be on before.",
                            bdf)};
    }
    if (!os::exists(system, roots.dev + "/iommu")) {
        return {
            "/dev/iommu does not exist",
            "A kernel with CONFIG_IOMMUFD, and its module loaded (modprobe iommufd). Debian's stock kernels have it "
            "off: tests/vm/prepare.sh builds it as a module."};
    }
    if (function.vfio_cdev.empty()) {
        return {fmt::format("{} has no node in /dev/vfio/devices", bdf),
                "A kernel with CONFIG_VFIO_DEVICE_CDEV (6.6 or newer)."};
    }
    return {};
}

Obstacle translation_obstacle(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    if (Obstacle obstacle = cdev_obstacle(system, function, roots); !obstacle.reason.empty()) {
        return obstacle;
    }
    if (function.vfio_name.rfind("noiommu-", 0) == 0) {
        return {"no IOMMU translates for " + function.bdf.to_string() + ", so that an IOVA is no address for it",
                "Boot with the IOMMU on (intel_iommu=on or amd_iommu=on, and in the firmware)."};
    }
    return {};
}

Obstacle noiommu_obstacle(os::System& system, const pci::FunctionInfo& function, const pci::Roots& roots) {
    if (Obstacle obstacle = cdev_obstacle(system, function, roots); !obstacle.reason.empty()) {
        return obstacle;
    }
    if (function.vfio_name.rfind("noiommu-", 0) != 0) {
        return {
            "the device is behind an IOMMU, where no physical addresses are given out",
            "Boot without one (intel_iommu=off, amd_iommu=off), set enable_unsafe_noiommu_mode of module vfio to Y, "
            "and bind the device to vfio-pci."};
    }
    return {};
}

std::optional<pci::FunctionInfo> device_to_ask(Report& report, os::System& system, const std::string& name,
                                               Precondition precondition) {
    report.set_environment(describe_kernel());
    Result<pci::FunctionInfo> function = find_device(system, name);
    if (!function) {
        could_not_ask(report, function.error());
        return std::nullopt;
    }
    report.set_environment(describe_machine(system, *function));
    if (const Obstacle obstacle = precondition(system, *function, {}); !obstacle.reason.empty()) {
        report.not_asked(obstacle.reason, obstacle.remedy);
        return std::nullopt;
    }
    return std::move(*function);
}

} // namespace upcie::probes
