// SPDX-License-Identifier: BSD-3-Clause
#include "identity.hpp"

#include <cerrno>
#include <charconv>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <upcie/os/sysfs.hpp>

namespace upcie::probes {

namespace {

/// The words after "NAME:", or nothing when there is no such line.
std::optional<std::string_view> field(std::string_view status, std::string_view name) {
    std::size_t start = 0;
    while (start < status.size()) {
        const std::size_t end = std::min(status.find('\n', start), status.size());
        const std::string_view line = status.substr(start, end - start);
        if (line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == ':') {
            return line.substr(name.size() + 1);
        }
        start = end + 1;
    }
    return std::nullopt;
}

std::vector<std::uint64_t> numbers(std::string_view words, int base) {
    std::vector<std::uint64_t> result;
    const char* at = words.data();
    const char* const end = at + words.size();
    while (at != end) {
        std::uint64_t value = 0;
        const std::from_chars_result read = std::from_chars(at, end, value, base);
        if (read.ec == std::errc{}) {
            result.push_back(value);
            at = read.ptr;
        } else {
            ++at; // white space, or the unit after a number
        }
    }
    return result;
}

tl::unexpected<Error> missing(const char* name) {
    return fail(EPROTO, "reading the process's identity", "/proc/self/status",
                std::string{"There is no usable line \""} + name + "\": is /proc the kernel's own?");
}

std::optional<std::uint64_t> finite(rlim_t limit) {
    if (limit == RLIM_INFINITY) {
        return std::nullopt;
    }
    return limit;
}

Value limit_json(const std::optional<std::uint64_t>& limit) {
    return limit ? Value(*limit) : Value("unlimited");
}

} // namespace

Result<Identity> parse_status(std::string_view status) {
    Identity result;
    const auto read = [&](const char* name, int base, std::size_t least) -> Result<std::vector<std::uint64_t>> {
        const std::optional<std::string_view> words = field(status, name);
        if (!words) {
            return missing(name);
        }
        std::vector<std::uint64_t> found = numbers(*words, base);
        if (found.size() < least) {
            return missing(name);
        }
        return found;
    };
    const auto uids = read("Uid", 10, 4);
    const auto gids = read("Gid", 10, 4);
    const auto groups = read("Groups", 10, 0);
    const auto effective = read("CapEff", 16, 1);
    const auto permitted = read("CapPrm", 16, 1);
    const auto bounding = read("CapBnd", 16, 1);
    const auto locked = read("VmLck", 10, 1);
    const auto pinned = read("VmPin", 10, 1);
    for (const auto* one : {&uids, &gids, &groups, &effective, &permitted, &bounding, &locked, &pinned}) {
        if (!*one) {
            return tl::unexpected{one->error()};
        }
    }
    result.uid = static_cast<std::uint32_t>((*uids)[0]);
    result.effective_uid = static_cast<std::uint32_t>((*uids)[1]);
    result.gid = static_cast<std::uint32_t>((*gids)[0]);
    result.effective_gid = static_cast<std::uint32_t>((*gids)[1]);
    for (const std::uint64_t group : *groups) {
        result.groups.push_back(static_cast<std::uint32_t>(group));
    }
    result.effective_capabilities = (*effective)[0];
    result.permitted_capabilities = (*permitted)[0];
    result.bounding_capabilities = (*bounding)[0];
    result.locked = (*locked)[0] * 1024; // proc(5): in kB
    result.pinned = (*pinned)[0] * 1024;
    return result;
}

Result<Identity> who_am_i(os::System& system) {
    const Result<std::string> status = os::read_text(system, "/proc/self/status");
    if (!status) {
        return tl::unexpected{status.error()};
    }
    Result<Identity> result = parse_status(*status);
    if (!result) {
        return result;
    }
    const auto pids = field(*status, "Pid");
    if (!pids || numbers(*pids, 10).empty()) {
        return missing("Pid");
    }
    result->pid = static_cast<pid_t>(numbers(*pids, 10).front());
    result->dumpable = system.prctl(PR_GET_DUMPABLE, 0);
    rlimit limit{};
    if (system.getrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
        return fail(errno, "getrlimit", "RLIMIT_MEMLOCK", "A sandbox may forbid it: run the probe outside.");
    }
    result->memlock = finite(limit.rlim_cur);
    result->memlock_max = finite(limit.rlim_max);
    return result;
}

Result<void> limit_memlock(os::System& system, std::uint64_t bytes) {
    rlimit limit{};
    if (system.getrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
        return fail(errno, "getrlimit", "RLIMIT_MEMLOCK", "A sandbox may forbid it: run the probe outside.");
    }
    limit.rlim_cur = bytes;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < bytes) {
        limit.rlim_max = bytes;
    }
    if (system.setrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
        return fail(errno, "setrlimit", "RLIMIT_MEMLOCK",
                    "Only CAP_SYS_RESOURCE may raise the hard limit: start from a shell with a higher one (prlimit, "
                    "limits.conf), or ask for less.");
    }
    return {};
}

Value Identity::json() const {
    return {{"pid", pid},
            {"uid", uid},
            {"effective_uid", effective_uid},
            {"gid", gid},
            {"effective_gid", effective_gid},
            {"groups", groups},
            {"capabilities",
             {{"effective", hex(effective_capabilities)},
              {"permitted", hex(permitted_capabilities)},
              {"bounding", hex(bounding_capabilities)},
              {"ipc_lock", capable(CAP_IPC_LOCK)},
              {"sys_resource", capable(CAP_SYS_RESOURCE)},
              {"sys_rawio", capable(CAP_SYS_RAWIO)},
              {"sys_admin", capable(CAP_SYS_ADMIN)}}},
            {"dumpable", dumpable},
            {"memlock_bytes", limit_json(memlock)},
            {"memlock_hard_bytes", limit_json(memlock_max)},
            {"VmLck_bytes", locked},
            {"VmPin_bytes", pinned}};
}

} // namespace upcie::probes
