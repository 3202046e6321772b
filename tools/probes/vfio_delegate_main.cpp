// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "channel.hpp"
#include "child.hpp"
#include "command.hpp"
#include "environment.hpp"
#include "two_processes.hpp"
#include "vfio_delegate.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

const char* const question =
    "What survives the exit of the process that bound the device, for a secondary that holds its descriptors, and is a "
    "restart of that process a handover or fatal?";

int primary(const CommonOptions& common, const SideOptions& side, const std::string& device, bool kill_self) {
    os::System& system = os::real_system();
    Report report{"vfio_delegate", question, "primary"};
    const auto function = device_to_ask(report, system, device, translation_obstacle);
    if (!function) {
        return print_report(report, common.json);
    }
    Result<Listener> listener = Listener::open(system, side.socket, side.allowed_uids);
    Result<Channel> secondary = listener ? listener->accept(common.patience()) : tl::unexpected{listener.error()};
    Result<void> done = secondary ? apply(system, side) : tl::unexpected{secondary.error()};
    if (done) {
        done = hand_over_and_end(report, Requests{system}, *function, *secondary, [&] {
            print_report(report, common.json);
            if (kill_self) {
                ::raise(SIGKILL);
            }
            // Nothing is given back: that the process ends is the question, and no destructor is to answer it.
            ::_exit(0);
        });
    }
    if (secondary) {
        tell_failure(*secondary, done.error());
    }
    could_not_ask(report, done.error());
    return print_report(report, common.json);
}

int secondary(const CommonOptions& common, const SideOptions& side, const std::string& handover_socket) {
    os::System& system = os::real_system();
    Report report{"vfio_delegate", question, "secondary"};
    report.set_environment(describe_kernel());
    Result<Channel> primary_side = Channel::connect(system, side.socket, common.patience());
    Result<void> done = primary_side ? apply(system, side) : tl::unexpected{primary_side.error()};
    if (done) {
        done = outlive_primary(report, Requests{system}, *primary_side, handover_socket, side.allowed_uids);
    }
    if (!done) {
        if (primary_side) {
            tell_failure(*primary_side, done.error());
        }
        could_not_ask(report, done.error());
    }
    return print_report(report, common.json);
}

int restarted(const CommonOptions& common, const SideOptions& side) {
    os::System& system = os::real_system();
    Report report{"vfio_delegate", question, "restarted"};
    report.set_environment(describe_kernel());
    Result<Channel> secondary_side = Channel::connect(system, side.socket, common.patience());
    Result<void> done = secondary_side ? apply(system, side) : tl::unexpected{secondary_side.error()};
    if (done) {
        done = be_restarted_primary(report, Requests{system}, *secondary_side);
    }
    if (done) {
        report.answer("part", "done", "The secondary prints the verdict, with what this side saw.");
    } else {
        if (secondary_side) {
            tell_failure(*secondary_side, done.error());
        }
        could_not_ask(report, done.error());
    }
    return print_report(report, common.json);
}

/// All three as processes of their own; the secondary's report is this program's output.
Result<int> all_three(const CommonOptions& common, const std::string& device, const std::string& end) {
    const Result<ScratchFolder> folder = ScratchFolder::make();
    if (!folder) {
        return tl::unexpected{folder.error()};
    }
    const std::string timeout = std::to_string(common.timeout_s);
    const std::string meeting = folder->file("primary");
    const std::string handover = folder->file("handover");
    Result<Child> first =
        Child::start({"primary", device, "--end", end, "--socket", meeting, "--timeout", timeout}, true);
    std::vector<std::string> arguments{"secondary", "--socket",  meeting, "--handover-socket",
                                       handover,    "--timeout", timeout};
    if (common.json) {
        arguments.emplace_back("--json");
    }
    Result<Child> second = first ? Child::start(arguments, false) : tl::unexpected{first.error()};
    if (!second) {
        return tl::unexpected{second.error()};
    }
    const Result<int> primary_status = first->wait(common.patience());
    if (!primary_status) {
        return primary_status;
    }
    const bool expected = *primary_status == (end == "kill" ? 128 + SIGKILL : 0);
    if (expected) {
        Result<Child> again = Child::start({"restart", "--socket", handover, "--timeout", timeout}, true);
        if (!again) {
            return tl::unexpected{again.error()};
        }
        const Result<int> restart_status = again->wait(common.patience() * 2);
        if (!restart_status) {
            return restart_status;
        }
    }
    return second->wait(common.patience());
}

int standalone(const CommonOptions& common, const std::string& device, const std::string& end) {
    // What stands in the way is said here, where it is seen: the processes' own output is not.
    os::System& system = os::real_system();
    Report report{"vfio_delegate", question};
    const auto function = device_to_ask(report, system, device, translation_obstacle);
    if (!function) {
        return print_report(report, common.json);
    }
    const Result<int> status = all_three(common, device, end);
    if (!status) {
        could_not_ask(report, status.error());
        return print_report(report, common.json);
    }
    return *status == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        std::string{question} +
        " `standalone` starts all processes as this user; otherwise start a primary, a secondary as whatever user, "
        "and, for the second half, `restart` once the primary has ended. Takes the device over."};
    CommonOptions common;
    SideOptions first_side;
    SideOptions second_side;
    SideOptions restart_side;
    std::string device;
    std::string end = "exit";
    std::string handover;
    const std::string folder = ::geteuid() == 0 ? "/run/" : "";
    add_common_options(app, common);
    app.require_subcommand(1);
    app.fallthrough();
    const auto takes_device = [&](CLI::App* one) {
        add_device_option(*one, device)->required();
        one->add_option("--end", end, "How the primary ends: exit, or kill (SIGKILL)")
            ->check(CLI::IsMember({"exit", "kill"}))
            ->capture_default_str();
    };
    CLI::App* const first = app.add_subcommand("primary", "Binds the device, starts it, hands it over, and ends");
    takes_device(first);
    add_side_options(*first, first_side, folder + "upcie-probe-delegate.sock", true);
    CLI::App* const second = app.add_subcommand("secondary", "Outlives the primary; prints the report");
    add_side_options(*second, second_side, folder + "upcie-probe-delegate.sock", true);
    second->add_option("--handover-socket", handover, "Where to wait for the restarted primary afterwards");
    CLI::App* const again = app.add_subcommand("restart", "The primary started anew");
    add_side_options(*again, restart_side, folder + "upcie-probe-handover.sock", false);
    CLI::App* const alone = app.add_subcommand("standalone", "All three, one after the other");
    takes_device(alone);
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    if (*first) {
        return primary(common, first_side, device, end == "kill");
    }
    if (*second) {
        return secondary(common, second_side, handover);
    }
    return *again ? restarted(common, restart_side) : standalone(common, device, end);
}
