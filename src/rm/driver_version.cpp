// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/driver_version.hpp>

#include <array>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

namespace upcie::rm {

std::string DriverVersion::text() const {
    if (!known()) {
        return "unknown";
    }
    if (minor == 0 && patch == 0) {
        return fmt::format("{}", branch);
    }
    return patch == 0 ? fmt::format("{}.{:02}", branch, minor) : fmt::format("{}.{:02}.{:02}", branch, minor, patch);
}

Result<DriverVersion> parse_driver_version(std::string_view text) {
    std::array<std::uint16_t, 3> parts{};
    const char* at = text.data();
    const char* const end = at + text.size();
    bool good = !text.empty();
    for (std::size_t i = 0; good && i < parts.size(); ++i) {
        const auto [next, error] = std::from_chars(at, end, parts[i]);
        good = error == std::errc{};
        at = next;
        if (!good || at == end) {
            break;
        }
        // What follows a part is a dot and another part.
        good = *at == '.' && i + 1 < parts.size();
        ++at;
    }
    if (!good || at != end || parts[0] == 0) {
        return fail(EINVAL, "read a driver version", fmt::format("\"{}\"", text),
                    "a version looks like 580.159.04, as in /proc/driver/nvidia/version");
    }
    return DriverVersion{parts[0], parts[1], parts[2]};
}

} // namespace upcie::rm
