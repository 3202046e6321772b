// SPDX-License-Identifier: BSD-3-Clause
#include <rm/identifier_scrub.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <rm/little_endian.hpp>
#include <upcie/rm/uvm.hpp>

namespace upcie::rm {

namespace {

using Identifier = IdentifierScrub::Identifier;

// Where in the text of an identifier the dashes stand.
constexpr std::size_t text_length = 36;
constexpr bool is_dash(std::size_t at) {
    return at == 8 || at == 13 || at == 18 || at == 23;
}
constexpr std::string_view prefixes[] = {"GPU-", "MIG-"};

std::optional<unsigned> hexadecimal(unsigned char letter) {
    if (letter >= '0' && letter <= '9') {
        return letter - unsigned{'0'};
    }
    if (letter >= 'a' && letter <= 'f') {
        return letter - unsigned{'a'} + 10;
    }
    return letter >= 'A' && letter <= 'F' ? std::optional{letter - unsigned{'A'} + 10} : std::nullopt;
}

/// The identifier that a text of 36 letters spells.
std::optional<Identifier> spelled(std::span<const std::byte> text) {
    if (text.size() < text_length) {
        return std::nullopt;
    }
    Identifier identifier{};
    std::size_t digits = 0;
    for (std::size_t at = 0; at < text_length; ++at) {
        const auto letter = std::to_integer<unsigned char>(text[at]);
        if (is_dash(at)) {
            if (letter != '-') {
                return std::nullopt;
            }
            continue;
        }
        const auto value = hexadecimal(letter);
        if (!value) {
            return std::nullopt;
        }
        identifier[digits / 2] |= static_cast<std::byte>(digits % 2 == 0 ? *value << 4 : *value);
        ++digits;
    }
    return identifier;
}

void spell(const Identifier& identifier, std::span<std::byte> text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::size_t digit = 0;
    for (std::size_t at = 0; at < text_length; ++at) {
        if (is_dash(at)) {
            continue;
        }
        const auto value = std::to_integer<unsigned>(identifier[digit / 2]);
        text[at] = static_cast<std::byte>(digits[digit % 2 == 0 ? value >> 4 : value & 0xf]);
        ++digit;
    }
}

/// Calls `found` with each place where an identifier's text begins, behind its prefix.
template <class Function>
void for_each_text_identifier(std::span<const std::byte> bytes, const Function& found) {
    for (std::size_t at = 0; at + 4 + text_length <= bytes.size(); ++at) {
        const auto is = [&](std::string_view prefix) {
            return std::ranges::equal(bytes.subspan(at, prefix.size()), prefix, {}, {},
                                      [](char c) { return static_cast<std::byte>(c); });
        };
        if (std::ranges::any_of(prefixes, is)) {
            found(at + 4);
        }
    }
}

/// The first bytes of these UVM arguments are a GPU's identifier.
bool begins_with_identifier(std::uint32_t uvm_command) {
    constexpr std::array<std::uint32_t, 8> commands{uvm_register_gpu_vaspace, 26, uvm_register_channel, 28, 29, 30,
                                                    uvm_register_gpu,         38};
    return std::ranges::find(commands, uvm_command) != commands.end();
}

std::optional<Identifier> identifier_at(std::span<const std::byte> bytes, std::size_t offset) {
    Identifier identifier{};
    if (offset > bytes.size() || bytes.size() - offset < identifier.size()) {
        return std::nullopt;
    }
    std::ranges::copy(bytes.subspan(offset, identifier.size()), identifier.begin());
    return identifier;
}

} // namespace

IdentifierScrub::Identifier IdentifierScrub::placeholder(std::size_t number) {
    // "upcie" and a number: recognisable, and of the same length.
    Identifier identifier{std::byte{'u'}, std::byte{'p'}, std::byte{'c'}, std::byte{'i'}, std::byte{'e'}};
    identifier[14] = static_cast<std::byte>((number + 1) >> 8 & 0xff);
    identifier[15] = static_cast<std::byte>((number + 1) & 0xff);
    return identifier;
}

void IdentifierScrub::add(const Identifier& identifier) {
    // A field that nobody filled is no identifier: it would be found everywhere.
    const auto zeros = std::ranges::count(identifier, std::byte{0});
    constexpr std::ptrdiff_t most_zeros = 10; // as many as a placeholder has
    if (zeros <= most_zeros) {
        numbers_.emplace(identifier, numbers_.size());
    }
}

void IdentifierScrub::see_text(const std::vector<std::byte>& bytes) {
    for_each_text_identifier(bytes, [&](std::size_t at) {
        if (const auto identifier = spelled(std::span{bytes}.subspan(at))) {
            add(*identifier);
        }
    });
}

void IdentifierScrub::see(const Call& call) {
    const auto take = [&](std::span<const std::byte> bytes, std::size_t offset) {
        if (const auto identifier = identifier_at(bytes, offset)) {
            add(*identifier);
        }
    };
    if (call.what.type == BlockKind::Type::uvm && begins_with_identifier(call.what.number)) {
        take(call.argument_before, 0);
        take(call.argument_after, 0);
    }
    constexpr std::uint32_t get_gid_info = 0x2080014a;
    constexpr std::uint32_t get_uuid_from_gpu_id = 0x275;
    constexpr std::uint32_t get_uuid_info = 0x274;
    constexpr std::uint32_t format_binary = 2;
    if (call.control == get_gid_info && (load_u32(call.parameters_before, 4).value_or(0) & 3) == format_binary) {
        take(call.parameters_after, 12);
    }
    if (call.control == get_uuid_from_gpu_id &&
        (load_u32(call.parameters_before, 4).value_or(0) & 3) == format_binary) {
        take(call.parameters_after, 8);
    }
    if (call.control == get_uuid_info && (load_u32(call.parameters_before, 256).value_or(0) & 3) == format_binary) {
        take(call.parameters_before, 0);
    }
}

void IdentifierScrub::replace(std::vector<std::byte>& bytes) const {
    for_each_text_identifier(bytes, [&](std::size_t at) {
        const auto identifier = spelled(std::span{bytes}.subspan(at));
        const auto known = identifier ? numbers_.find(*identifier) : numbers_.end();
        if (known != numbers_.end()) {
            spell(placeholder(known->second), std::span{bytes}.subspan(at));
        }
    });
    for (const auto& [identifier, number] : numbers_) {
        const Identifier other = placeholder(number);
        if (other == identifier) {
            continue;
        }
        for (auto at = bytes.begin();;) {
            at = std::search(at, bytes.end(), identifier.begin(), identifier.end());
            if (at == bytes.end()) {
                break;
            }
            at = std::copy(other.begin(), other.end(), at);
        }
    }
}

void IdentifierScrub::replace(std::string& text) const {
    std::vector<std::byte> bytes(text.size());
    std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
    for_each_text_identifier(bytes, [&](std::size_t at) {
        const auto identifier = spelled(std::span<const std::byte>{bytes}.subspan(at));
        const auto known = identifier ? numbers_.find(*identifier) : numbers_.end();
        if (known != numbers_.end()) {
            spell(placeholder(known->second), std::span{bytes}.subspan(at));
        }
    });
    std::ranges::transform(bytes, text.begin(), [](std::byte b) { return std::to_integer<char>(b); });
}

} // namespace upcie::rm
