// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/contract.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

std::string_view next_word(std::string_view& line) {
    const auto begin = std::min(line.find_first_not_of(" \t\r"), line.size());
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(" \t\r"), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end);
    return word;
}

std::optional<Ask::Kind> kind_of(std::string_view word) {
    if (word == "escape") {
        return Ask::Kind::escape;
    }
    if (word == "control") {
        return Ask::Kind::control;
    }
    if (word == "class") {
        return Ask::Kind::allocation;
    }
    return word == "uvm" ? std::optional{Ask::Kind::uvm} : std::nullopt;
}

std::optional<std::uint64_t> read_number(std::string_view word) {
    const bool hexadecimal = word.starts_with("0x") || word.starts_with("0X");
    const std::string_view digits = hexadecimal ? word.substr(2) : word;
    std::uint64_t number = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number, hexadecimal ? 16 : 10);
    if (digits.empty() || end != digits.data() + digits.size() || error == std::errc::invalid_argument) {
        return std::nullopt;
    }
    // Too many digits are a number all the same, and out of every range.
    return error == std::errc{} ? number : std::numeric_limits<std::uint64_t>::max();
}

/// The largest number that there can be: an escape is the request's lowest byte, all others are 32 bits.
std::uint64_t largest(Ask::Kind kind) {
    return kind == Ask::Kind::escape ? 0xff : 0xffffffff;
}

std::string_view without(std::string_view word, std::string_view prefix) {
    return word.starts_with(prefix) ? word.substr(prefix.size()) : word;
}

template <class Row, class Number>
std::vector<std::uint64_t> numbers_of(std::span<const Row> table, Number Row::*number, std::string_view name) {
    std::vector<std::uint64_t> found;
    for (const Row& row : table) {
        if (row.name == name) {
            found.push_back(row.*number);
        }
    }
    return found;
}

/// All numbers of this name: a control may have kept its name and changed its number.
std::vector<std::uint64_t> numbers_of_name(Ask::Kind kind, std::string_view name) {
    switch (kind) {
    case Ask::Kind::escape:
        return numbers_of(escapes(), &Escape::number, without(name, "NV_ESC_"));
    case Ask::Kind::control:
        return numbers_of(controls(), &Control::command, name);
    case Ask::Kind::allocation:
        return numbers_of(classes(), &Class::id, name);
    case Ask::Kind::uvm:
        return numbers_of(uvm_commands(), &UvmCommand::number, without(name, "UVM_"));
    case Ask::Kind::other:
        break;
    }
    return {};
}

} // namespace

bool AllowList::allows(const Ask& ask) const noexcept {
    return std::ranges::any_of(rules, [&](const Rule& rule) {
        if (rule.kind != ask.kind) {
            return false;
        }
        if (rule.legacy) {
            return is_legacy_control(static_cast<std::uint32_t>(ask.number));
        }
        return rule.any || rule.number == ask.number;
    });
}

Result<AllowList> read_allow_list(std::string_view text, std::string_view subject) {
    AllowList list;
    unsigned number = 0;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        line = line.substr(0, std::min(line.find('#'), line.size()));
        const std::string_view word = next_word(line);
        if (word.empty()) {
            continue;
        }
        const auto bad = [&](std::string hint) {
            return fail(EINVAL, "read an allow-list", fmt::format("{}, line {}", subject, number), std::move(hint));
        };
        const auto kind = kind_of(word);
        if (!kind) {
            return bad(fmt::format("\"{}\": a line begins with escape, control, class or uvm", word));
        }
        const std::string_view what = next_word(line);
        if (what.empty() || !next_word(line).empty()) {
            return bad("a line is one of the four words and one number, name or *");
        }
        if (what == "*") {
            list.rules.push_back({*kind, true, 0, false});
        } else if (what == "legacy" && kind == Ask::Kind::control) {
            list.rules.push_back({*kind, false, 0, true});
        } else if (const auto value = read_number(what)) {
            if (*value > largest(*kind)) {
                return bad(
                    fmt::format("\"{}\" matches nothing: {} numbers go from 0 to 0x{:x}", what, word, largest(*kind)));
            }
            list.rules.push_back({*kind, false, *value, false});
        } else {
            const auto found = numbers_of_name(*kind, what);
            if (found.empty()) {
                return bad(
                    fmt::format("\"{}\" is the name of no {} in the public headers; give its number", what, word));
            }
            for (const std::uint64_t named : found) {
                list.rules.push_back({*kind, false, named, false});
            }
        }
    }
    return list;
}

} // namespace upcie::rm
