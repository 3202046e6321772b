// SPDX-License-Identifier: BSD-3-Clause
// The commands that write a file: scrub, picture, timeline.
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/picture.hpp>
#include <upcie/rm/scrub.hpp>

#include "commands.hpp"
#include "trace_writer.hpp"

namespace upcie::rm::tool {

namespace {

int write(const std::string& path, const std::string& text, int status, Streams streams) {
    const auto written = write_all(path, text, streams.out);
    return written ? status : complain(written.error(), streams);
}

} // namespace

int scrub_command(const ScrubCommandOptions& options, Streams streams) {
    auto opened = open_trace(options.trace, streams);
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
    streams.errors << fmt::format(
        "upcie_rm: scrub {}: {} pointers, {} identifiers, {} replies with serial numbers, {} replies of "
        "controls without a public description, {} texts replaced\n",
        options.trace, report.pointers, report.identifiers, report.serials, report.opaque, report.texts);
    return write(options.output, text, opened->status, streams);
}

int picture(const PictureOptions& options, Streams streams) {
    const auto opened = open_trace(options.trace, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    const ObjectTree tree = ObjectTree::of(opened->loaded.trace);
    return write(options.output, options.format == "dot" ? tree_dot(tree) : tree_svg(tree), opened->status, streams);
}

int timeline(const PictureOptions& options, Streams streams) {
    const auto opened = open_trace(options.trace, streams);
    if (!opened) {
        return complain(opened.error(), streams);
    }
    return write(options.output, timeline_html(opened->loaded.trace, options.trace), opened->status, streams);
}

} // namespace upcie::rm::tool
