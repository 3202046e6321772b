// SPDX-License-Identifier: BSD-3-Clause
// Who uses the disks of a function: taking a driver away under a mounted file system loses data.
#include <upcie/pci/driver_binding.hpp>

#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>

#include <upcie/os/fd.hpp>
#include <upcie/os/sysfs.hpp>

namespace upcie::pci {

namespace {

bool starts_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

/// With native multipath a controller has hidden devices, nvme0c1n2, and the disk that people use is nvme0n2.
std::string visible_name(const std::string& name) {
    const auto c = name.find('c', 4);
    const auto n = c == std::string::npos ? c : name.find('n', c);
    return n == std::string::npos ? name : name.substr(0, c) + name.substr(n);
}

std::vector<std::string> namespaces_of(os::System& system, const Bdf& bdf, const Roots& roots) {
    std::vector<std::string> disks;
    const std::string controllers = roots.device(bdf) + "/nvme";
    for (const auto& controller : os::list_names(system, controllers).value_or(std::vector<std::string>{})) {
        for (const auto& entry :
             os::list_names(system, controllers + "/" + controller).value_or(std::vector<std::string>{})) {
            // nvme0n1 and nvme0c0n1 are disks; hwmon0, ng0n1, power are not.
            if (starts_with(entry, "nvme") && entry.find('n', 4) != std::string::npos) {
                disks.push_back(visible_name(entry));
            }
        }
    }
    return disks;
}

/// The disk and its partitions.
std::vector<std::string> with_partitions(os::System& system, const std::string& disk, const Roots& roots) {
    std::vector<std::string> names{disk};
    const std::string directory = roots.sysfs + "/class/block/" + disk;
    for (const auto& entry : os::list_names(system, directory).value_or(std::vector<std::string>{})) {
        if (starts_with(entry, disk + "p")) {
            names.push_back(entry);
        }
    }
    return names;
}

std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    while (!line.empty()) {
        const auto end = line.find_first_of(" \t");
        if (end != 0) {
            words.emplace_back(line.substr(0, end));
        }
        line = end == std::string_view::npos ? std::string_view{} : line.substr(end + 1);
    }
    return words;
}

/// Calls `visit` with the words of each line of a file; a file that is not there has none.
template <class Visitor>
void each_line(os::System& system, const std::string& path, Visitor&& visit) {
    const std::string text = os::read_text(system, path).value_or("");
    std::string_view rest = text;
    while (!rest.empty()) {
        const auto end = rest.find('\n');
        visit(words_of(rest.substr(0, end)));
        rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
}

void mounts_of(os::System& system, const std::string& name, const Roots& roots, std::vector<std::string>& users) {
    // "36 35 98:0 /root /mount/point options... - ext4 /dev/source super-options" (proc(5)). The number finds what the
    // name does not (/dev/root), the name what the number does not (btrfs shows an anonymous number).
    const std::string number = os::read_text(system, roots.sysfs + "/class/block/" + name + "/dev").value_or("none");
    each_line(system, roots.proc + "/self/mountinfo", [&](const std::vector<std::string>& words) {
        bool ours = words.size() > 4 && words[2] == number;
        for (std::size_t i = 6; !ours && i + 2 < words.size(); ++i) {
            ours = words[i] == "-" && words[i + 2] == "/dev/" + name;
        }
        if (ours) {
            users.push_back(fmt::format("/dev/{} is mounted on {}", name, words[4]));
        }
    });
}

void swaps_of(os::System& system, const std::string& name, const Roots& roots, std::vector<std::string>& users) {
    each_line(system, roots.proc + "/swaps", [&](const std::vector<std::string>& words) {
        if (!words.empty() && words[0] == "/dev/" + name) {
            users.push_back(fmt::format("/dev/{} is swap", name));
        }
    });
}

void holders_of(os::System& system, const std::string& name, const Roots& roots, std::vector<std::string>& users) {
    const std::string holders = roots.sysfs + "/class/block/" + name + "/holders";
    for (const auto& holder : os::list_names(system, holders).value_or(std::vector<std::string>{})) {
        users.push_back(fmt::format("/dev/{} is held by {}", name, holder));
    }
}

} // namespace

std::vector<std::string> disk_users(os::System& system, const Bdf& bdf, const Roots& roots) {
    std::vector<std::string> users;
    for (const auto& disk : namespaces_of(system, bdf, roots)) {
        const std::size_t before = users.size();
        for (const auto& name : with_partitions(system, disk, roots)) {
            mounts_of(system, name, roots, users);
            swaps_of(system, name, roots, users);
            holders_of(system, name, roots, users);
        }
        if (users.size() > before) {
            continue;
        }
        // O_EXCL without O_CREAT claims a block device, which fails while anybody in the kernel or outside has claimed
        // it or a partition of it (open(2)).
        const std::string node = roots.dev + "/" + disk;
        const os::Fd claim{system, system.open(node.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC)};
        if (!claim && errno == EBUSY) {
            users.push_back(fmt::format("/dev/{} is claimed by somebody (`lsof`, `zpool status` may tell whom)", disk));
        }
    }
    return users;
}

} // namespace upcie::pci
