// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/enumeration.hpp>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <fmt/format.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::pci {

namespace {

// Resource flags as sysfs prints them (include/linux/ioport.h).
constexpr std::uint64_t resource_io = 0x100;
constexpr std::uint64_t resource_mem = 0x200;
constexpr std::uint64_t resource_prefetch = 0x2000;
constexpr std::uint64_t resource_mem_64 = 0x100000;
constexpr std::uint64_t resource_unset = 0x20000000;
constexpr unsigned resource_lines_used = 7; // six BARs and the ROM; what follows belongs to SR-IOV and to bridges

std::string optional_text(os::System& system, const std::string& path) {
    auto text = os::read_text(system, path);
    return text ? std::move(*text) : std::string{};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    while (!text.empty()) {
        const auto end = text.find(separator);
        if (end != 0) {
            pieces.push_back(text.substr(0, end));
        }
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    return pieces;
}

std::vector<BarInfo> parse_resources(std::string_view text) {
    std::vector<BarInfo> bars;
    unsigned index = 0;
    for (const auto line : split(text, '\n')) {
        const unsigned this_index = index++;
        if (this_index >= resource_lines_used) {
            break;
        }
        std::uint64_t numbers[3]{};
        const auto words = split(line, ' ');
        if (words.size() != 3 || !os::parse_hex(words[0], numbers[0]) || !os::parse_hex(words[1], numbers[1]) ||
            !os::parse_hex(words[2], numbers[2])) {
            continue;
        }
        const auto [start, end, flags] = numbers;
        if ((flags & (resource_io | resource_mem)) == 0 || end < start || end == 0) {
            continue;
        }
        BarInfo bar;
        bar.index = this_index;
        bar.address = BusAddress{start};
        bar.size = ByteCount{end - start + 1};
        bar.io = (flags & resource_io) != 0;
        bar.is_64bit = (flags & resource_mem_64) != 0;
        bar.prefetchable = (flags & resource_prefetch) != 0;
        bar.unassigned = (flags & resource_unset) != 0;
        bars.push_back(bar);
    }
    return bars;
}

std::optional<IommuGroupInfo> read_group(os::System& system, const std::string& directory) {
    const std::string path = directory + "/iommu_group";
    const auto name = os::link_name(system, path);
    if (!name) {
        return std::nullopt;
    }
    IommuGroupInfo group;
    for (const char c : *name) {
        if (c < '0' || c > '9') {
            return std::nullopt;
        }
        group.number = group.number * 10 + static_cast<unsigned>(c - '0');
    }
    group.type = optional_text(system, path + "/type");
    // drivers/vfio/group.c gives the groups that it makes for no-IOMMU mode this name; real ones have none.
    group.noiommu = optional_text(system, path + "/name") == "vfio-noiommu";
    if (const auto members = os::list_names(system, path + "/devices")) {
        for (const auto& member : *members) {
            if (const auto bdf = Bdf::parse(member)) {
                group.members.push_back(*bdf);
            }
        }
    }
    std::sort(group.members.begin(), group.members.end());
    return group;
}

std::optional<LinkInfo> read_link(os::System& system, const std::string& directory) {
    const auto width = os::read_decimal(system, directory + "/current_link_width");
    if (!width) {
        return std::nullopt; // conventional PCI, or integrated into the root complex
    }
    LinkInfo link;
    link.width = static_cast<unsigned>(*width);
    link.speed = optional_text(system, directory + "/current_link_speed");
    link.max_speed = optional_text(system, directory + "/max_link_speed");
    if (const auto max_width = os::read_decimal(system, directory + "/max_link_width")) {
        link.max_width = static_cast<unsigned>(*max_width);
    }
    return link;
}

/// The bus topology is written in the path that /sys/bus/pci/devices/BDF links to:
/// ../../../devices/pci0000:00/0000:00:1c.0/0000:01:00.0
void read_topology(os::System& system, const std::string& directory, FunctionInfo& info) {
    const auto target = os::link_target(system, directory);
    if (!target) {
        return;
    }
    for (const auto piece : split(*target, '/')) {
        if (const auto bdf = Bdf::parse(piece); bdf && *bdf != info.bdf) {
            info.parents.insert(info.parents.begin(), *bdf);
        } else if (info.root_bus.empty() && piece.substr(0, 3) == "pci" && piece.find(':') != piece.npos) {
            info.root_bus = piece;
        }
    }
}

void read_vfio(os::System& system, const std::string& directory, const Roots& roots, FunctionInfo& info) {
    const auto names = os::list_names(system, directory + "/vfio-dev");
    if (!names || names->empty()) {
        return;
    }
    info.vfio_name = names->front();
    // The sysfs entry exists also in a kernel without the cdev: only the node counts.
    std::string node = roots.dev + "/vfio/devices/" + info.vfio_name;
    if (os::exists(system, node)) {
        info.vfio_cdev = std::move(node);
    }
}

Result<FunctionInfo> read_function(os::System& system, const Bdf& bdf, const Roots& roots) {
    const std::string directory = roots.device(bdf);
    FunctionInfo info;
    info.bdf = bdf;
    const auto number = [&](const char* file) { return os::read_hex(system, directory + "/" + file); };
    for (const auto& [file, field] : {std::pair{"vendor", &info.vendor}, std::pair{"device", &info.device}}) {
        auto value = number(file);
        if (!value) {
            return tl::unexpected{std::move(value.error())};
        }
        *field = static_cast<std::uint16_t>(*value);
    }
    auto class_code = number("class");
    if (!class_code) {
        return tl::unexpected{std::move(class_code.error())};
    }
    info.class_code = static_cast<std::uint32_t>(*class_code);
    info.subsystem_vendor = static_cast<std::uint16_t>(number("subsystem_vendor").value_or(0));
    info.subsystem_device = static_cast<std::uint16_t>(number("subsystem_device").value_or(0));
    info.revision = static_cast<std::uint8_t>(number("revision").value_or(0));

    info.driver = os::link_name(system, directory + "/driver").value_or("");
    info.driver_override = optional_text(system, directory + "/driver_override");
    if (info.driver_override == "(null)") { // how the kernel prints "none"
        info.driver_override.clear();
    }
    info.iommu_group = read_group(system, directory);
    info.numa_node = static_cast<int>(os::read_decimal(system, directory + "/numa_node").value_or(-1));
    info.bars = parse_resources(optional_text(system, directory + "/resource"));
    info.link = read_link(system, directory);
    read_topology(system, directory, info);
    read_vfio(system, directory, roots, info);
    return info;
}

} // namespace

const BarInfo* FunctionInfo::bar(unsigned index) const noexcept {
    const auto found = std::find_if(bars.begin(), bars.end(), [&](const BarInfo& bar) { return bar.index == index; });
    return found == bars.end() ? nullptr : &*found;
}

Identity FunctionInfo::identity() const {
    Identity identity;
    identity.name = bdf.to_string();
    identity.bdf = bdf;
    identity.vendor = vendor;
    identity.device = device;
    identity.class_code = class_code;
    identity.numa_node = numa_node;
    return identity;
}

Result<std::vector<FunctionInfo>> enumerate(os::System& system, const Roots& roots) {
    const std::string directory = roots.sysfs + "/bus/pci/devices";
    auto names = os::list_names(system, directory);
    if (!names) {
        names.error().hint = "There is no PCI bus here, or sysfs is not mounted.";
        return tl::unexpected{std::move(names.error())};
    }
    std::vector<FunctionInfo> functions;
    for (const auto& name : *names) {
        const auto bdf = Bdf::parse(name);
        if (!bdf) {
            continue;
        }
        auto info = read_function(system, *bdf, roots);
        if (info) {
            functions.push_back(std::move(*info));
        } else if (!info.error().is(ENOENT) && !info.error().is(ENODEV)) { // unplugged since it was listed
            return tl::unexpected{std::move(info.error())};
        }
    }
    // By number: as text, domain 10000 would come before 2000.
    std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) { return a.bdf < b.bdf; });
    return functions;
}

