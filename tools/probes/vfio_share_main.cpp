// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "../plain_numbers.hpp"
#include "channel.hpp"
#include "child.hpp"
#include "command.hpp"
#include "environment.hpp"
#include "two_processes.hpp"
#include "vfio_share.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

const char* const question = "Can a secondary that is given the device's descriptor, the iommufd with its IOAS id and "
                             "a memfd use the device, and "
                             "whose RLIMIT_MEMLOCK is charged for the memory that either side registers?";

struct PrimaryOptions {
    std::string device;
    bool spawn = false;
    std::optional<std::uint64_t> secondary_memlock;
    std::uint64_t span_mib = 32;
    std::string accounting = "both";
};

Result<void> with_secondary(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            const CommonOptions& common, const SideOptions& side, const PrimaryOptions& options) {
    os::System& system = requests.system();
    std::optional<ScratchFolder> folder;
    std::string socket = side.socket;
    if (options.spawn) {
        Result<ScratchFolder> made = ScratchFolder::make();
        if (!made) {
            return tl::unexpected{made.error()};
        }
        folder.emplace(std::move(*made));
        socket = folder->file("socket");
    }
    Result<Listener> listener = Listener::open(system, socket, side.allowed_uids);
    if (!listener) {
        return tl::unexpected{listener.error()};
    }
    std::optional<Child> child;
    if (options.spawn) {
        std::vector<std::string> arguments{"secondary", "--socket", socket, "--timeout",
                                           std::to_string(common.timeout_s)};
        if (options.secondary_memlock) {
            arguments.insert(arguments.end(), {"--memlock", std::to_string(*options.secondary_memlock)});
        }
        Result<Child> started = Child::start(arguments, true);
        if (!started) {
            return tl::unexpected{started.error()};
        }
        child.emplace(std::move(*started));
    }
    Result<Channel> channel = listener->accept(common.patience());
    if (!channel) {
        return tl::unexpected{channel.error()};
    }
    ShareOptions share;
    share.span = options.span_mib << 20;
    if (options.accounting != "both") {
        share.accountings = {options.accounting == "user" ? Accounting::per_user : Accounting::per_process};
    }
    // Only now: the listening and the start of the secondary are not to be bounded by this side's limit.
    Result<void> asked = apply(system, side);
    if (asked) {
        asked = ask_vfio_share(report, requests, function, *channel, share);
    }
    if (!asked) {
        tell_failure(*channel, asked.error());
        return asked;
    }
    if (child) {
        const Result<int> status = child->wait(common.patience());
        return status ? Result<void>{} : tl::unexpected{status.error()};
    }
    return {};
}

int primary(const CommonOptions& common, const SideOptions& side, const PrimaryOptions& options) {
    os::System& system = os::real_system();
    Report report{"vfio_share", question, "primary"};
    const auto function = device_to_ask(report, system, options.device, translation_obstacle);
    if (!function) {
        return print_report(report, common.json);
    }
    const Result<void> asked = with_secondary(report, Requests{system}, *function, common, side, options);
    if (!asked) {
        could_not_ask(report, asked.error());
    }
    return print_report(report, common.json);
}

int secondary(const CommonOptions& common, const SideOptions& side) {
    os::System& system = os::real_system();
    Report report{"vfio_share", question, "secondary"};
    report.set_environment(describe_kernel());
    Result<Channel> channel = Channel::connect(system, side.socket, common.patience());
    Result<void> done = channel ? apply(system, side) : tl::unexpected{channel.error()};
    if (done) {
        done = be_share_secondary(report, Requests{system}, *channel);
    }
    if (done) {
        report.answer("part", "done", "The primary prints the verdict, with what this side saw.");
    } else {
        if (channel) {
            tell_failure(*channel, done.error());
        }
        could_not_ask(report, done.error());
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        std::string{question} +
        " Start a primary (it takes the device over), then a secondary as whatever user; --spawn starts one as the "
        "same user."};
    CommonOptions common;
    SideOptions side;
    SideOptions secondary_side;
    PrimaryOptions options;
    const std::string socket = ::geteuid() == 0 ? "/run/upcie-probe-share.sock" : "upcie-probe-share.sock";
    add_common_options(app, common);
    app.require_subcommand(1);
    app.fallthrough();
    CLI::App* const first = app.add_subcommand("primary", "Owns the device and hands it over; prints the report");
    add_device_option(*first, options.device)->required();
    add_side_options(*first, side, socket, true);
    first->add_flag("--spawn", options.spawn, "Starts the secondary too, as the same user");
    first->add_option("--secondary-memlock", options.secondary_memlock, "--memlock of a secondary that --spawn starts")
        ->transform(CLI::AsSizeValue(false))
        ->transform(CLI::Validator{[](std::string& text) { return check_plain_size(text); }, ""});
    first->add_option("--span", options.span_mib, "MiB that each side tries to register at most")
        ->check(CLI::Range(std::uint64_t{8}, std::uint64_t{65536}))
        ->capture_default_str();
    first->add_option("--accounting", options.accounting, "How iommufd is to count: user, process, or both in turn")
        ->check(CLI::IsMember({"user", "process", "both"}))
        ->capture_default_str();
    CLI::App* const second = app.add_subcommand("secondary", "Is given the device, as whatever user starts it");
    add_side_options(*second, secondary_side, socket, false);
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    return *first ? primary(common, side, options) : secondary(common, secondary_side);
}
