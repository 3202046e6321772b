// SPDX-License-Identifier: BSD-3-Clause
#include "trace_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
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

#include "repetitions.hpp"
#include "trace_fields.hpp"
#include "trace_writer.hpp"

namespace upcie::rm {

namespace {

using Json = nlohmann::json;

std::optional<unsigned> digit_value(char letter) {
    if (letter >= '0' && letter <= '9') {
        return static_cast<unsigned>(letter - '0');
    }
    if (letter >= 'a' && letter <= 'f') {
        return static_cast<unsigned>(letter - 'a') + 10U;
    }
    if (letter >= 'A' && letter <= 'F') {
        return static_cast<unsigned>(letter - 'A') + 10U;
    }
    return std::nullopt;
}

/// Reads the members of one object; the first that is not what it should be is remembered.
class ObjectArchive {
  public:
    ObjectArchive(const Json& object, std::string& problem) : object_{object}, problem_{problem} {}

    template <class T>
    void number(std::string_view name, T& value, T absent) {
        value = absent;
        if (const Json* member = find(name)) {
            read_number(name, *member, value);
        }
    }
    template <class T>
    void hexadecimal(std::string_view name, T& value) {
        value = 0;
        if (const Json* member = find(name)) {
            std::uint64_t wide = 0;
            const auto* text = member->get_ptr<const std::string*>();
            if (text == nullptr || !text->starts_with("0x") || !spelled(std::string_view{*text}.substr(2), wide) ||
                !std::in_range<T>(wide)) {
                complain(name, "is no hexadecimal number that fits");
                return;
            }
            value = static_cast<T>(wide);
        }
    }
    void truth(std::string_view name, bool& value, bool absent = false) {
        value = absent;
        if (const Json* member = find(name)) {
            if (!member->is_boolean()) {
                complain(name, "is neither true nor false");
                return;
            }
            value = member->get<bool>();
        }
    }
    void text(std::string_view name, std::string& value) {
        value.clear();
        if (const Json* member = find(name)) {
            read_text(name, *member, value);
        }
    }
    void texts(std::string_view name, std::vector<std::string>& values) {
        each(name, [&](const Json& one) { read_text(name, one, values.emplace_back()); });
    }
    void node(NodeName& value) {
        text("node", value.path);
        if (value.path.empty()) {
            return;
        }
        std::string kind;
        text("kind", kind);
        constexpr std::array kinds{Node::control, Node::gpu,          Node::uvm,  Node::uvm_tools,
                                   Node::modeset, Node::capabilities, Node::other};
        const auto found = std::ranges::find(kinds, kind, kind_name);
        if (found != kinds.end()) {
            value.kind = *found;
        } else {
            complain("kind", "is none that there is");
        }
    }
    void optional_node(bool& is_node, NodeName& value) {
        node(value);
        is_node = !value.path.empty();
    }
    void outcome(Outcome& value) {
        ended(value);
        number("result", value.value, std::int64_t{0});
        number("error", value.error, 0);
    }
    void address_outcome(Outcome& value) {
        ended(value);
        const Json* result = find("result");
        if (result != nullptr && result->is_string()) {
            std::uint64_t address = 0;
            hexadecimal("result", address);
            value.value = static_cast<std::int64_t>(address);
        } else {
            number("result", value.value, std::int64_t{0});
        }
        number("error", value.error, 0);
    }
    void capture(std::string_view name, Capture& value) {
        if (const Json* member = find(name)) {
            read_bytes(name, *member, value.bytes);
        }
        number(std::string{name} + "_error", value.error, 0);
    }
    void block(std::string_view name, Block& value, const Outcome& outcome) {
        if (const Json* member = find(name)) {
            read_block(name, *member, value, outcome);
        }
    }
    void blocks(std::string_view name, std::vector<Block>& values, const Outcome& outcome) {
        each(name, [&](const Json& one) { read_block(name, one, values.emplace_back(), outcome); });
    }
    template <class T>
    void list(std::string_view name, std::vector<T>& values) {
        each(name, [&](const Json& one) {
            if (!one.is_object()) {
                complain(name, "holds something else than objects");
                return;
            }
            ObjectArchive inner{one, problem_};
            describe(inner, values.emplace_back());
        });
    }
    void counts(std::string_view name, std::vector<SummaryRecord::Count>& values) {
        const Json* member = find(name);
        if (member == nullptr) {
            return;
        }
        if (!member->is_object()) {
            complain(name, "is no object");
            return;
        }
        for (const auto& [kind, count] : member->items()) {
            auto& one = values.emplace_back();
            one.kind = kind;
            read_number(name, count, one.stops);
        }
    }

