// SPDX-License-Identifier: BSD-3-Clause
#include "printable.hpp"

#include <type_traits>

#include <fmt/format.h>

#include "trace_fields.hpp"
#include "utf8.hpp"

namespace upcie::rm {

namespace {

char32_t code_point(std::string_view sequence) {
    const auto first = static_cast<unsigned char>(sequence[0]);
    char32_t code = sequence.size() == 1   ? first
                    : sequence.size() == 2 ? first & 0x1fU
                    : sequence.size() == 3 ? first & 0x0fU
                                           : first & 0x07U;
    for (const char next : sequence.substr(1)) {
        code = code << 6U | (static_cast<unsigned char>(next) & 0x3fU);
    }
    return code;
}

/// Controls of the C1 set, and what embeds, overrides or isolates a direction of writing (Unicode's annex 9).
bool acts_on_a_terminal(char32_t code) {
    return (code >= 0x80 && code <= 0x9f) || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/// Goes over the members of a record and makes each text printable.
class PrintableArchive {
  public:
    template <class T>
    void number(std::string_view, T&, T) {}
    template <class T>
    void hexadecimal(std::string_view, T&) {}
    void truth(std::string_view, bool&, bool = false) {}
    void text(std::string_view, std::string& value) { value = printable(value); }
    void texts(std::string_view, std::vector<std::string>& values) {
        for (std::string& one : values) {
            one = printable(one);
        }
    }
    void node(NodeName& value) { value.path = printable(value.path); }
    void optional_node(bool&, NodeName& value) { node(value); }
    void outcome(Outcome&) {}
    void address_outcome(Outcome&) {}
    void capture(std::string_view, Capture&) {}
    void block(std::string_view, Block& value, const Outcome&) { describe_block(*this, value); }
    void blocks(std::string_view, std::vector<Block>& values, const Outcome&) {
        for (Block& one : values) {
            describe_block(*this, one);
        }
    }
    template <class T>
    void list(std::string_view, std::vector<T>& values) {
        for (T& one : values) {
            describe(*this, one);
        }
    }
    void counts(std::string_view, std::vector<SummaryRecord::Count>& values) {
        for (auto& one : values) {
            one.kind = printable(one.kind);
        }
    }
};

} // namespace

std::string printable(std::string_view text) {
    std::string shown;
    shown.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = utf8_sequence(text.substr(at));
        const std::string_view sequence = text.substr(at, bytes != 0 ? bytes : 1);
        const auto byte = static_cast<unsigned char>(sequence[0]);
        if (byte == '\n') {
            shown += "\\n";
        } else if (byte == '\t') {
            shown += "\\t";
        } else if (bytes == 0 || byte < 0x20 || byte == 0x7f) {
            shown += fmt::format("\\x{:02x}", byte);
        } else if (const char32_t code = code_point(sequence); acts_on_a_terminal(code)) {
            shown += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(code));
        } else {
            shown += sequence;
        }
        at += sequence.size();
    }
    return shown;
}

void make_printable(Trace& trace) {
    PrintableArchive archive;
    for (TraceHeader& header : trace.headers) {
        describe(archive, header);
    }
    for (Record& record : trace.records) {
        std::visit(
            [&](auto& body) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(body)>, UnknownRecord>) {
                    body.type = printable(body.type);
                    body.text = printable(body.text);
                } else {
                    describe(archive, body);
                }
            },
            record.body);
    }
    for (TraceProblem& problem : trace.problems) {
        problem.text = printable(problem.text);
    }
}

} // namespace upcie::rm
