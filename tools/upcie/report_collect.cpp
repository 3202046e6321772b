// SPDX-License-Identifier: BSD-3-Clause
#include "report_collect.hpp"

#include <ctime>
#include <set>

#include <sys/utsname.h>

#include <upcie/os/sysfs.hpp>

#include "host_facts.hpp"
#include "interruption.hpp"
#include "report_identifiers.hpp"
#include "version.hpp"

namespace upcie::cli {

namespace {

/// The value behind "key   : value" or KEY="value", of the first line that begins with the key.
std::string first_value(const std::string& text, std::string_view key, char between) {
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find('\n', start), text.size());
        const std::string_view line{text.data() + start, end - start};
        const auto sign = line.find(between);
        if (line.substr(0, key.size()) == key && sign != std::string_view::npos &&
            line.substr(key.size(), sign - key.size()).find_first_not_of(" \t") == std::string_view::npos) {
            std::string_view value = line.substr(sign + 1);
            const auto trim = [&](std::string_view what) {
                const auto first = std::min(value.find_first_not_of(what), value.size());
                value.remove_prefix(first);
                const auto last = value.find_last_not_of(what);
                value = value.substr(0, last == std::string_view::npos ? 0 : last + 1);
            };
            trim(" \t\r");
            trim("\"'");
            return std::string{value};
        }
        start = end + 1;
    }
    return {};
}

std::string content_of(Context& context, const std::string& path) {
    constexpr std::size_t enough = std::size_t{16} << 20; // /proc/cpuinfo has a paragraph a processor
    return os::read_text(context.system, path, enough).value_or("");
}

/// In the words of the probes, but of the whole machine.
std::string iommu_of(Context& context, const HostFacts& facts) {
    std::set<std::string> types;
    const std::string groups = context.roots.kernel.sysfs + "/kernel/iommu_groups";
    for (const auto& group : os::list_names(context.system, groups).value_or(std::vector<std::string>{})) {
        if (content_of(context, groups + "/" + group + "/name") != "vfio-noiommu") {
            const std::string type = content_of(context, groups + "/" + group + "/type");
            types.insert(type.empty() ? "unknown" : type);
        }
    }
    std::string text =
        !types.empty() ? fmt::format("on, default domain{} {}", types.size() == 1 ? "" : "s", fmt::join(types, ", "))
        : facts.iommu_tables.empty()
            ? std::string{"none"}
            : fmt::format("off, though firmware describes one ({})", fmt::join(facts.iommu_tables, ", "));
    if (facts.unsafe_noiommu.value_or(false)) {
        text += "; vfio's no-IOMMU mode is enabled";
    }
    return text;
}

utsname system_name() {
    utsname name{};
    static_cast<void>(::uname(&name)); // fails for a bad pointer alone
    return name;
}

/// UTC. The time of the day says which run it was, and nobody needs that to compare machines.
std::string now(bool whole) {
    const std::time_t seconds = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    const std::string day = fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
    return whole ? fmt::format("{}T{:02}:{:02}:{:02}Z", day, parts.tm_hour, parts.tm_min, parts.tm_sec) : day;
}

} // namespace

Json describe_host(Context& context, bool identifiers) {
    const HostFacts facts = gather_host_facts(context);
    const std::string processors = content_of(context, context.roots.kernel.proc + "/cpuinfo");
    const utsname name = system_name();
    Json host;
    host["kernel"] = fmt::format("{} {} {}", static_cast<const char*>(name.sysname), facts.release,
                                 static_cast<const char*>(name.machine));
    host["iommu"] = iommu_of(context, facts);
    host["cpu_vendor"] = first_value(processors, "vendor_id", ':');
    host["cpu"] = first_value(processors, "model name", ':');
    host["distribution"] = first_value(content_of(context, context.roots.os_release), "PRETTY_NAME", '=');
    host["uid"] = facts.uid; // the probes ran as whoever this is
    if (identifiers) {
        host["name"] = static_cast<const char*>(name.nodename);
    }
    return host;
}

MachineReport collect_report(Context& context, const Collecting& collecting, const std::vector<PlannedProbe>& planned,
                             const std::function<void(const Json& entry)>& heard) {
    const bool identifiers = collecting.probes.identifiers;
    const utsname name = system_name();
    const std::string host_name = static_cast<const char*>(name.nodename);
    Json document;
    document["schema"] = Json{{"name", "upcie-report"}, {"version", machine_report_version}};
    document["tool_version"] = version;
    document["created"] = now(identifiers);
    document["measured"] = "here";
    document["machine"] = nullptr;
    document["host"] = describe_host(context, identifiers);
    document["only"] = collecting.probes.only;
    document["probes"] = Json::array();
    for (const PlannedProbe& one : planned) {
        PlannedProbe next = one;
        if (Interruption::requested() && next.outcome.empty()) {
            next.outcome = probe_outcome::skipped;
            next.reason = "a signal ended the report before its turn";
            next.remedy = "Run upcie report again.";
        }
        Json entry = run_probe(next, collecting.probes.limit);
        if (!identifiers) {
            leave_out_identifiers(entry, host_name);
        }
        heard(entry);
        document["probes"].push_back(std::move(entry));
    }
    document["machine"] =
        collecting.machine.empty() ? machine_name(document["host"], document["probes"]) : collecting.machine;
    return MachineReport{std::move(document)};
}

} // namespace upcie::cli
