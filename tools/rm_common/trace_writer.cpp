// SPDX-License-Identifier: BSD-3-Clause
#include "trace_writer.hpp"

#include <array>
#include <charconv>

#include "trace_fields.hpp"
#include "utf8.hpp"

namespace upcie::rm {

namespace {

constexpr std::string_view hexadecimal_digits = "0123456789abcdef";

/// Writes the members of one object. Written by hand, since it runs once a traced call and a JSON value would cost more
/// than the stop itself.
class LineArchive {
  public:
    explicit LineArchive(std::string& text) : text_{text} { text_ += '{'; }
    void end() { text_ += '}'; }

    template <class T>
    void number(std::string_view name, T value, T absent) {
        if (value != absent) {
            key(name);
            digits(value);
        }
    }
    void hexadecimal(std::string_view name, std::uint64_t value) {
        if (value != 0) {
            key(name);
            text_ += '"';
            plain_hexadecimal(value);
            text_ += '"';
        }
    }
    void truth(std::string_view name, bool value, bool absent = false) {
        if (value != absent) {
            key(name);
            text_ += value ? "true" : "false";
        }
    }
    void text(std::string_view name, std::string_view value) {
        if (!value.empty()) {
            key(name);
            append_json_text(text_, value);
        }
    }
    void texts(std::string_view name, const std::vector<std::string>& values) {
        if (values.empty()) {
            return;
        }
        key(name);
        char before = '[';
        for (const std::string& one : values) {
            text_ += before;
            append_json_text(text_, one);
            before = ',';
        }
        text_ += ']';
    }
    void node(const NodeName& name) {
        if (!name.path.empty()) {
            text("node", name.path);
            key("kind");
            text_ += '"';
            text_ += kind_name(name.kind);
            text_ += '"';
        }
    }
    void optional_node(bool is_node, const NodeName& name) {
        if (is_node) {
            node(name);
        }
    }
    void outcome(const Outcome& value) {
        ended(value);
        number("result", value.value, std::int64_t{0});
        number("error", value.error, 0);
    }
    void address_outcome(const Outcome& value) {
        ended(value);
        if (value.error == 0) {
            hexadecimal("result", static_cast<std::uint64_t>(value.value));
        } else {
            number("result", value.value, std::int64_t{0});
        }
        number("error", value.error, 0);
    }
    void capture(std::string_view name, const Capture& value) {
        key(name);
        bytes(value.bytes);
        if (value.error != 0) {
            key(name, "_error");
            digits(value.error);
        }
    }
    void block(std::string_view name, const Block& value, const Outcome& outcome) {
        key(name);
        block_body(value, outcome);
    }
    void blocks(std::string_view name, const std::vector<Block>& values, const Outcome& outcome) {
        if (values.empty()) {
            return;
        }
        key(name);
        char before = '[';
        for (const Block& one : values) {
            text_ += before;
            block_body(one, outcome);
            before = ',';
        }
        text_ += ']';
    }
    template <class T>
    void list(std::string_view name, const std::vector<T>& values) {
        if (values.empty()) {
            return;
        }
        key(name);
        char before = '[';
        for (const T& one : values) {
            text_ += before;
            LineArchive inner{text_};
            describe(inner, one);
            inner.end();
            before = ',';
        }
        text_ += ']';
    }
    void counts(std::string_view name, const std::vector<SummaryRecord::Count>& values) {
        key(name);
        LineArchive inner{text_};
        for (const auto& one : values) {
            inner.text_key(one.kind);
            inner.digits(one.stops);
        }
        inner.end();
    }

  private:
    void separate() {
        if (!first_) {
            text_ += ',';
        }
        first_ = false;
    }
    void key(std::string_view name, std::string_view suffix = {}) {
        separate();
        text_ += '"';
        text_ += name;
        text_ += suffix;
        text_ += "\":";
    }
    void text_key(std::string_view name) {
        separate();
        append_json_text(text_, name);
        text_ += ':';
    }
    template <class T>
    void digits(T value) {
        std::array<char, 24> spelled{};
        const auto end = std::to_chars(spelled.data(), spelled.data() + spelled.size(), value).ptr;
        text_.append(spelled.data(), end);
    }
    void plain_hexadecimal(std::uint64_t value) {
        std::array<char, 24> spelled{};
        const auto end = std::to_chars(spelled.data(), spelled.data() + spelled.size(), value, 16).ptr;
        text_ += "0x";
        text_.append(spelled.data(), end);
    }
    void bytes(const std::vector<std::byte>& values) {
        text_ += '"';
        const std::size_t start = text_.size();
        text_.resize(start + 2 * values.size());
        char* to = text_.data() + start;
        for (const std::byte one : values) {
            const auto value = std::to_integer<unsigned>(one);
            *to++ = hexadecimal_digits[value >> 4];
            *to++ = hexadecimal_digits[value & 15];
        }
        text_ += '"';
    }
    void ended(const Outcome& value) {
        if (value.kind == Outcome::Kind::interrupted) {
            text("ended", "interrupted");
        } else if (value.kind == Outcome::Kind::unfinished) {
            text("ended", "unfinished");
        }
    }
    void block_body(const Block& value, const Outcome& outcome) {
        LineArchive inner{text_};
        describe_block(inner, value);
        inner.capture("before", value.before);
        if (outcome.kind == Outcome::Kind::unfinished) {
            inner.key("after");
            text_ += "null";
        } else if (!(value.after == value.before)) {
            inner.capture("after", value.after);
        }
        inner.end();
    }

    std::string& text_;
    bool first_ = true;
};

} // namespace

std::string_view kind_name(Node kind) noexcept {
    switch (kind) {
    case Node::control:
        return "control";
    case Node::gpu:
        return "gpu";
    case Node::uvm:
        return "uvm";
    case Node::uvm_tools:
        return "uvm_tools";
    case Node::modeset:
        return "modeset";
    case Node::capabilities:
        return "capabilities";
    case Node::other:
        break;
    }
    return "other";
}

void append_json_text(std::string& json, std::string_view text) {
    json += '"';
    for (std::size_t at = 0; at < text.size();) {
        const auto letter = static_cast<unsigned char>(text[at]);
        if (letter >= 0x80) {
            const std::size_t bytes = utf8_sequence(text.substr(at));
            json += bytes != 0 ? text.substr(at, bytes) : std::string_view{"\xef\xbf\xbd"};
            at += bytes != 0 ? bytes : 1;
            continue;
        }
        if (letter == '"' || letter == '\\') {
            json += '\\';
            json += text[at];
        } else if (letter < 0x20 || letter == 0x7f) {
            json += "\\u00";
            json += hexadecimal_digits[letter >> 4U];
            json += hexadecimal_digits[letter & 15U];
        } else {
            json += text[at];
        }
        ++at;
    }
    json += '"';
}

void append_line(std::string& text, const TraceHeader& header) {
    LineArchive archive{text};
    archive.text("type", "header");
    archive.text("format", trace_format_name);
    describe(archive, header);
    archive.end();
    text += '\n';
}

void append_line(std::string& text, const Record& record) {
    if (const auto* unknown = std::get_if<UnknownRecord>(&record.body)) {
        text += unknown->text;
        text += '\n';
        return;
    }
    LineArchive archive{text};
    archive.text("type", type_name(record));
    describe(archive, record.stamp);
    std::visit(
        [&](const auto& body) {
            if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(body)>, UnknownRecord>) {
                describe(archive, body);
            }
        },
        record.body);
    archive.end();
    text += '\n';
}

} // namespace upcie::rm
