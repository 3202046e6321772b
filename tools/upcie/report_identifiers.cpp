// SPDX-License-Identifier: BSD-3-Clause
#include "report_identifiers.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace upcie::cli {

namespace {

constexpr const char* left_out = "(left out)";

/// Members of which nothing may be shown, by the last word of their name: "gpu_uuid", "serial".
constexpr std::array<std::string_view, 10> telling_words{"serial",   "serialnumber", "uuid", "nguid", "eui64",
                                                         "hostname", "nodename",     "mac",  "wwn",   "wwid"};

/// Members whose text is a word of a schema: a host that is called "primary" has no say in them.
constexpr std::array<std::string_view, 8> schema_members{"name",    "probe",   "unit",     "topic",
                                                         "process", "outcome", "measured", "tool_version"};

bool is_telling(std::string_view member) {
    const auto cut = member.find_last_of("_.-");
    const std::string_view last = cut == std::string_view::npos ? member : member.substr(cut + 1);
    return std::find(telling_words.begin(), telling_words.end(), last) != telling_words.end();
}

bool is_hexadecimal(char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

bool is_part_of_a_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Whether `text` has, from `at` on, groups of so many hexadecimal digits with `between` between them, and no more.
bool has_groups(std::string_view text, std::size_t at, const std::vector<std::size_t>& groups, char between) {
    if (at > 0 && (is_part_of_a_word(text[at - 1]) || text[at - 1] == ':')) {
        return false;
    }
    for (std::size_t group = 0; group < groups.size(); ++group) {
        if (group > 0 && (at >= text.size() || text[at++] != between)) {
            return false;
        }
        for (std::size_t digit = 0; digit < groups[group]; ++digit) {
            if (at >= text.size() || !is_hexadecimal(text[at++])) {
                return false;
            }
        }
    }
    return at == text.size() || !(is_part_of_a_word(text[at]) || text[at] == between);
}

/// Length of what has to go from `at` on; 0 when there is nothing.
std::size_t telling_length(std::string_view text, std::size_t at, std::string_view host_name) {
    static const std::vector<std::size_t> uuid{8, 4, 4, 4, 12};
    static const std::vector<std::size_t> mac{2, 2, 2, 2, 2, 2};
    if (has_groups(text, at, uuid, '-')) {
        return 36;
    }
    if (has_groups(text, at, mac, ':')) {
        return 17;
    }
    const auto end = at + host_name.size();
    const bool whole = (at == 0 || !is_part_of_a_word(text[at - 1])) &&
                       text.substr(at, host_name.size()) == host_name &&
                       (end >= text.size() || !is_part_of_a_word(text[end]));
    return !host_name.empty() && whole ? host_name.size() : 0;
}

} // namespace

std::string without_identifiers(const std::string& text, const std::string& host_name) {
    // What every machine may be called tells nothing.
    const std::string name = host_name == "localhost" || host_name == "(none)" ? std::string{} : host_name;
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
        if (const std::size_t length = telling_length(text, at, name); length != 0) {
            shown += left_out;
            at += length;
        } else {
            shown += text[at++];
        }
    }
    return shown;
}

void leave_out_identifiers(Json& document, const std::string& host_name) {
    if (document.is_string()) {
        document = without_identifiers(document.get<std::string>(), host_name);
        return;
    }
    if (document.is_array()) {
        for (Json& one : document) {
            leave_out_identifiers(one, host_name);
        }
        return;
    }
    if (!document.is_object()) {
        return;
    }
    // An observation may be of such a thing: then its value has to go.
    const Json* const name = document.contains("name") && document["name"].is_string() ? &document["name"] : nullptr;
    const bool telling_value = name != nullptr && document.contains("value") && is_telling(name->get<std::string>());
    for (const auto& [member, value] : document.items()) {
        if ((is_telling(member) || (telling_value && member == "value")) && !value.is_null() &&
            !value.is_structured()) {
            value = left_out;
        } else if (std::find(schema_members.begin(), schema_members.end(), member) == schema_members.end() ||
                   value.is_structured()) {
            leave_out_identifiers(value, host_name);
        }
    }
}

} // namespace upcie::cli
