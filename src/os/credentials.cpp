// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/credentials.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::os {

namespace {

constexpr const char* status_path = "/proc/self/status";

// In the order of linux/capability.h, whose numbers never change.
constexpr std::array<std::string_view, 41> capability_names{
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
};

/// A process's status file: lines of "Name:\tvalue value ...".
class Status {
  public:
    static Result<Status> read(System& system) {
        auto text = read_text(system, status_path);
        if (!text) {
            return tl::unexpected{std::move(text.error())};
        }
        return Status{std::move(*text)};
    }

    /// The words after "name:"; false when there is no such line.
    bool words(std::string_view name, std::vector<std::string_view>& out) const {
        out.clear();
        const std::string_view all = text_;
        for (std::size_t at = 0; at < all.size();) {
            const std::size_t end = std::min(all.find('\n', at), all.size());
            const std::string_view line = all.substr(at, end - at);
            at = end + 1;
            if (line.size() <= name.size() || line.substr(0, name.size()) != name || line[name.size()] != ':') {
                continue;
            }
            std::string_view rest = line.substr(name.size() + 1);
            while (true) {
                const std::size_t first = rest.find_first_not_of(" \t");
                if (first == std::string_view::npos) {
                    return true;
                }
                rest.remove_prefix(first);
                const std::size_t length = std::min(rest.find_first_of(" \t"), rest.size());
                out.push_back(rest.substr(0, length));
                rest.remove_prefix(length);
            }
        }
        return false;
    }

    /// The first `count` numbers after "name:"; with count 0 all that there are.
    bool numbers(std::string_view name, std::size_t count, int base, std::vector<std::uint64_t>& out) const {
        std::vector<std::string_view> found;
        out.clear();
        if (!words(name, found) || found.size() < count) {
            return false;
        }
        found.resize(count == 0 ? found.size() : count);
        for (const std::string_view word : found) {
            std::uint64_t value = 0;
            const auto [stop, problem] = std::from_chars(word.data(), word.data() + word.size(), value, base);
            if (problem != std::errc{} || stop != word.data() + word.size()) {
                return false;
            }
            out.push_back(value);
        }
        return true;
    }

  private:
    explicit Status(std::string text) : text_{std::move(text)} {}
    std::string text_;
};

tl::unexpected<Error> no_line(std::string_view name) {
    return fail(EPROTO, "read", status_path, fmt::format("It has no usable line \"{}:\".", name));
}

Result<MemoryAccounting> accounting(const Status& status) {
    MemoryAccounting result;
    for (auto& [name, target] : {std::pair{"VmLck", &result.locked}, std::pair{"VmPin", &result.pinned}}) {
        std::vector<std::uint64_t> kib;
        if (!status.numbers(name, 1, 10, kib)) {
            return no_line(name);
        }
        *target = ByteCount{kib[0] * 1024};
    }
    return result;
}

std::optional<ByteCount> from_kernel(rlim_t value) {
    return value == RLIM_INFINITY ? std::nullopt : std::optional{ByteCount{value}};
}

rlim_t to_kernel(const std::optional<ByteCount>& value) {
    return value ? static_cast<rlim_t>(value->value()) : RLIM_INFINITY;
}

std::string as_text(const std::optional<ByteCount>& value) {
    return value ? fmt::format("{}", value->value()) : "unlimited";
}

} // namespace

bool CapabilitySet::has(std::string_view name) const noexcept {
    for (std::size_t i = 0; i < capability_names.size(); ++i) {
        if (capability_names[i] == name) {
            return has(static_cast<unsigned>(i));
        }
    }
    return false;
}

std::vector<std::string> CapabilitySet::names() const {
    std::vector<std::string> result;
    for (unsigned i = 0; i < 64; ++i) {
        if (has(i)) {
            result.push_back(i < capability_names.size() ? std::string{capability_names[i]} : fmt::format("CAP_{}", i));
        }
    }
    return result;
}

Result<Credentials> read_credentials(System& system) {
    const auto status = Status::read(system);
    if (!status) {
        return tl::unexpected{status.error()};
    }
    Credentials result;
    std::vector<std::uint64_t> numbers;
    if (!status->numbers("Pid", 1, 10, numbers)) {
        return no_line("Pid");
    }
    result.pid = static_cast<pid_t>(numbers[0]);
    if (!status->numbers("Uid", 3, 10, numbers)) {
        return no_line("Uid");
    }
    result.real_uid = static_cast<uid_t>(numbers[0]);
    result.effective_uid = static_cast<uid_t>(numbers[1]);
    result.saved_uid = static_cast<uid_t>(numbers[2]);
    if (!status->numbers("Gid", 3, 10, numbers)) {
        return no_line("Gid");
    }
    result.real_gid = static_cast<gid_t>(numbers[0]);
    result.effective_gid = static_cast<gid_t>(numbers[1]);
    result.saved_gid = static_cast<gid_t>(numbers[2]);
    if (!status->numbers("Groups", 0, 10, numbers)) {
        return no_line("Groups");
    }
    for (const std::uint64_t group : numbers) {
        result.groups.push_back(static_cast<gid_t>(group));
    }
    for (auto& [name, target] : {std::pair{"CapInh", &result.inheritable}, std::pair{"CapPrm", &result.permitted},
                                 std::pair{"CapEff", &result.effective}, std::pair{"CapBnd", &result.bounding},
                                 std::pair{"CapAmb", &result.ambient}}) {
        if (!status->numbers(name, 1, 16, numbers)) {
            return no_line(name);
        }
        *target = CapabilitySet{numbers[0]};
    }
    if (!status->numbers("NoNewPrivs", 1, 10, numbers)) {
        return no_line("NoNewPrivs");
    }
    result.no_new_privileges = numbers[0] != 0;
    auto memory = accounting(*status);
    if (!memory) {
        return tl::unexpected{std::move(memory.error())};
    }
    result.memory = *memory;
    result.dumpable = system.prctl(PR_GET_DUMPABLE, 0);
    if (result.dumpable < 0) {
        const int code = errno;
        return fail(code, "PR_GET_DUMPABLE", "this process", {});
    }
    return result;
}

Result<MemoryAccounting> read_memory_accounting(System& system) {
    const auto status = Status::read(system);
    if (!status) {
        return tl::unexpected{status.error()};
    }
    return accounting(*status);
}

Result<MemlockLimit> memlock_limit(System& system) {
    struct rlimit limit {};
    if (system.getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        const int code = errno;
        return fail(code, "getrlimit", "RLIMIT_MEMLOCK", {});
    }
    return MemlockLimit{from_kernel(limit.rlim_cur), from_kernel(limit.rlim_max)};
}

Result<void> set_memlock_limit(System& system, const MemlockLimit& limit) {
    const struct rlimit wanted { to_kernel(limit.soft), to_kernel(limit.hard) };
    if (system.setrlimit(RLIMIT_MEMLOCK, &wanted) != 0) {
        const int code = errno;
        std::string hint;
        if (code == EPERM) {
            hint = "Raising the hard limit needs CAP_SYS_RESOURCE: set it where the process is started (limits.conf, "
                   "LimitMEMLOCK=).";
        } else if (code == EINVAL) {
            hint = "The soft limit must not be above the hard one.";
        }
        return fail(code, "setrlimit",
                    fmt::format("RLIMIT_MEMLOCK to {}, hard {}", as_text(limit.soft), as_text(limit.hard)),
                    std::move(hint));
    }
    return {};
}

} // namespace upcie::os
