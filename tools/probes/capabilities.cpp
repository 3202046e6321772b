// SPDX-License-Identifier: BSD-3-Clause
#include "capabilities.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::probes {

namespace {

constexpr unsigned most_capabilities = 64; // the kernel's masks have so many bits
constexpr std::string_view becoming = "become";

/// By number: linux/capability.h, without the prefix.
// clang-format off
constexpr std::array<std::string_view, 41> names{
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
    "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
    "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
    "checkpoint_restore",
};
// clang-format on
static_assert(names[CAP_IPC_LOCK] == "ipc_lock" && names[CAP_SYS_RAWIO] == "sys_rawio" &&
              names[CAP_SYS_ADMIN] == "sys_admin" && names[CAP_SYS_RESOURCE] == "sys_resource" &&
              names[CAP_MAC_ADMIN] == "mac_admin" && names[CAP_AUDIT_READ] == "audit_read");

template <class Number>
std::optional<Number> number_of(std::string_view text, int base) {
    Number value{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

/// Capabilities as given; the user must be another already, and the permitted ones kept (PR_SET_KEEPCAPS).
Result<void> take_capabilities(std::uint64_t mask) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> data{};
    for (std::size_t half = 0; half < data.size(); ++half) {
        const auto bits = static_cast<std::uint32_t>(mask >> (32 * half));
        data[half] = {bits, bits, bits};
    }
    if (::syscall(SYS_capset, &header, data.data()) != 0) {
        return fail(errno, "capset", fmt::format("{:#x}", mask),
                    "The program that starts this one has to have them itself.");
    }
    // Only ambient ones outlast the start of a program that has none in its file, for a user other than root.
    for (unsigned number = 0; number < most_capabilities; ++number) {
        if ((mask >> number & 1) != 0 && ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) != 0) {
            return fail(errno, "PR_CAP_AMBIENT_RAISE", capability_name(number),
                        "The secure bit no_cap_ambient_raise forbids it (capsh --print).");
        }
    }
    return {};
}

Result<void> become(const Appearance& appearance) {
    const auto refused = [&](const char* operation) {
        return fail(errno, operation, fmt::format("user {}", appearance.uid), "Only root can become another user.");
    };
    const auto id = static_cast<uid_t>(appearance.uid);
    if (::setgroups(0, nullptr) != 0) {
        return refused("setgroups");
    }
    if (::prctl(PR_SET_KEEPCAPS, 1) != 0) {
        return refused("PR_SET_KEEPCAPS");
    }
    if (::setresgid(id, id, id) != 0) {
        return refused("setresgid");
    }
    if (::setresuid(id, id, id) != 0) {
        return refused("setresuid");
    }
    return take_capabilities(appearance.capabilities);
}

} // namespace

std::string capability_name(unsigned number) {
    return number < names.size() ? std::string{names[number]} : fmt::format("capability_{}", number);
}

bool is_capability_name(std::string_view name) {
    for (unsigned number = 0; number < most_capabilities; ++number) {
        if (name == capability_name(number)) {
            return true;
        }
    }
    return false;
}

Result<unsigned> last_capability(os::System& system) {
    const char* const path = "/proc/sys/kernel/cap_last_cap";
    const Result<std::int64_t> number = os::read_decimal(system, path);
    if (!number) {
        return tl::unexpected{number.error()};
    }
    if (*number < 0 || *number >= std::int64_t{most_capabilities}) {
        return fail(EPROTO, "reading the last capability's number", path,
                    fmt::format("{} is none: is /proc the kernel's own?", *number));
    }
    return static_cast<unsigned>(*number);
}

std::vector<std::string> arguments_to_become(const Appearance& appearance, const std::vector<std::string>& arguments) {
    std::vector<std::string> result{std::string{becoming}, std::to_string(appearance.uid),
                                    fmt::format("{:x}", appearance.capabilities)};
    result.insert(result.end(), arguments.begin(), arguments.end());
    return result;
}

std::optional<int> become_if_told(int argc, char** argv) {
    if (argc < 5 || argv[1] != becoming) { // as whom, with what, and to do what
        return std::nullopt;
    }
    const auto uid = number_of<std::uint32_t>(argv[2], 10);
    const auto mask = number_of<std::uint64_t>(argv[3], 16);
    if (!uid || !mask) {
        std::fputs("become UID CAPABILITIES ARGUMENTS...: a number, and a mask in hexadecimal\n", stderr);
        return 2;
    }
    Result<void> done = become({*uid, *mask});
    if (done) {
        char** const rest = argv + 3; // its first word is the program's name again
        rest[0] = argv[0];
        ::execv("/proc/self/exe", rest);
        done = fail(errno, "execv", "/proc/self/exe", fmt::format("User {} has to be able to run this program.", *uid));
    }
    std::fprintf(stderr, "%s\n", done.error().message().c_str());
    return 1;
}

} // namespace upcie::probes
