// SPDX-License-Identifier: BSD-3-Clause
#include "proc_status.hpp"

#include <charconv>
#include <climits>
#include <fstream>
#include <sstream>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace upcie::rm {

namespace {

std::optional<pid_t> status_number(pid_t tid, std::string_view key) {
    std::ifstream status{fmt::format("/proc/{}/status", tid)};
    std::string line;
    while (std::getline(status, line)) {
        if (line.starts_with(key)) {
            const auto digit = line.find_first_of("0123456789");
            pid_t number = 0;
            if (digit != std::string::npos &&
                std::from_chars(line.data() + digit, line.data() + line.size(), number).ec == std::errc{}) {
                return number;
            }
        }
    }
    return std::nullopt;
}

std::uint32_t protection_of(std::string_view permissions) {
    const auto has = [&](char letter, int bit) { return permissions.find(letter) != std::string_view::npos ? bit : 0; };
    return static_cast<std::uint32_t>(has('r', PROT_READ) | has('w', PROT_WRITE) | has('x', PROT_EXEC));
}

} // namespace

std::string link_target(const std::string& path) {
    std::string target(PATH_MAX, '\0');
    const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
    target.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return target;
}

std::optional<pid_t> process_id_of(pid_t tid) {
    return status_number(tid, "Tgid:");
}

std::optional<pid_t> parent_of(pid_t tid) {
    return status_number(tid, "PPid:");
}

std::vector<pid_t> threads_of(pid_t pid) {
    std::vector<pid_t> all;
    DIR* const folder = ::opendir(fmt::format("/proc/{}/task", pid).c_str());
    if (folder == nullptr) {
        return all;
    }
    while (const dirent* entry = ::readdir(folder)) {
        pid_t tid = 0;
        const std::string_view name{entry->d_name};
        if (std::from_chars(name.data(), name.data() + name.size(), tid).ec == std::errc{}) {
            all.push_back(tid);
        }
    }
    ::closedir(folder);
    return all;
}

std::vector<std::string> command_line_of(pid_t pid) {
    std::ifstream file{fmt::format("/proc/{}/cmdline", pid), std::ios::binary};
    std::vector<std::string> words;
    std::string word;
    while (std::getline(file, word, '\0')) {
        words.push_back(word);
    }
    return words;
}

std::vector<std::pair<std::uint64_t, NodeMapping>> mapped_nodes(pid_t pid, const Nodes& nodes) {
    std::vector<std::pair<std::uint64_t, NodeMapping>> all;
    std::ifstream maps{fmt::format("/proc/{}/maps", pid)};
    std::string line;
    while (std::getline(maps, line)) {
        std::istringstream words{line};
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        std::uint64_t offset = 0;
        char dash = 0;
        std::string permissions;
        std::string device;
        std::string inode;
        std::string path;
        words >> std::hex >> start >> dash >> end >> permissions >> offset >> device >> inode >> path;
        if (path.empty()) {
            continue;
        }
        if (const auto node = nodes.of_path(path)) {
            all.emplace_back(start, NodeMapping{end - start, *node, offset, protection_of(permissions), {}, false});
        }
    }
    return all;
}

} // namespace upcie::rm
