// SPDX-License-Identifier: BSD-3-Clause
#include "host_facts.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <unistd.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::cli {

namespace {

constexpr std::array<std::string_view, 8> modules_of_interest{"vfio", "vfio_pci",        "vfio_iommu_type1", "iommufd",
                                                              "uio",  "uio_pci_generic", "udmabuf",          "nvme"};

/// A module's name with `-` and `_` taken as the same letter, as modprobe does.
std::string dashes(std::string_view name) {
    std::string text{name};
    std::replace(text.begin(), text.end(), '_', '-');
    return text;
}

/// True when a line of modules.dep or modules.builtin is about this module: ".../vfio-pci.ko.xz: ...".
bool lists_module(const std::string& text, std::string_view module) {
    for (const auto& name : {"/" + dashes(module) + ".ko", "/" + std::string{module} + ".ko"}) {
        for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
            // modules.dep also lists what a module needs, after the colon: that is a module too, so any mention counts.
            const char next = at + name.size() < text.size() ? text[at + name.size()] : '\n';
            if (next == ':' || next == '\n' || next == '.' || next == ' ') {
                return true;
            }
        }
    }
    return false;
}

std::uint64_t field_of(const std::string& text, std::string_view name, int base) {
    const auto at = text.find(name);
    if (at == std::string::npos) {
        return 0;
    }
    auto start = at + name.size();
    while (start < text.size() && (text[start] == ' ' || text[start] == '\t')) {
        ++start;
    }
    std::uint64_t value = 0;
    std::from_chars(text.data() + start, text.data() + text.size(), value, base);
    return value;
}

std::string text_or_empty(Context& context, const std::string& path) {
    return os::read_text(context.system, path).value_or("");
}

void read_pools(Context& context, const std::string& directory, int node, std::vector<HugepagePool>& pools) {
    constexpr std::string_view prefix = "hugepages-";
    for (const auto& name : os::list_names(context.system, directory).value_or(std::vector<std::string>{})) {
        if (name.substr(0, prefix.size()) != prefix) {
            continue;
        }
        HugepagePool pool;
        pool.node = node;
        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pool.page_kib);
        const auto count = [&](const char* file) {
            return static_cast<std::uint64_t>(
                os::read_decimal(context.system, directory + "/" + name + "/" + file).value_or(0));
        };
        pool.total = count("nr_hugepages");
        pool.free = count("free_hugepages");
        pools.push_back(pool);
    }
}

NodeFacts look_at_node(Context& context, const std::string& path) {
    NodeFacts node;
    struct stat status {};
    if (context.system.stat(path.c_str(), &status) != 0) {
        return node;
    }
    node.exists = true;
    node.usable = context.system.access(path.c_str(), R_OK | W_OK) == 0;
    node.mode = status.st_mode & 07777;
    node.uid = status.st_uid;
    node.gid = status.st_gid;
    return node;
}

void gather_modules(Context& context, HostFacts& facts) {
    const std::string directory = context.roots.modules + "/" + facts.release;
    const std::string loadable = text_or_empty(context, directory + "/modules.dep");
    const std::string built_in = text_or_empty(context, directory + "/modules.builtin");
    for (const auto name : modules_of_interest) {
        ModuleState state = ModuleState::absent;
        if (lists_module(built_in, name)) {
            state = ModuleState::built_in;
        } else if (os::exists(context.system, fmt::format("{}/module/{}", context.roots.kernel.sysfs, name))) {
            state = ModuleState::loaded;
        } else if (lists_module(loadable, name)) {
            state = ModuleState::loadable;
        }
        facts.modules.emplace_back(name, state);
    }
}

void gather_iommu(Context& context, HostFacts& facts) {
    const std::string& sysfs = context.roots.kernel.sysfs;
    facts.iommu_units = os::list_names(context.system, sysfs + "/class/iommu").value_or(std::vector<std::string>{});
    for (const char* table : {"DMAR", "IVRS", "IORT"}) {
        if (os::exists(context.system, sysfs + "/firmware/acpi/tables/" + table)) {
            facts.iommu_tables.emplace_back(table);
        }
    }
    const std::string groups = sysfs + "/kernel/iommu_groups";
    for (const auto& group : os::list_names(context.system, groups).value_or(std::vector<std::string>{})) {
        if (text_or_empty(context, groups + "/" + group + "/name") != "vfio-noiommu") {
            ++facts.iommu_groups;
        }
    }
}

