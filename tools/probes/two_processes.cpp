// SPDX-License-Identifier: BSD-3-Clause
#include "two_processes.hpp"

#include "../plain_numbers.hpp"

#include <cerrno>
#include <exception>
#include <string>

#include "environment.hpp"

namespace upcie::probes {

void add_side_options(CLI::App& app, SideOptions& options, const std::string& default_socket, bool listens) {
    options.socket = default_socket;
    app.add_option("--socket", options.socket, "Where the two processes meet")->capture_default_str();
    app.add_option("--memlock", options.memlock, "Sets this side's RLIMIT_MEMLOCK first (bytes, or 8MiB and the like)")
        ->transform(CLI::AsSizeValue(false))
        ->transform(CLI::Validator{[](std::string& text) { return check_plain_size(text); }, ""});
    if (listens) {
        app.add_option("--allow-uid", options.allowed_uids,
                       "Users who may take the device over, besides this one (may be repeated)");
    }
}

Result<void> apply(os::System& system, const SideOptions& options) {
    return options.memlock ? limit_memlock(system, *options.memlock) : Result<void>{};
}

Result<Identity> introduce(Report& report, os::System& system, Channel& other, const std::string& self,
                           const std::string& peer) {
    const Result<Identity> own = who_am_i(system);
    if (!own) {
        return tl::unexpected{own.error()};
    }
    report.add_process(self, own->json());
    const Result<void> sent = other.send("hello", own->json());
    // Where the other side is gone already, its last word says why; that it is gone would not.
    const Result<Message> hello = other.expect("hello");
    if (!sent && (hello || hello.error().is(ECONNRESET))) {
        return tl::unexpected{sent.error()};
    }
    if (!hello) {
        return tl::unexpected{hello.error()};
    }
    report.add_process(peer, hello->data);
    Identity result;
    try {
        const Value& facts = hello->data;
        const Value& capabilities = facts.at("capabilities");
        result.pid = facts.at("pid").get<pid_t>();
        result.effective_uid = facts.at("effective_uid").get<std::uint32_t>();
        result.effective_capabilities = std::stoull(capabilities.at("effective").get<std::string>(), nullptr, 16);
        if (facts.at("memlock_bytes").is_number()) {
            result.memlock = facts.at("memlock_bytes").get<std::uint64_t>();
        }
    } catch (const std::exception&) { // nlohmann's for what is missing, the standard library's for what is no number
        return fail(EPROTO, "reading an identity", peer, "Use the same build on both sides.");
    }
    return result;
}

Result<void> take_findings(Report& report, const Message& message) {
    if (!message.data.is_object() || !message.data.contains("findings") ||
        !report.take_findings(message.data.at("findings"))) {
        return fail(EPROTO, "reading findings", "the other process", "Use the same build on both sides.");
    }
    return {};
}

Environment given_environment(os::System& system, const std::string& bdf) {
    if (const Result<pci::FunctionInfo> function = find_device(system, bdf)) {
        return describe_machine(system, *function);
    }
    Environment environment = describe_kernel();
    environment.iommu_mode = "unknown (sysfs does not show the device here)";
    environment.device = {{"bdf", bdf}};
    return environment;
}

void describe_given_device(Report& report, os::System& system, const std::string& bdf) {
    report.set_environment(given_environment(system, bdf));
}

void tell_failure(Channel& other, const Error& error) {
    // Where this fails too, the other side notices the end of the connection.
    static_cast<void>(other.send("failed", {{"operation", error.operation}, {"message", error.message()}}));
}

} // namespace upcie::probes