Result<FunctionInfo> find_function(os::System& system, const Bdf& bdf, const Roots& roots) {
    if (!os::exists(system, roots.device(bdf))) {
        return fail(ENODEV, "find PCI function", bdf.to_string(),
                    "There is no such function on this machine; `upcie list` or `lspci -D` shows those that exist.");
    }
    return read_function(system, bdf, roots);
}

Result<FunctionInfo> find_by_vfio_name(os::System& system, const std::string& name, const Roots& roots) {
    const auto not_found = [&name](const char* hint) { return fail(ENODEV, "find vfio device", name, hint); };
    // /sys/class/vfio-dev/vfio0 links into .../0000:01:00.0/vfio-dev/vfio0
    if (name.empty() || name.find('/') != std::string::npos) {
        return not_found("A vfio device is named vfio0, vfio1 or, without an IOMMU, noiommu-vfio0.");
    }
    const auto target = os::link_target(system, roots.sysfs + "/class/vfio-dev/" + name);
    if (!target) {
        return not_found("No device of that name is bound to a vfio driver; bind one with `upcie bind <address>`.");
    }
    const auto pieces = split(*target, '/');
    if (pieces.size() >= 3) {
        if (const auto bdf = Bdf::parse(pieces[pieces.size() - 3])) {
            return find_function(system, *bdf, roots);
        }
    }
    return not_found("It belongs to something else than a PCI function, which this library does not drive.");
}

} // namespace upcie::pci
