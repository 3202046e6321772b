// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <optional>

#include <fcntl.h>

#include <upcie/os/fd.hpp>

#include "checks.hpp"
#include "config_space.hpp"

namespace upcie::cli {

namespace {

constexpr std::uint32_t class_display = 0x03;
constexpr std::uint32_t class_accelerator = 0x12;
constexpr std::uint64_t smallest_window = std::uint64_t{64} << 20;

/// GPUs and accelerators: what a drive may exchange data with.
bool is_peer(const pci::FunctionInfo& function) {
    const auto base = function.class_code >> 16;
    const bool has_window = std::any_of(function.bars.begin(), function.bars.end(), [](const auto& bar) {
        return !bar.io && bar.prefetchable && bar.size.value() >= smallest_window;
    });
    return (base == class_display || base == class_accelerator) && has_window;
}

/// The nearest bridge above both, if any; what they cross to get there.
struct Route {
    std::optional<pci::Bdf> meeting;
    std::vector<pci::Bdf> crossed;
};

Route route_between(const pci::FunctionInfo& a, const pci::FunctionInfo& b) {
    Route route;
    for (const auto& bridge : a.parents) {
        const auto found = std::find(b.parents.begin(), b.parents.end(), bridge);
        if (found != b.parents.end()) {
            route.meeting = bridge;
            route.crossed.insert(route.crossed.end(), b.parents.begin(), found);
            return route;
        }
        route.crossed.push_back(bridge);
    }
    route.crossed.insert(route.crossed.end(), b.parents.begin(), b.parents.end());
    return route;
}

void check_bars(const pci::FunctionInfo& function, Checks& checks) {
    std::string text;
    bool unassigned = false;
    for (const auto& bar : function.bars) {
        text += fmt::format("{}BAR{} {}{}{}", text.empty() ? "" : ", ", bar.index, human_size(bar.size.value()),
                            bar.prefetchable ? " prefetchable" : "", bar.unassigned ? " UNASSIGNED" : "");
        unassigned = unassigned || bar.unassigned;
    }
    Check check{"device." + function.bdf.to_string() + ".bars",
                "Devices",
                CheckStatus::ok,
                fmt::format("{} [{:04x}:{:04x}] {}", function.bdf.to_string(), function.vendor, function.device,
                            text.empty() ? "has no BAR" : text),
                "all",
                {}};
    if (unassigned || text.empty()) {
        check.status = CheckStatus::missing;
        check.fix =
            "The kernel found no address space for it: enable \"Above 4G decoding\" in the firmware set-up, or boot "
            "with pci=realloc";
    }
    checks.push_back(std::move(check));
}

void check_link(const pci::FunctionInfo& function, Checks& checks) {
    if (!function.link || function.link->width == 0) {
        return;
    }
    const auto& link = *function.link;
    Check check{"device." + function.bdf.to_string() + ".link",
                "Devices",
                CheckStatus::ok,
                fmt::format("{} link {} x{}", function.bdf.to_string(), link.speed, link.width),
                "bandwidth",
                {}};
    if (link.speed != link.max_speed || link.width < link.max_width) {
        check.status = CheckStatus::warn;
        check.found += fmt::format(" of {} x{}", link.max_speed, link.max_width);
        check.fix =
            "Look at the slot and its bifurcation in the firmware set-up; an idle device may also just save power.";
    }
    checks.push_back(std::move(check));
}

} // namespace

void check_devices(const std::vector<pci::FunctionInfo>& functions, Checks& checks) {
    bool any = false;
    for (const auto& function : functions) {
        if (function.is_nvme()) {
            any = true;
            check_bars(function, checks);
            check_link(function, checks);
        } else if (is_peer(function)) {
            check_bars(function, checks);
        }
    }
    if (!any) {
        checks.push_back(
            {"device.nvme", "Devices", CheckStatus::missing, "no NVMe controller on the PCI bus", "all but sim:",
             "Try the simulator: upcie identify sim:size=1G. A drive behind Intel VMD or in a RAID mode shows once "
             "the firmware is set to AHCI/NVMe."});
    }
}

void check_peer_to_peer(Context& context, const std::vector<pci::FunctionInfo>& functions, Checks& checks) {
    for (const auto& drive : functions) {
        for (const auto& peer : functions) {
            if (!drive.is_nvme() || !is_peer(peer)) {
                continue;
            }
            const Route route = route_between(drive, peer);
            Check check{fmt::format("p2p.{}.{}", drive.bdf.to_string(), peer.bdf.to_string()),
                        "Peer-to-peer",
                        CheckStatus::ok,
                        fmt::format("{} and {}: ", drive.bdf.to_string(), peer.bdf.to_string()),
                        "peer-to-peer",
                        {}};
            if (route.meeting && *route.meeting != drive.parents.back()) {
                check.found += fmt::format("meet in the switch at {}", route.meeting->to_string());
            } else if (route.meeting) {
                check.found += fmt::format("share the root port {}", route.meeting->to_string());
            } else if (drive.root_bus == peer.root_bus) {
                check.status = CheckStatus::warn;
                check.found += fmt::format("meet in the root complex {}", drive.root_bus);
                check.fix =
                    "Most server root complexes forward peer-to-peer, with less bandwidth than a switch; measure it.";
            } else {
                check.status = CheckStatus::warn;
                check.found += fmt::format("hang below different host bridges ({}, {})", drive.root_bus, peer.root_bus);
                check.fix = "Traffic crosses the processor's fabric or sockets, if it is forwarded at all; measure it, "
                            "or move one "
                            "of them to a slot below the same switch.";
            }
            std::string redirecting;
            bool unreadable = false;
            for (const auto& bridge : route.crossed) {
                const auto acs = read_acs_control(context, bridge);
                unreadable = unreadable || acs.unreadable;
                if (acs.redirects()) {
                    redirecting += (redirecting.empty() ? "" : ", ") + bridge.to_string();
                }
            }
            if (!redirecting.empty()) {
                check.status = CheckStatus::warn;
                check.found += fmt::format("; ACS at {} redirects requests up to the root complex", redirecting);
                check.fix += fmt::format("{}For direct traffic, on a machine you trust: boot with "
                                         "pci=disable_acs_redir={}",
                                         check.fix.empty() ? "" : " ", redirecting);
            } else if (unreadable) {
                check.found += "; ACS could not be read (run as root)";
            }
            checks.push_back(std::move(check));
        }
    }
}

} // namespace upcie::cli
