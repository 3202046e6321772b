// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/node.hpp>

#include <algorithm>

namespace upcie::rm {

std::optional<Node> node_of_path(std::string_view path) noexcept {
    constexpr std::string_view prefix = "/dev/nvidia";
    if (!path.starts_with(prefix)) {
        return std::nullopt;
    }
    const std::string_view rest = path.substr(prefix.size());
    if (rest == "ctl") {
        return Node::control;
    }
    if (rest == "-uvm") {
        return Node::uvm;
    }
    if (rest == "-uvm-tools") {
        return Node::uvm_tools;
    }
    if (rest == "-modeset") {
        return Node::modeset;
    }
    if (rest.starts_with("-caps/")) {
        return Node::capabilities;
    }
    if (!rest.empty() && std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; })) {
        return Node::gpu;
    }
    return rest.starts_with('-') ? std::optional{Node::other} : std::nullopt;
}

std::string_view node_name(Node node) noexcept {
    switch (node) {
    case Node::control:
        return "nvidiactl";
    case Node::gpu:
        return "nvidiaN";
    case Node::uvm:
        return "nvidia-uvm";
    case Node::uvm_tools:
        return "nvidia-uvm-tools";
    case Node::modeset:
        return "nvidia-modeset";
    case Node::capabilities:
        return "nvidia-caps";
    case Node::other:
        break;
    }
    return "other";
}

} // namespace upcie::rm
