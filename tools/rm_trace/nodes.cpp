// SPDX-License-Identifier: BSD-3-Clause
#include "nodes.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <fstream>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace upcie::rm {

namespace {

constexpr unsigned nvidia_major = 195; // Documentation/admin-guide/devices.txt
constexpr unsigned control_minor = 255;
constexpr unsigned modeset_minor = 254;

/// "/proc/TID/fd/N" on the stack: this is asked at every ioctl.
class DescriptorPath {
  public:
    DescriptorPath(pid_t tid, int fd) {
        *fmt::format_to_n(text_.data(), text_.size() - 1, "/proc/{}/fd/{}", tid, fd).out = 0;
    }
    [[nodiscard]] const char* c_str() const { return text_.data(); }

  private:
    std::array<char, 48> text_{};
};

/// Whether /proc/devices gives the major to one of the driver's parts.
bool major_is_nvidias(unsigned number) {
    std::ifstream devices{"/proc/devices"};
    std::string line;
    while (std::getline(devices, line) && line.find("Block devices") == std::string::npos) {
        unsigned found = 0;
        const auto start = line.find_first_not_of(' ');
        if (start == std::string::npos) {
            continue;
        }
        const auto [end, problem] = std::from_chars(line.data() + start, line.data() + line.size(), found);
        if (problem == std::errc{} && found == number) {
            return std::string_view{end, static_cast<std::size_t>(line.data() + line.size() - end)}.find("nvidia") !=
                   std::string_view::npos;
        }
    }
    return false;
}

} // namespace

Result<PretendedNode> parse_pretended_node(std::string_view text) {
    const auto sign = text.rfind('=');
    const std::string_view kind = sign == std::string_view::npos ? std::string_view{} : text.substr(sign + 1);
    PretendedNode node;
    if (sign != std::string_view::npos) {
        node.path = text.substr(0, sign);
    }
    const bool known = kind == "control" || kind == "device" || kind == "gpu" || kind == "uvm";
    if (node.path.empty() || !known) {
        return fail(EINVAL, "--node", std::string{text},
                    "It is PATH=KIND, where KIND is control, device or uvm: --node /tmp/fake=control.");
    }
    node.kind = kind == "control" ? Node::control : kind == "uvm" ? Node::uvm : Node::gpu;
    return node;
}

Nodes::Nodes(std::vector<PretendedNode> pretended) : pretended_{std::move(pretended)}, identities_(pretended_.size()) {
    look_again();
}

void Nodes::look_again() {
    for (std::size_t i = 0; i < pretended_.size(); ++i) {
        struct stat status {};
        if (!identities_[i].known && ::stat(pretended_[i].path.c_str(), &status) == 0) {
            identities_[i] = {status.st_dev, status.st_ino, true};
        }
    }
}

bool Nodes::is_pretended(std::string_view path) const noexcept {
    for (const auto& one : pretended_) {
        if (one.path == path) {
            return true;
        }
    }
    return false;
}

std::optional<NodeName> Nodes::of_path(std::string_view path) const {
    for (const auto& one : pretended_) {
        if (one.path == path) {
            return NodeName{one.kind, one.path};
        }
    }
    const auto kind = node_of_path(path);
    return kind ? std::optional{NodeName{*kind, std::string{path}}} : std::nullopt;
}

std::optional<NodeName> Nodes::of_device(pid_t tid, int fd, dev_t device) {
    const auto found = devices_.find(device);
    if (found != devices_.end()) {
        return found->second;
    }
    const std::string path = descriptor_target(tid, fd);
    std::optional<NodeName> name;
    if (major(device) == nvidia_major) {
        const unsigned number = minor(device);
        const Node kind = number == control_minor ? Node::control : number == modeset_minor ? Node::modeset : Node::gpu;
        name = NodeName{kind, path};
    } else if (const auto kind = node_of_path(path)) {
        name = NodeName{*kind, path};
    } else if (major_is_nvidias(major(device))) {
        name = NodeName{Node::other, path};
    }
    devices_.emplace(device, name);
    return name;
}

std::optional<NodeName> Nodes::of_status(pid_t tid, int fd, const struct stat& status) {
    for (std::size_t i = 0; i < identities_.size(); ++i) {
        if (identities_[i].known && identities_[i].inode == status.st_ino && identities_[i].device == status.st_dev) {
            return NodeName{pretended_[i].kind, pretended_[i].path};
        }
    }
    return S_ISCHR(status.st_mode) ? of_device(tid, fd, status.st_rdev) : std::nullopt;
}

std::optional<NodeName> Nodes::of_descriptor(pid_t tid, int fd, struct stat& status) {
    if (fd < 0 || ::stat(DescriptorPath{tid, fd}.c_str(), &status) != 0) {
        return std::nullopt;
    }
    return of_status(tid, fd, status);
}

std::optional<NodeName> Nodes::of_descriptor(pid_t tid, int fd) {
    struct stat status {};
    return of_descriptor(tid, fd, status);
}

const NodeName* Nodes::of_ioctl(pid_t tid, int fd) {
    const std::uint64_t key = static_cast<std::uint64_t>(tid) << 32U | static_cast<std::uint32_t>(fd);
    if (const auto found = remembered_.find(key); found != remembered_.end()) {
        return &found->second;
    }
    auto node = of_descriptor(tid, fd);
    if (!node) {
        return nullptr;
    }
    if (!may_remember_) {
        last_ = std::move(*node);
        return &last_;
    }
    return &remembered_.emplace(key, std::move(*node)).first->second;
}

std::vector<HeldNode> Nodes::held(pid_t tid) {
    std::vector<HeldNode> all;
    DIR* const folder = ::opendir(fmt::format("/proc/{}/fd", tid).c_str());
    if (folder == nullptr) {
        return all;
    }
    while (const dirent* entry = ::readdir(folder)) {
        int fd = -1;
        const std::string_view name{entry->d_name};
        if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc{}) {
            continue;
        }
        if (auto node = of_descriptor(tid, fd)) {
            all.push_back({fd, std::move(*node)});
        }
    }
    ::closedir(folder);
    return all;
}

std::string descriptor_target(pid_t tid, int fd) {
    std::string target(PATH_MAX, '\0');
    const ssize_t bytes = ::readlink(DescriptorPath{tid, fd}.c_str(), target.data(), target.size());
    target.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return target;
}

} // namespace upcie::rm
