// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <upcie/rm/contract.hpp>
#include <upcie/rm/difference.hpp>
#include <upcie/rm/objects.hpp>
#include <upcie/rm/summary.hpp>
#include <upcie/rm/trace.hpp>

#include "load.hpp"

/// The subcommands of upcie_rm. Each answers the exit status: 0 done, 1 could not, 2 usage.
namespace upcie::rm::tool {

using Json = nlohmann::ordered_json;

struct Streams {
    std::ostream& out;
    std::ostream& errors;
};

/// Runs the whole program. Threads: one at a time.
int run(int argument_count, const char* const* arguments, Streams streams);

struct DecodeOptions {
    std::string trace;
    bool summary = false;
    bool tree = false;
    bool json = false;
};
int decode(const DecodeOptions& options, Streams streams);

struct ContractOptions {
    std::vector<std::string> traces;
    std::string against;
    bool json = false;
};
int contract(const ContractOptions& options, Streams streams);

struct DiffOptions {
    std::string a;
    std::string b;
    bool first_divergence = false;
    bool no_replies = false;
    bool json = false;
};
int diff(const DiffOptions& options, Streams streams);

struct ExplainOptions {
    std::string what;
    std::string driver;
    bool json = false;
};
int explain(const ExplainOptions& options, Streams streams);

struct ScrubCommandOptions {
    std::string trace;
    std::string output = "-";
    bool keep_opaque = false;
    std::vector<std::string> also;
};
int scrub_command(const ScrubCommandOptions& options, Streams streams);

struct PictureOptions {
    std::string trace;
    std::string output = "-";
    std::string format = "svg";
};
int picture(const PictureOptions& options, Streams streams);
int timeline(const PictureOptions& options, Streams streams);

/// The timeline of a trace and its objects, as decode prints them.
[[nodiscard]] std::string timeline_text(const Trace& trace);
[[nodiscard]] std::string summary_text(const Trace& trace, const Summary& summary);
[[nodiscard]] Json summary_json(const Trace& trace, const Summary& summary);
[[nodiscard]] Json decode_json(const Trace& trace);
[[nodiscard]] Json objects_json(const ObjectTree& tree);
[[nodiscard]] std::string contract_text(const Contract& contract);
[[nodiscard]] Json contract_json(const Contract& contract);
[[nodiscard]] std::string difference_text(const Difference& difference, bool first_divergence);
[[nodiscard]] Json difference_json(const Difference& difference, bool first_divergence);

/// "0x5c000003": numbers of the contract as JSON has them here, in hexadecimal.
[[nodiscard]] std::string hexadecimal(std::uint64_t number);
/// "12.3 us", "4.56 ms".
[[nodiscard]] std::string time_text(std::uint64_t nanoseconds);
/// Who made the trace: driver, machine, command.
[[nodiscard]] std::string header_text(const Trace& trace);
[[nodiscard]] Json header_json(const Trace& trace);

/// How a trace's texts are wanted: for a terminal, controls and the like are spelled out (printable.hpp).
enum class Texts { as_they_are, printable };
/// Loads a trace and says its problems, or says why it cannot; the status of a damaged one is 1 all the same.
struct Opened {
    LoadedTrace loaded;
    int status = 0;
};
[[nodiscard]] Result<Opened> open_trace(const std::string& path, Texts texts, Streams streams);
int complain(const Error& error, Streams streams);

} // namespace upcie::rm::tool
