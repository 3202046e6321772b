// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/call.hpp>

#include "commands.hpp"
#include "printable.hpp"

namespace upcie::rm::tool {

std::string hexadecimal(std::uint64_t number) {
    return fmt::format("0x{:x}", number);
}

std::string time_text(std::uint64_t nanoseconds) {
    constexpr double thousand = 1000;
    const auto value = static_cast<double>(nanoseconds);
    if (nanoseconds < 1'000'000) {
        return fmt::format("{:.1f} us", value / thousand);
    }
    if (nanoseconds < 1'000'000'000) {
        return fmt::format("{:.2f} ms", value / thousand / thousand);
    }
    return fmt::format("{:.2f} s", value / thousand / thousand / thousand);
}

std::string header_text(const Trace& trace) {
    std::string text;
    for (const TraceHeader& header : trace.headers) {
        std::string command;
        for (const std::string& word : header.command) {
            command += (command.empty() ? "" : " ") + word;
        }
        text += fmt::format("trace of: {}\n", command.empty() ? "(no command)" : command);
        text += fmt::format("written by {}, {}, {}\n", header.tool, header.kernel, header.started);
        for (const std::string& gpu : header.gpus) {
            text += fmt::format("GPU: {}\n", gpu);
        }
    }
    return text + fmt::format("driver: {}\n", driver_version(trace).text());
}

Json header_json(const Trace& trace) {
    Json json;
    json["driver"] = driver_version(trace).text();
    json["runs"] = Json::array();
    for (const TraceHeader& header : trace.headers) {
        json["runs"].push_back({{"tool", header.tool},
                                {"kernel", header.kernel},
                                {"started", header.started},
                                {"command", header.command},
                                {"gpus", header.gpus}});
    }
    json["problems"] = Json::array();
    for (const TraceProblem& problem : trace.problems) {
        json["problems"].push_back({{"line", problem.line}, {"text", problem.text}});
    }
    return json;
}

int complain(const Error& error, Streams streams) {
    streams.errors << "upcie_rm: " << error.message() << '\n';
    return 1;
}

Result<Opened> open_trace(const std::string& path, Texts texts, Streams streams) {
    auto loaded = load_trace(path);
    if (!loaded) {
        return tl::unexpected{loaded.error()};
    }
    report_problems(*loaded, path, streams.errors);
    if (texts == Texts::printable) {
        make_printable(loaded->trace);
    }
    const int status = loaded->damaged() ? 1 : 0;
    return Opened{std::move(*loaded), status};
}

} // namespace upcie::rm::tool
