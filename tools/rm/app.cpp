// SPDX-License-Identifier: BSD-3-Clause
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "version.hpp"

namespace upcie::rm::tool {

namespace {

constexpr const char* after_the_help =
    "A TRACE is what upcie_rm_trace wrote, also packed by xz; - is standard input.\n\n"
    "Exit status: 0 done; 1 it could not be done, or the trace is damaged (standard error says where); 2 wrong usage.\n"
    "See upcie_rm(1) and docs/rm.md.";

void add_decode(CLI::App& app, DecodeOptions& options) {
    CLI::App* command = app.add_subcommand("decode", "Show a trace: each call in words, then the objects");
    command->add_option("TRACE", options.trace, "The trace")->required();
    CLI::Option* summary = command->add_flag("--summary", options.summary,
                                             "Counts by escape, class, control and UVM command; failures; time");
    command->add_flag("--tree", options.tree, "The objects alone")->excludes(summary);
    command->add_flag("--json", options.json, "As JSON");
}

void add_contract(CLI::App& app, ContractOptions& options) {
    CLI::App* command =
        app.add_subcommand("contract", "What a program needs of whoever answers it, by the eight points of docs/rm.md");
    command->add_option("TRACE", options.traces, "One trace or several, taken together")->required();
    command->add_option("--against", options.against, "Which calls an allow-list would refuse")->type_name("TABLE");
    command->add_flag("--json", options.json, "As JSON");
}

void add_diff(CLI::App& app, DiffOptions& options) {
    CLI::App* command =
        app.add_subcommand("diff", "Compare two traces, whatever their handles, addresses and descriptors");
    command->add_option("A", options.a, "A trace")->required();
    command->add_option("B", options.b, "Another trace")->required();
    command->add_flag("--first-divergence", options.first_divergence, "Only where they part first");
    command->add_flag("--no-replies", options.no_replies, "Leave the bytes of replies aside");
    command->add_flag("--json", options.json, "As JSON");
}

void add_explain(CLI::App& app, ExplainOptions& options) {
    CLI::App* command = app.add_subcommand(
        "explain", "What a number is: a request, an escape, a class, a control, a UVM command, a status");
    command->add_option("NUMBER", options.what, "0x and hexadecimal, or decimal, or a name of the headers")->required();
    command->add_option("--driver", options.driver, "The size at this driver version")->type_name("VERSION");
    command->add_flag("--json", options.json, "As JSON");
}

void add_scrub(CLI::App& app, ScrubCommandOptions& options) {
    CLI::App* command = app.add_subcommand(
        "scrub", "Take out serial numbers, UUIDs, host and user names and pointers, so that a trace can be shared");
    command->add_option("TRACE", options.trace, "The trace")->required();
    command->add_option("-o,--output", options.output, "Where to; packed when the name ends in .xz")->type_name("FILE");
    command->add_flag("--keep-opaque", options.keep_opaque, "Keep replies of controls that no public header describes");
    command->add_option("--also", options.also, "Remove this text too; may be given again")
        ->type_name("TEXT")
        ->allow_extra_args(false);
}

void add_pictures(CLI::App& app, PictureOptions& picture, PictureOptions& timeline) {
    CLI::App* command = app.add_subcommand("picture", "Draw the objects");
    command->add_option("TRACE", picture.trace, "The trace")->required();
    command->add_option("-o,--output", picture.output, "Where to")->type_name("FILE");
    command->add_option("--format", picture.format, "svg, or dot for Graphviz")
        ->check(CLI::IsMember({"svg", "dot"}))
        ->type_name("FORMAT");
    command = app.add_subcommand("timeline", "Write a page for a browser: calls over time, by thread");
    command->add_option("TRACE", timeline.trace, "The trace")->required();
    command->add_option("-o,--output", timeline.output, "Where to")->type_name("FILE");
}

} // namespace

int run(int argument_count, const char* const* arguments, Streams streams) {
    CLI::App app{"Understand what a program asked of NVIDIA's kernel driver", "upcie_rm"};
    app.footer(after_the_help);
    app.set_version_flag("--version", std::string{"upcie_rm "} + cli::version);
    app.require_subcommand(1);
    DecodeOptions decode_options;
    ContractOptions contract_options;
    DiffOptions diff_options;
    ExplainOptions explain_options;
    ScrubCommandOptions scrub_options;
    PictureOptions picture_options;
    PictureOptions timeline_options;
    add_decode(app, decode_options);
    add_contract(app, contract_options);
    add_diff(app, diff_options);
    add_explain(app, explain_options);
    add_scrub(app, scrub_options);
    add_pictures(app, picture_options, timeline_options);
    try {
        app.parse(argument_count, arguments);
    } catch (const CLI::ParseError& problem) {
        const int status = app.exit(problem, streams.out, streams.errors);
        return status == 0 ? 0 : 2;
    }
    const std::string chosen = app.get_subcommands().front()->get_name();
    if (chosen == "decode") {
        return decode(decode_options, streams);
    }
    if (chosen == "contract") {
        return contract(contract_options, streams);
    }
    if (chosen == "diff") {
        return diff(diff_options, streams);
    }
    if (chosen == "explain") {
        return explain(explain_options, streams);
    }
    if (chosen == "scrub") {
        return scrub_command(scrub_options, streams);
    }
    return chosen == "picture" ? picture(picture_options, streams) : timeline(timeline_options, streams);
}

} // namespace upcie::rm::tool
