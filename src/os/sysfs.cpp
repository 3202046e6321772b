// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/sysfs.hpp>

#include <array>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>

#include <upcie/os/fd.hpp>

namespace upcie::os {

namespace {

template <class Number>
bool parse_whole(std::string_view text, int base, Number& value) noexcept {
    Number parsed{};
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, parsed, base);
    if (problem != std::errc{} || stop != end) {
        return false;
    }
    value = parsed;
    return true;
}

} // namespace

bool parse_hex(std::string_view text, std::uint64_t& value) noexcept {
    if (text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X") {
        text.remove_prefix(2);
    }
    return parse_whole(text, 16, value);
}

Result<std::string> read_text(System& system, const std::string& path, std::size_t largest) {
    auto file = open_file(system, path.c_str(), O_RDONLY);
    if (!file) {
        return tl::unexpected{std::move(file.error())};
    }
    std::string text;
    std::array<char, 4096> chunk{};
    while (true) {
        const ssize_t got = system.read(file->get(), chunk.data(), chunk.size());
        if (got < 0) {
            const int code = errno;
            if (code == EINTR) {
                continue;
            }
            return fail(code, "read", path, {});
        }
        if (got == 0) {
            break;
        }
        text.append(chunk.data(), static_cast<std::size_t>(got));
        if (text.size() > largest) {
            return fail(EFBIG, "read", path,
                        fmt::format("It is longer than {} bytes and cannot be the file that was meant.", largest));
        }
    }
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text;
}

Result<std::uint64_t> read_hex(System& system, const std::string& path) {
    auto text = read_text(system, path);
    if (!text) {
        return tl::unexpected{std::move(text.error())};
    }
    std::uint64_t value = 0;
    if (!parse_hex(*text, value)) {
        return fail(EPROTO, "read", path, fmt::format("\"{}\" is no hexadecimal number.", *text));
    }
    return value;
}

Result<std::int64_t> read_decimal(System& system, const std::string& path) {
    auto text = read_text(system, path);
    if (!text) {
        return tl::unexpected{std::move(text.error())};
    }
    std::int64_t value = 0;
    if (!parse_whole(std::string_view{*text}, 10, value)) {
        return fail(EPROTO, "read", path, fmt::format("\"{}\" is no decimal number.", *text));
    }
    return value;
}

Result<void> write_text(System& system, const std::string& path, std::string_view text) {
    auto file = open_file(system, path.c_str(), O_WRONLY);
    if (!file) {
        return tl::unexpected{std::move(file.error())};
    }
    ssize_t put = -1;
    do {
        put = system.write(file->get(), text.data(), text.size());
    } while (put < 0 && errno == EINTR);
    if (put < 0) {
        const int code = errno;
        return fail(code, "write", path, fmt::format("The kernel refused the value \"{}\".", text));
    }
    if (static_cast<std::size_t>(put) != text.size()) {
        return fail(EIO, "write", path, fmt::format("Only {} of {} bytes were taken.", put, text.size()));
    }
    return {};
}

Result<std::string> link_target(System& system, const std::string& path) {
    std::array<char, 4096> target{};
    const ssize_t length = system.readlink(path.c_str(), target.data(), target.size());
    if (length < 0) {
        const int code = errno;
        return fail(code, "readlink", path, {});
    }
    // A full buffer may have been cut: readlink(2) does not tell.
    if (static_cast<std::size_t>(length) == target.size()) {
        return fail(ENAMETOOLONG, "readlink", path, "The link is longer than a path may be.");
    }
    return std::string{target.data(), static_cast<std::size_t>(length)};
}

Result<std::string> link_name(System& system, const std::string& path) {
    auto target = link_target(system, path);
    if (!target) {
        return target;
    }
    const auto slash = target->rfind('/');
    return slash == std::string::npos ? *target : target->substr(slash + 1);
}

Result<std::vector<std::string>> list_names(System& system, const std::string& path) {
    std::vector<std::string> names;
    if (!system.list_directory(path.c_str(), names)) {
        const int code = errno;
        return fail(code, "list", path, {});
    }
    return names;
}

bool exists(System& system, const std::string& path) {
    struct stat result {};
    return system.stat(path.c_str(), &result) == 0;
}

} // namespace upcie::os
