// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "exit_code.hpp"
#include "host_roots.hpp"

namespace upcie::cli {

using Json = nlohmann::ordered_json;

/// Version of the envelope that every --json answer has; raised when a field changes its meaning or goes.
constexpr int json_schema_version = 1;

/// What a subcommand works with; tests hand in streams and trees of their own.
struct Context {
    std::ostream& out;
    std::ostream& err;
    os::System& system;
    HostRoots roots;
    bool json = false;
};

/// An answer in the making: lines for people as they come, or one JSON document at the end.
class Report {
  public:
    Report(Context& context, std::string_view command);

    [[nodiscard]] bool json() const noexcept { return context_.json; }
    /// Field "result" of the document.
    [[nodiscard]] Json& result() noexcept { return result_; }

    /// One line on standard output; nothing with --json.
    template <class... Arguments>
    void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        if (!context_.json) {
            write(fmt::format(format, std::forward<Arguments>(arguments)...));
        }
    }
    /// One line on standard error, with --json too: a note, or progress.
    void note(std::string_view text);

    /// Says which device was opened, which way, and why that one.
    void set_device(std::string_view name, std::string_view path, std::string_view reason);

    /// Something that is only known at the end, and may be worth a note.
    void at_end(std::function<void(Report&)> ask) { at_end_ = std::move(ask); }

    /// Ends the answer. Either of the two is called once.
    ExitCode finish(ExitCode code = ExitCode::ok);
    ExitCode fail(const Error& error, ExitCode code = ExitCode::failed);

  private:
    void write(std::string_view line);
    ExitCode print(ExitCode code, const Error* error);

    Context& context_;
    std::string command_;
    Json device_;
    Json path_;
    Json result_ = Json::object();
    std::function<void(Report&)> at_end_;
};

[[nodiscard]] Json to_json(const Error& error);
/// "1.5 GiB": at most two decimals, cut and not rounded.
[[nodiscard]] std::string human_size(std::uint64_t bytes);
/// The running kernel's release, "6.1.0-18-amd64"; empty when /proc does not say.
[[nodiscard]] std::string kernel_release(Context& context);

} // namespace upcie::cli
