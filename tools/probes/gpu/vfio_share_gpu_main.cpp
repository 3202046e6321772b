// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "../capabilities.hpp"
#include "../channel.hpp"
#include "../child.hpp"
#include "../command.hpp"
#include "../environment.hpp"
#include "../two_processes.hpp"
#include "vfio_share_gpu.hpp"

using namespace upcie;
using namespace upcie::probes;

namespace {

struct StandaloneOptions {
    std::string device;
    bool memory = false;
    bool try_capabilities = false;
    CapabilityOptions capabilities;
};

Report new_report(const char* process) {
    return {"vfio_share_gpu_" + gpu_flavour().name, vfio_share_gpu_question, process};
}

/// The device's page, where one is to be asked with. Nothing where it cannot be had: the report then says so.
std::optional<OpenedPage> page_to_ask(Report& report, const Requests& requests, const std::string& device) {
    const auto function = device_to_ask(report, requests.system(), device, cdev_obstacle);
    if (!function) {
        return std::nullopt;
    }
    Result<OpenedPage> opened = open_page(requests, *function);
    if (!opened) {
        could_not_ask(report, opened.error());
        return std::nullopt;
    }
    return std::move(*opened);
}

int primary(const CommonOptions& common, const SideOptions& side, const std::string& device) {
    os::System& system = os::real_system();
    Report report = new_report("primary");
    const std::optional<OpenedPage> opened = page_to_ask(report, Requests{system}, device);
    if (!opened) {
        return print_report(report, common.json);
    }
    Result<Listener> listener = Listener::open(system, side.socket, side.allowed_uids);
    Result<Channel> secondary = listener ? listener->accept(common.patience()) : tl::unexpected{listener.error()};
    Result<void> done = secondary ? apply(system, side) : tl::unexpected{secondary.error()};
    if (done) {
        done = ask_share_gpu(report, Requests{system}, *secondary, *opened);
    }
    if (!done) {
        if (secondary) {
            tell_failure(*secondary, done.error());
        }
        could_not_ask(report, done.error());
    }
    return print_report(report, common.json);
}

int secondary(const CommonOptions& common, const SideOptions& side) {
    os::System& system = os::real_system();
    Report report = new_report("secondary");
    report.set_environment(describe_kernel());
    Result<Channel> channel = Channel::connect(system, side.socket, common.patience());
    Result<void> done = channel ? apply(system, side) : tl::unexpected{channel.error()};
    if (done) {
        auto gpu = gpu_flavour().open(system);
        done = gpu ? be_share_gpu_secondary(report, Requests{system}, **gpu, *channel)
                   : tl::unexpected{std::move(gpu.error())};
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

/// The secondaries of --try-capabilities, one after the other, each a process of its own.
class FreshSecondaries {
  public:
    /// `options` are those of the GPU, for each of them.
    [[nodiscard]] static Result<FreshSecondaries> open(const CommonOptions& common, std::uint32_t uid,
                                                       std::vector<std::string> options) {
        Result<ScratchFolder> folder = ScratchFolder::make();
        const Result<void> open = folder ? folder->let_others_in() : tl::unexpected{folder.error()};
        Result<Listener> listener =
            open ? Listener::open(os::real_system(), folder->file("socket"), {uid}) : tl::unexpected{open.error()};
        if (!listener) {
            return tl::unexpected{std::move(listener.error())};
        }
        return FreshSecondaries{common, std::move(*folder), std::move(*listener), std::move(options)};
    }

    [[nodiscard]] Result<Channel> start(const std::optional<Appearance>& appearance) {
        if (const Result<void> ended = wait(); !ended) {
            return tl::unexpected{ended.error()};
        }
        std::vector<std::string> arguments{"secondary", "--socket", folder_.file("socket"), "--timeout",
                                           std::to_string(common_.timeout_s)};
        arguments.insert(arguments.end(), options_.begin(), options_.end());
        Result<Child> started =
            Child::start(appearance ? arguments_to_become(*appearance, arguments) : arguments, true);
        if (!started) {
            return tl::unexpected{std::move(started.error())};
        }
        child_.emplace(std::move(*started));
        const auto deadline = std::chrono::steady_clock::now() + common_.patience();
        for (;;) {
            Result<Channel> channel = listener_.accept(std::chrono::milliseconds{100}, common_.patience());
            if (channel || !channel.error().is(ETIMEDOUT) || std::chrono::steady_clock::now() >= deadline) {
                return channel;
            }
            if (const Result<int> status = child_->wait(std::chrono::milliseconds{0}); status) {
                child_.reset();
                return fail(ECHILD, "starting a process",
                            appearance ? fmt::format("of user {}", appearance->uid) : "of this user",
                            fmt::format("It ended with status {} at once. That user has to be able to run this "
                                        "program and to read its libraries.",
                                        *status));
            }
        }
    }

    /// Until the last one has ended by itself. Error: ETIMEDOUT.
    Result<void> wait() {
        const Result<int> status = child_ ? child_->wait(common_.patience()) : Result<int>{0};
        child_.reset();
        return status ? Result<void>{} : tl::unexpected{status.error()};
    }

  private:
    FreshSecondaries(const CommonOptions& common, ScratchFolder folder, Listener listener,
                     std::vector<std::string> options)
        : common_{common}, folder_{std::move(folder)}, listener_{std::move(listener)}, options_{std::move(options)} {}

    const CommonOptions& common_;
    ScratchFolder folder_;
    Listener listener_;
    std::vector<std::string> options_;
    std::optional<Child> child_;
};

Result<void> try_capabilities(Report& report, const CommonOptions& common, const StandaloneOptions& options,
                              const OpenedPage* device, const std::vector<std::string>& gpu_options) {
    Result<FreshSecondaries> secondaries = FreshSecondaries::open(common, options.capabilities.uid, gpu_options);
    if (!secondaries) {
        return tl::unexpected{std::move(secondaries.error())};
    }
    const StartSecondary start = [&](const std::optional<Appearance>& appearance) {
        return secondaries->start(appearance);
    };
    Result<void> asked = ask_which_capability(report, Requests{os::real_system()}, device, options.capabilities, start);
    return asked ? secondaries->wait() : asked;
}

int standalone(const CommonOptions& common, const StandaloneOptions& options,
               const std::vector<std::string>& gpu_options) {
    const Requests requests{os::real_system()};
    Report report = new_report("");
    report.set_environment(describe_kernel());
    std::optional<OpenedPage> opened;
    if (!options.memory) {
        opened = page_to_ask(report, requests, options.device);
        if (!opened) {
            return print_report(report, common.json);
        }
    }
    const OpenedPage* const device = opened ? &*opened : nullptr;
    Result<void> done;
    if (options.try_capabilities) {
        done = try_capabilities(report, common, options, device, gpu_options);
    } else {
        auto gpu = gpu_flavour().open(requests.system());
        done = gpu ? ask_gpu_alone(report, requests, **gpu, device) : tl::unexpected{std::move(gpu.error())};
    }
    if (!done) {
        could_not_ask(report, done.error());
    }
    return print_report(report, common.json);
}

} // namespace

int main(int argc, char** argv) {
    if (const std::optional<int> status = become_if_told(argc, argv)) {
        return *status;
    }
    CLI::App app{fmt::format(
        "{} Asks {}. `standalone` is one process that opens the device and asks its GPU; otherwise start a primary, "
        "which opens the device, and a secondary as whatever user, which is given the descriptor and asks its GPU. "
        "Takes the device over; its registers are read and never written.",
        vfio_share_gpu_question, gpu_flavour().people)};
    CommonOptions common;
    SideOptions primary_side;
    SideOptions secondary_side;
    StandaloneOptions options;
    std::string device;
    const std::string socket = std::string{::geteuid() == 0 ? "/run/" : ""} + "upcie-probe-share-gpu.sock";
    add_common_options(app, common);
    const std::size_t common_options = app.get_options().size();
    gpu_flavour().add_options(app);
    app.require_subcommand(1);
    app.fallthrough();
    CLI::App* const first = app.add_subcommand("primary", "Opens the device and hands its descriptor over");
    add_device_option(*first, device)->required();
    add_side_options(*first, primary_side, socket, true);
    CLI::App* const second = app.add_subcommand("secondary", "Is given the descriptor, and asks its own GPU");
    add_side_options(*second, secondary_side, socket, false);
    CLI::App* const alone = app.add_subcommand("standalone", "One process that does both");
    CLI::Option* const named = add_device_option(*alone, options.device);
    alone->add_flag("--memory", options.memory, "There is no device: registers ordinary memory alone, also as IOMEMORY")
        ->excludes(named);
    CLI::Option* const trying = alone->add_flag("--try-capabilities", options.try_capabilities,
                                                "As root: which single capability another user needs");
    alone->add_option("--as-uid", options.capabilities.uid, "That other user's number")
        ->needs(trying)
        ->capture_default_str();
    alone
        ->add_option("--only", options.capabilities.only,
                     "Tries these capabilities alone, named as in sys_rawio; it starts a process for each")
        ->needs(trying)
        ->check([](const std::string& name) {
            return is_capability_name(name) ? std::string{} : "'" + name + "' is no capability";
        });
    if (const std::optional<int> status = parse_command_line(app, argc, argv)) {
        return *status;
    }
    if (*first) {
        return primary(common, primary_side, device);
    }
    if (*second) {
        return secondary(common, secondary_side);
    }
    if (options.device.empty() && !options.memory) {
        fmt::print(stderr, "standalone: name a device, or say --memory. Run with --help for more information.\n");
        return 2;
    }
    return standalone(common, options, given_options(app, common_options));
}
