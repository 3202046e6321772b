// SPDX-License-Identifier: BSD-3-Clause
#include "output.hpp"

#include <array>
#include <ostream>

#include <upcie/os/sysfs.hpp>

#include "version.hpp"

namespace upcie::cli {

Report::Report(Context& context, std::string_view command) : context_{context}, command_{command} {}

void Report::write(std::string_view line) {
    context_.out << line << '\n';
}

void Report::note(std::string_view text) {
    context_.err << "upcie: " << text << '\n' << std::flush;
}

void Report::set_device(std::string_view name, std::string_view path, std::string_view reason) {
    device_ = name;
    path_ = Json{{"name", path}, {"reason", reason}};
    if (!context_.json) {
        note(fmt::format("{} through {}: {}", name, path, reason));
    }
}

ExitCode Report::finish(ExitCode code) {
    return print(code, nullptr);
}

ExitCode Report::fail(const Error& error, ExitCode code) {
    return print(code, &error);
}

ExitCode Report::print(ExitCode code, const Error* error) {
    if (error != nullptr) {
        note(error->message());
    }
    if (at_end_) {
        at_end_(*this);
    }
    if (!context_.json) {
        context_.out << std::flush;
        return code;
    }
    Json document;
    document["schema"] = fmt::format("upcie.{}/{}", command_, json_schema_version);
    document["tool"] = "upcie";
    document["version"] = version;
    document["kernel"] = kernel_release(context_);
    document["device"] = device_;
    document["path"] = path_;
    document["exit_code"] = static_cast<int>(code);
    document["error"] = error != nullptr ? to_json(*error) : Json{};
    document["result"] = std::move(result_);
    // What a device or sysfs names itself need not be UTF-8: replaced, rather than a document that cannot be printed.
    context_.out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    return code;
}

Json to_json(const Error& error) {
    constexpr std::array<std::string_view, 3> domains{"system", "nvme", "vendor"};
    const bool is_errno = error.domain == ErrorDomain::system;
    return Json{{"domain", domains[static_cast<std::size_t>(error.domain)]},
                {"code", error.code},
                {"name", is_errno ? errno_name(error.code) : error.code_name},
                {"operation", error.operation},
                {"subject", error.subject},
                {"hint", error.hint},
                {"message", error.message()}};
}

std::string human_size(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    std::uint64_t whole = bytes;
    std::uint64_t rest = 0;
    while (whole >= 1024 && unit + 1 < units.size()) {
        rest = whole % 1024;
        whole /= 1024;
        ++unit;
    }
    const std::uint64_t hundredths = rest * 100 / 1024;
    if (hundredths == 0) {
        return fmt::format("{} {}", whole, units[unit]);
    }
    return hundredths % 10 == 0 ? fmt::format("{}.{} {}", whole, hundredths / 10, units[unit])
                                : fmt::format("{}.{:02} {}", whole, hundredths, units[unit]);
}

std::string kernel_release(Context& context) {
    return os::read_text(context.system, context.roots.kernel.proc + "/sys/kernel/osrelease").value_or("");
}

} // namespace upcie::cli
