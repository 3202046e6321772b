// SPDX-License-Identifier: BSD-3-Clause
#include "consulted.hpp"

namespace upcie::rm {

namespace {

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

} // namespace

Interest interest_in(std::string_view path) noexcept {
    const bool of_nvidia = has(path, "nvidia") || has(path, "NVIDIA") || has(path, "libcuda") || has(path, "/cuda");
    if (path.starts_with("/proc/")) {
        return Interest::content;
    }
    if (path.starts_with("/sys/")) {
        return Interest::content;
    }
    if (of_nvidia && path.starts_with("/etc/")) {
        return Interest::content;
    }
    return of_nvidia ? Interest::named : Interest::none;
}

std::optional<std::string> library_version(std::string_view path) {
    const std::string_view file = path.substr(path.rfind('/') + 1);
    const bool of_nvidia = file.starts_with("libcuda") || file.starts_with("libnvidia") ||
                           file.starts_with("libnvrtc") || file.starts_with("libnvJitLink") ||
                           file.starts_with("libcudart");
    const auto end_of_name = file.find(".so");
    if (!of_nvidia || end_of_name == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view behind = file.substr(end_of_name + 3);
    return std::string{behind.starts_with('.') ? behind.substr(1) : std::string_view{}};
}

} // namespace upcie::rm
