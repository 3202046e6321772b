// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include <upcie/nvme/controller.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/pci/function.hpp>

#include "output.hpp"

namespace upcie::cli {

/// Which device, and which way to it: what the user said.
struct DeviceChoice {
    std::string name;
    std::string path = "automatic";
    std::uint32_t nsid = 0; ///< 0: the first active namespace

    [[nodiscard]] bool simulated() const noexcept { return std::string_view{name}.substr(0, 4) == "sim:"; }
};

/// The DEVICE argument and --path.
void add_device_options(CLI::App& subcommand, DeviceChoice& choice);
/// --nsid
void add_namespace_option(CLI::App& subcommand, DeviceChoice& choice);
/// --destructive, which destroy() demands.
void add_destructive_flag(CLI::App& subcommand, bool& destructive);

/// The PCI function behind a PCI address or a vfio cdev's path or name.
/// Errors: EINVAL (neither; a simulated one has no PCI function), ENODEV.
[[nodiscard]] Result<pci::FunctionInfo> find_pci_function(Context& context, const std::string& name);

/// A failure together with what the process is to end with for it.
struct Failure {
    Error error;
    ExitCode code = ExitCode::failed;
};
template <class T>
using Outcome = tl::expected<T, Failure>;
[[nodiscard]] inline tl::unexpected<Failure> stop(Error error, ExitCode code = ExitCode::failed) {
    return tl::unexpected<Failure>{Failure{std::move(error), code}};
}

[[nodiscard]] inline tl::unexpected<Failure> stop(tl::unexpected<Error> error, ExitCode code = ExitCode::failed) {
    return stop(std::move(error.value()), code);
}

/// Whether data may be destroyed: always on a simulated device, else only with --destructive. Failure: EPERM, usage.
[[nodiscard]] Outcome<void> allow_destruction(const DeviceChoice& choice, bool destructive, std::string_view what);

/// Opens the function the chosen way; the controller behind it is left alone. Errors: upcie::open_function's.
[[nodiscard]] Result<std::shared_ptr<pci::Function>> open_function(Context& context, const DeviceChoice& choice);

/// usage for a name that names nothing, precondition for everything else.
[[nodiscard]] ExitCode exit_code_of_open(const DeviceChoice& choice, const Error& error) noexcept;

/// An opened controller.
struct Session {
    std::shared_ptr<nvme::Controller> controller;

    [[nodiscard]] pci::Function& function() const { return *controller->function(); }
};

/// Opens the function and brings the controller up; tells `report` which path runs.
/// Failure: precondition when the function cannot be opened, failed when the controller does not come up.
[[nodiscard]] Outcome<Session> open_session(Context& context, Report& report, const DeviceChoice& choice,
                                            const nvme::ControllerOptions& options = {});

/// A namespace that blocks can be moved to and from.
struct Target {
    nvme::NamespaceInfo info;
    nvme::BlockFormat format;

    [[nodiscard]] std::uint32_t block_size() const noexcept { return std::uint32_t{1} << format.block_shift; }
};

/// Failure: precondition when `nsid` is not one of `active`.
[[nodiscard]] Outcome<void> must_be_active(const std::vector<Nsid>& active, Nsid nsid, const DeviceChoice& choice);

/// Failure: precondition when there is no such namespace, or its format is not one that is spoken here.
[[nodiscard]] Outcome<Target> choose_namespace(Session& session, const DeviceChoice& choice);

/// [lba, lba + blocks) with blocks 0 meaning "to the end". Failure: usage when it leaves the namespace.
struct BlockRange {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
};
[[nodiscard]] Outcome<BlockRange> choose_range(const Target& target, std::uint64_t first, std::uint64_t count);

} // namespace upcie::cli
