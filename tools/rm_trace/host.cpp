// SPDX-License-Identifier: BSD-3-Clause
#include "host.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include "sink.hpp"

namespace upcie::rm {

namespace {

std::string whole_text(const std::filesystem::path& path) {
    std::ifstream file{path};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// "0000:01:00.0 NVIDIA H200", in the order of addresses.
std::vector<std::string> gpu_names() {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& one : std::filesystem::directory_iterator{"/proc/driver/nvidia/gpus", none}) {
        std::istringstream lines{whole_text(one.path() / "information")};
        std::string line;
        std::string model = "unknown";
        while (std::getline(lines, line)) {
            if (line.starts_with("Model:")) {
                model = line.substr(std::min(line.find_first_not_of(" \t", 6), line.size()));
            }
        }
        names.push_back(one.path().filename().string() + " " + model);
    }
    std::ranges::sort(names);
    return names;
}

} // namespace

std::string driver_version_in(std::string_view text) {
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..." or "... Open Kernel Module for x86_64  580...":
    // the first word that is digits, a dot and more digits.
    std::istringstream words{std::string{text.substr(0, text.find('\n'))}};
    std::string word;
    while (words >> word) {
        const bool digits = word.find_first_not_of("0123456789.") == std::string::npos;
        if (digits && word.find('.') != std::string::npos && word.front() != '.' && word.back() != '.') {
            return word;
        }
    }
    return {};
}

TraceHeader header_of_this_machine() {
    TraceHeader header;
    header.tool = "upcie_rm_trace " UPCIE_VERSION;
    utsname system{};
    if (::uname(&system) == 0) {
        header.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
        header.machine = system.machine;
    }
    header.driver = driver_version_in(whole_text("/proc/driver/nvidia/version"));
    header.gpus = gpu_names();
    header.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    header.started_monotonic = monotonic_now();
    return header;
}

} // namespace upcie::rm
