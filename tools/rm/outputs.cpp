// SPDX-License-Identifier: BSD-3-Clause
// The commands that write a file: scrub, picture, timeline.
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/picture.hpp>
#include <upcie/rm/scrub.hpp>

#include "commands.hpp"
#include "trace_writer.hpp"

namespace upcie::rm::tool {

namespace {

/// A trace is never replaced by what is made of it: it would be gone before that is known to be written.
Result<void> check_output(const std::string& trace, const std::string& output) {
    std::error_code ignored;
    if (output != "-" && std::filesystem::equivalent(trace == "-" ? "/dev/stdin" : trace, output, ignored)) {
        return fail(EINVAL, "write", output,
                    "it is the trace itself, which would be gone before its successor is known to be written: name "
                    "another file with -o");
    }
    return {};
}

int write(const std::string& path, const std::string& text, int status, Streams streams) {
    const auto written = write_all(path, text, streams.out);
    return written ? status : complain(written.error(), streams);
}

} // namespace

int scrub_command(const ScrubCommandOptions& options, Streams streams) {
    if (const auto checked = check_output(options.trace, options.output); !checked) {
        return complain(checked.error(), streams);
    }
    auto opened = open_trace(options.trace, Texts::as_they_are, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    Trace& trace = opened->loaded.trace;
    ScrubOptions scrubbing;
    scrubbing.keep_opaque = options.keep_opaque;
    scrubbing.also = options.also;
    const ScrubReport report = scrub(trace, scrubbing);
    std::string text;
    for (const TraceHeader& header : trace.headers) {
        append_line(text, header);
    }
    for (const Record& record : trace.records) {
        append_line(text, record);
    }
    if (const auto written = write_all(options.output, text, streams.out); !written) {
        return complain(written.error(), streams);
    }
    if (!streams.out) {
        return 1; // main() says why
    }
    streams.errors << fmt::format(
        "upcie_rm: scrub {}: {} pointers, {} identifiers, {} replies with serial numbers, {} replies of "
        "controls without a public description, {} texts replaced\n",
        options.trace, report.pointers, report.identifiers, report.serials, report.opaque, report.texts);
    return opened->status;
}

int picture(const PictureOptions& options, Streams streams) {
    if (const auto checked = check_output(options.trace, options.output); !checked) {
        return complain(checked.error(), streams);
    }
    const auto opened = open_trace(options.trace, Texts::as_they_are, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    const ObjectTree tree = ObjectTree::of(opened->loaded.trace);
    return write(options.output, options.format == "dot" ? tree_dot(tree) : tree_svg(tree), opened->status, streams);
}

int timeline(const PictureOptions& options, Streams streams) {
    if (const auto checked = check_output(options.trace, options.output); !checked) {
        return complain(checked.error(), streams);
    }
    const auto opened = open_trace(options.trace, Texts::as_they_are, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    return write(options.output, timeline_html(opened->loaded.trace, options.trace), opened->status, streams);
}

} // namespace upcie::rm::tool
