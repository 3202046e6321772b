// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include <fmt/format.h>

#include "channel.hpp"
#include "child.hpp"
#include "command.hpp"
#include "environment.hpp"
#include "identity.hpp"
#include "vfio_cdev.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

/// Starts the second process, and lets the question be asked.
Result<void> with_second_opener(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                const CommonOptions& common) {
    os::System& system = requests.system();
    Result<ScratchFolder> folder = ScratchFolder::make();
    if (!folder) {
        return tl::unexpected{folder.error()};
    }
    const std::string socket = folder->file("socket");
    Result<Listener> listener = Listener::open(system, socket, {});
    if (!listener) {
        return tl::unexpected{listener.error()};
    }
    Result<Child> child = Child::start(
        {"second-opener", function.vfio_cdev, "--socket", socket, "--timeout", std::to_string(common.timeout_s)},
        false);
    if (!child) {
        return tl::unexpected{child.error()};
    }
    Result<Channel> channel = listener->accept(common.patience());
    if (!channel) {
        return tl::unexpected{channel.error()};
    }
    Result<void> asked = ask_vfio_cdev(report, requests, function, *channel);
    if (!asked) {
        return asked;
    }
    const Result<int> status = child->wait(common.patience());
    return status ? Result<void>{} : tl::unexpected{status.error()};
}

int probe(const std::string& device, const CommonOptions& common) {
    os::System& system = os::real_system();
    Report report{"vfio_cdev",
                  "What does an opener of a vfio cdev get, and what does a second opener of the same cdev?"};
    const auto function = device_to_ask(report, system, device, cdev_obstacle);
    if (!function) {
        return print_report(report, common.json);
    }
    if (const Result<Identity> self = who_am_i(system)) {
        report.add_process("first", self->json());
    }
    if (const Result<void> asked = with_second_opener(report, Requests{system}, *function, common); !asked) {
        could_not_ask(report, asked.error());
    }
    return print_report(report, common.json);
}

int second_opener(const std::string& cdev, const std::string& socket, const CommonOptions& common) {
    os::System& system = os::real_system();
    Result<Channel> channel = Channel::connect(system, socket, common.patience());
    Result<void> done = channel ? be_second_opener(Requests{system}, cdev, *channel) : tl::unexpected{channel.error()};
    if (!done) {
        fmt::print(stderr, "second opener: {}\n", done.error().message());
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "What an opener of a vfio cdev gets, and what a second opener of the same cdev gets. Takes the device over: "
        "it is reset, and an NVMe controller is told to write its Identify data."};
    CommonOptions common;
    std::string device;
    std::string socket;
    add_common_options(app, common);
    add_device_option(app, device);
    CLI::App* const second = app.add_subcommand("second-opener", "The second process; started by the probe itself");
    second->group("");
    second->add_option("device", device)->required();
    second->add_option("--socket", socket)->required();
    second->add_option("--timeout", common.timeout_s);
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    if (*second) {
        return second_opener(device, socket, common);
    }
    if (device.empty()) {
        fmt::print(stderr, "device is required\nRun with --help for more information.\n");
        return 2;
    }
    return probe(device, common);
}
