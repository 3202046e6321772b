// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trace_fields.hpp"
#include "trace_writer.hpp"

namespace upcie::rm {

/// Reads the members of one object; the first that is not what it should be is remembered.
class ObjectArchive {
  public:
    using Json = nlohmann::json;

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
    static std::optional<unsigned> digit_value(char letter) {
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

} // namespace upcie::rm
