// SPDX-License-Identifier: BSD-3-Clause
#include "trace_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <upcie/rm/call.hpp>
#include <upcie/rm/driver_version.hpp>

#include "object_archive.hpp"
#include "repetitions.hpp"

namespace upcie::rm {

namespace {

using Json = nlohmann::json;

/// The alternative of Record::body whose type is called `type`; UnknownRecord when there is none.
template <std::size_t Index = 0>
decltype(Record::body) body_of_type(std::string_view type) {
    using Body = decltype(Record::body);
    if constexpr (Index + 1 < std::variant_size_v<Body>) {
        Record probe{{}, Body{std::in_place_index<Index>}};
        if (type_name(probe) == type) {
            return std::move(probe.body);
        }
        return body_of_type<Index + 1>(type);
    } else {
        return UnknownRecord{std::string{type}, {}};
    }
}

class Reader {
  public:
    void line(const std::string& text) {
        ++number_;
        if (text.find_first_not_of(" \t\r") == std::string::npos) {
            return;
        }
        const Json object = Json::parse(text, nullptr, false);
        if (!object.is_object()) {
            complain("it is no JSON object");
            return;
        }
        const auto type = object.find("type");
        if (type == object.end() || !type->is_string()) {
            complain("it has no \"type\"");
            return;
        }
        const auto& name = type->get_ref<const std::string&>();
        std::string problem;
        ObjectArchive archive{object, problem};
        if (name == "header") {
            header(object, archive, problem);
        } else {
            record(name, archive, problem, text);
        }
        if (!problem.empty()) {
            complain(problem);
        }
    }
    void cut_off() { trace_.problems.push_back({number_, "the file ends inside this line: its tracer was killed"}); }
    Trace finish() {
        repetitions_.tell(trace_.problems);
        check_numbering();
        if (trace_.headers.size() > 1) {
            merge();
        }
        check_drivers();
        return std::move(trace_);
    }

  private:
    void complain(std::string_view what) { trace_.problems.push_back({number_, fmt::format("left out: {}", what)}); }
    void header(const Json& object, ObjectArchive& archive, std::string& problem) {
        const auto format = object.find("format");
        if (format == object.end() || !format->is_string() || *format != trace_format_name) {
            problem = fmt::format("\"format\" is not \"{}\"", trace_format_name);
            return;
        }
        TraceHeader header;
        describe(archive, header);
        if (!problem.empty()) {
            return;
        }
        if (header.version < 1 || header.version > trace_format_version) {
            problem =
                fmt::format("format version {}: this program reads 1 to {}", header.version, trace_format_version);
            return;
        }
        if (!repetitions_.header_is_new(header.run, number_)) {
            return;
        }
        if (!header.driver.empty() && !parse_driver_version(header.driver)) {
            misnamed_drivers_.emplace_back(number_, header.driver);
        }
        trace_.headers.push_back(std::move(header));
    }
    void record(const std::string& name, ObjectArchive& archive, std::string& problem, const std::string& text) {
        Record record;
        describe(archive, record.stamp);
        record.body = body_of_type(name);
        std::visit(
            [&](auto& body) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(body)>, UnknownRecord>) {
                    body.text = text;
                } else {
                    describe(archive, body);
                }
            },
            record.body);
        if (problem.empty() && repetitions_.record_is_new(record.stamp, number_)) {
            lines_.push_back(number_);
            trace_.records.push_back(std::move(record));
        }
    }
    /// What a header gives for the driver's version and is none is not passed over: sizes depend on it.
    void check_drivers() {
        if (misnamed_drivers_.empty()) {
            return;
        }
        const DriverVersion used = driver_version(trace_);
        for (const auto& [line, driver] : misnamed_drivers_) {
            trace_.problems.push_back(
                {line, fmt::format("\"driver\" is \"{}\", no version like 580.159.04; instead {}", driver,
                                   used.known() ? used.text() + " is used, which the rest of the trace tells"
                                                : std::string{"it counts as unknown"})});
        }
    }
    /// Each run counts 1, 2, 3 ...: a number that is missing is a call that was lost.
    void check_numbering() {
        std::map<std::uint64_t, std::uint64_t> last;
        for (const auto& header : trace_.headers) {
            last[header.run] = 0;
        }
        bool orphans = false;
        for (std::size_t i = 0; i < trace_.records.size(); ++i) {
            const Stamp& stamp = trace_.records[i].stamp;
            const auto known = last.find(stamp.run);
            if (known == last.end()) {
                if (!std::exchange(orphans, true)) {
                    trace_.problems.push_back({lines_[i], fmt::format("no header tells of run {}", stamp.run)});
                }
                last[stamp.run] = stamp.sequence;
                continue;
            }
            if (stamp.sequence != known->second + 1) {
                trace_.problems.push_back(
                    {lines_[i],
                     fmt::format("number {} follows on {}: {}", stamp.sequence, known->second,
                                 stamp.sequence > known->second ? "records are missing" : "records are out of order")});
            }
            known->second = stamp.sequence;
        }
    }
    /// Several runs: by time of return, and never against the numbering of a run.
    void merge() {
        std::map<std::uint64_t, std::uint64_t> latest;
        std::vector<std::pair<std::uint64_t, std::size_t>> order;
        for (std::size_t i = 0; i < trace_.records.size(); ++i) {
            const Stamp& stamp = trace_.records[i].stamp;
            auto& time = latest[stamp.run];
            time = std::max(time, stamp.time_out);
            order.emplace_back(time, i);
        }
        std::ranges::stable_sort(order, {}, &std::pair<std::uint64_t, std::size_t>::first);
        std::vector<Record> sorted;
        sorted.reserve(order.size());
        for (const auto& [time, i] : order) {
            sorted.push_back(std::move(trace_.records[i]));
        }
        trace_.records = std::move(sorted);
    }

    Trace trace_;
    Repetitions repetitions_;
    std::vector<std::pair<std::uint64_t, std::string>> misnamed_drivers_; ///< with the line
    std::vector<std::uint64_t> lines_;                                    ///< of each record
    std::uint64_t number_ = 0;
};

} // namespace

Trace parse_trace(std::istream& lines) {
    Reader reader;
    std::string text;
    while (std::getline(lines, text)) {
        const bool whole = !lines.eof(); // a newline ended it
        reader.line(text);
        if (!whole) {
            reader.cut_off();
        }
    }
    return reader.finish();
}

Trace parse_trace(std::string_view text) {
    std::istringstream lines{std::string{text}};
    return parse_trace(lines);
}

Result<Trace> read_trace(const std::string& path) {
    std::ifstream file;
    if (path != "-") {
        errno = 0;
        file.open(path, std::ios::binary);
        if (!file) {
            return fail(errno != 0 ? errno : EIO, "open", path, "Give the file that upcie_rm_trace wrote with -o.");
        }
        if (file.peek() == 0xfd) {
            return fail(EINVAL, "read", path, fmt::format("It is compressed: `xz -dc {} | upcie_rm ... -`.", path));
        }
    }
    Trace trace = parse_trace(path == "-" ? std::cin : file);
    if (trace.headers.empty()) {
        return fail(EINVAL, "read", path,
                    trace.problems.empty()
                        ? "It is empty: no trace of upcie_rm_trace."
                        : fmt::format("It holds no header of a trace that this program reads; line {}: {}.",
                                      trace.problems.front().line, trace.problems.front().text));
    }
    return trace;
}

} // namespace upcie::rm