  private:
    const Json* find(std::string_view name) const {
        const auto found = object_.find(name);
        return found != object_.end() ? &*found : nullptr;
    }
    void complain(std::string_view name, std::string_view what) {
        if (problem_.empty()) {
            problem_ = fmt::format("\"{}\" {}", name, what);
        }
    }
    template <class Each>
    void each(std::string_view name, Each&& each_one) {
        const Json* member = find(name);
        if (member == nullptr) {
            return;
        }
        if (!member->is_array()) {
            complain(name, "is no list");
            return;
        }
        for (const Json& one : *member) {
            each_one(one);
        }
    }
    template <class T>
    void read_number(std::string_view name, const Json& member, T& value) {
        // The library keeps what fits 64 bits unsigned apart from what is negative.
        const bool fits = member.is_number_unsigned()  ? std::in_range<T>(member.get<std::uint64_t>())
                          : member.is_number_integer() ? std::in_range<T>(member.get<std::int64_t>())
                                                       : false;
        if (!fits) {
            complain(name, "is no whole number that fits");
            return;
        }
        value = member.get<T>();
    }
    static bool spelled(std::string_view digits, std::uint64_t& value) {
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
        return error == std::errc{} && end == digits.data() + digits.size() && !digits.empty();
    }
    void read_text(std::string_view name, const Json& member, std::string& value) {
        if (const auto* text = member.get_ptr<const std::string*>()) {
            value = *text;
        } else {
            complain(name, "is no text");
        }
    }
    void read_bytes(std::string_view name, const Json& member, std::vector<std::byte>& bytes) {
        const auto* text = member.get_ptr<const std::string*>();
        if (text == nullptr || text->size() % 2 != 0) {
            complain(name, "is no text of whole bytes in hexadecimal");
            return;
        }
        bytes.resize(text->size() / 2);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const auto high = digit_value((*text)[2 * i]);
            const auto low = digit_value((*text)[2 * i + 1]);
            if (!high || !low) {
                complain(name, "has something else than hexadecimal digits");
                bytes.clear();
                return;
            }
            bytes[i] = static_cast<std::byte>(*high << 4U | *low);
        }
    }
    void ended(Outcome& value) {
        std::string how;
        text("ended", how);
        if (how == "interrupted") {
            value.kind = Outcome::Kind::interrupted;
        } else if (how == "unfinished") {
            value.kind = Outcome::Kind::unfinished;
        } else if (!how.empty()) {
            complain("ended", "is neither \"interrupted\" nor \"unfinished\"");
        }
    }
    void read_block(std::string_view name, const Json& member, Block& value, const Outcome& outcome) {
        if (!member.is_object()) {
            complain(name, "holds something else than a block");
            return;
        }
        ObjectArchive inner{member, problem_};
        describe_block(inner, value);
        inner.capture("before", value.before);
        const Json* after = inner.find("after");
        if ((after != nullptr && after->is_null()) || outcome.kind == Outcome::Kind::unfinished) {
            return;
        }
        if (after == nullptr && inner.find("after_error") == nullptr) {
            value.after = value.before;
            return;
        }
        inner.capture("after", value.after);
    }

    const Json& object_;
    std::string& problem_;
};

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
