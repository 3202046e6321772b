// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/bdf.hpp>

#include <cerrno>
#include <charconv>

#include <fmt/format.h>

namespace upcie::pci {

namespace {

/// All of `text` as a hexadecimal number of `fewest` to `most` digits.
template <class T>
bool parse_hex(std::string_view text, std::size_t fewest, std::size_t most, T& value) {
    if (text.size() < fewest || text.size() > most) {
        return false;
    }
    // from_chars takes neither a sign (the type is unsigned) nor "0x" nor blanks.
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return error == std::errc{} && end == text.data() + text.size();
}

bool parse_into(std::string_view text, Bdf& bdf) {
    // Count from the end: the tail ":dd.f" has a fixed length, the domain in front has not.
    const auto dot = text.rfind('.');
    if (dot == std::string_view::npos || !parse_hex(text.substr(dot + 1), 1, 1, bdf.function) || bdf.function > 7) {
        return false;
    }
    text = text.substr(0, dot);
    const auto device_colon = text.rfind(':');
    if (device_colon == std::string_view::npos || !parse_hex(text.substr(device_colon + 1), 2, 2, bdf.device) ||
        bdf.device > 31) {
        return false;
    }
    text = text.substr(0, device_colon);
    const auto bus_colon = text.rfind(':');
    if (bus_colon == std::string_view::npos) {
        return parse_hex(text, 2, 2, bdf.bus);
    }
    return parse_hex(text.substr(bus_colon + 1), 2, 2, bdf.bus) &&
           parse_hex(text.substr(0, bus_colon), 4, 8, bdf.domain);
}

} // namespace

std::string Bdf::to_string() const {
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

Result<Bdf> Bdf::parse(std::string_view text) {
    Bdf bdf;
    if (!parse_into(text, bdf)) {
        return fail(
            EINVAL, "parse PCI address", fmt::format("\"{}\"", text),
            "A PCI address looks like 0000:01:00.0 (domain of 4 to 8 hexadecimal digits, bus, device, function)");
    }
    return bdf;
}

} // namespace upcie::pci