void gather_nodes(Context& context, HostFacts& facts) {
    const std::string& dev = context.roots.kernel.dev;
    facts.dev_iommu = look_at_node(context, dev + "/iommu");
    facts.dev_vfio = look_at_node(context, dev + "/vfio/vfio");
    facts.dev_udmabuf = look_at_node(context, dev + "/udmabuf");
    for (const auto& name :
         os::list_names(context.system, dev + "/vfio/devices").value_or(std::vector<std::string>{})) {
        facts.cdevs.emplace_back(name, look_at_node(context, dev + "/vfio/devices/" + name));
    }
    const auto unsafe = os::read_text(context.system, context.roots.kernel.sysfs +
                                                          "/module/vfio/parameters/enable_unsafe_noiommu_mode");
    if (unsafe) {
        facts.unsafe_noiommu = *unsafe == "Y" || *unsafe == "1";
    }
}

void gather_memory(Context& context, HostFacts& facts) {
    struct rlimit limit {};
    facts.memlock = 0;
    if (context.system.getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        facts.memlock = limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional{std::uint64_t{limit.rlim_cur}};
    }
    const std::string& sysfs = context.roots.kernel.sysfs;
    read_pools(context, sysfs + "/kernel/mm/hugepages", -1, facts.hugepages);
    constexpr std::string_view prefix = "node";
    const std::string nodes = sysfs + "/devices/system/node";
    for (const auto& name : os::list_names(context.system, nodes).value_or(std::vector<std::string>{})) {
        int node = 0;
        const auto [stop, problem] =
            std::from_chars(name.data() + std::min(prefix.size(), name.size()), name.data() + name.size(), node);
        if (name.substr(0, prefix.size()) == prefix && problem == std::errc{} && stop == name.data() + name.size()) {
            read_pools(context, nodes + "/" + name + "/hugepages", node, facts.hugepages);
        }
    }
}

/// "none [integrity] confidentiality": the one in brackets holds.
std::string chosen(const std::string& text) {
    const auto open = text.find('[');
    const auto close = text.find(']');
    return open == std::string::npos || close == std::string::npos ? std::string{}
                                                                   : text.substr(open + 1, close - open - 1);
}

} // namespace

std::string_view to_string(ModuleState state) noexcept {
    switch (state) {
    case ModuleState::absent:
        return "absent";
    case ModuleState::loadable:
        return "loadable";
    case ModuleState::loaded:
        return "loaded";
    case ModuleState::built_in:
        return "built in";
    }
    return "unknown";
}

ModuleState HostFacts::module(std::string_view name) const {
    const auto found = std::find_if(modules.begin(), modules.end(), [&](const auto& m) { return m.first == name; });
    return found == modules.end() ? ModuleState::absent : found->second;
}

std::uint64_t HostFacts::free_hugepages(std::uint64_t page_kib) const noexcept {
    for (const auto& pool : hugepages) {
        if (pool.node == -1 && pool.page_kib == page_kib) {
            return pool.free;
        }
    }
    return 0;
}

HostFacts gather_host_facts(Context& context) {
    HostFacts facts;
    facts.release = kernel_release(context);
    const char* const end = facts.release.data() + facts.release.size();
    const auto [dot, problem] = std::from_chars(facts.release.data(), end, facts.major);
    if (problem == std::errc{} && dot != end && *dot == '.') {
        std::from_chars(dot + 1, end, facts.minor);
    }
    const std::string& proc = context.roots.kernel.proc;
    const std::string processors = text_or_empty(context, proc + "/cpuinfo");
    for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
        if (processors.find(vendor) != std::string::npos) {
            facts.cpu_vendor = vendor;
        }
    }
    facts.command_line = text_or_empty(context, proc + "/cmdline");
    facts.lockdown = chosen(text_or_empty(context, context.roots.kernel.sysfs + "/kernel/security/lockdown"));
    facts.config = KernelConfig::read(context.system, context.roots, facts.release);
    const std::string status = text_or_empty(context, proc + "/self/status");
    facts.uid = static_cast<std::uint32_t>(field_of(status, "\nUid:", 10));
    facts.capabilities = field_of(status, "\nCapEff:", 16);
    gather_modules(context, facts);
    gather_iommu(context, facts);
    gather_nodes(context, facts);
    gather_memory(context, facts);
    return facts;
}

} // namespace upcie::cli
