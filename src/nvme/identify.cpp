// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/identify.hpp>

#include <cerrno>
#include <string_view>

#include <fmt/format.h>

#include "nvme/little_endian.hpp"

namespace upcie::nvme {
namespace {

/// ASCII padded with spaces or zeros, by a device: what is not printable becomes '?'.
std::string text_at(std::span<const std::byte> data, std::size_t offset, std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) {
        const char character = static_cast<char>(data[offset + i]);
        if (character == '\0') {
            break;
        }
        text.push_back(character >= ' ' && character <= '~' ? character : '?');
    }
    const std::size_t end = text.find_last_not_of(' ');
    text.resize(end == std::string::npos ? 0 : end + 1);
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? std::string{} : text.substr(begin);
}

} // namespace

std::optional<ByteCount> ControllerInfo::max_transfer(Capabilities capabilities) const noexcept {
    const unsigned shift = max_transfer_shift + capabilities.min_page_shift();
    if (max_transfer_shift == 0 || shift > 63) {
        return std::nullopt;
    }
    return ByteCount{std::uint64_t{1} << shift};
}

ControllerInfo ControllerInfo::parse(const IdentifyData& data) {
    ControllerInfo info;
    info.vendor = load_at<std::uint16_t>(data, 0);
    info.subsystem_vendor = load_at<std::uint16_t>(data, 2);
    info.serial = text_at(data, 4, 20);
    info.model = text_at(data, 24, 40);
    info.firmware = text_at(data, 64, 8);
    info.max_transfer_shift = load_at<std::uint8_t>(data, 77);
    info.controller_id = load_at<std::uint16_t>(data, 78);
    info.version = Version{load_at<std::uint32_t>(data, 80)};
    info.resume_latency_us = load_at<std::uint32_t>(data, 84);
    info.shutdown_time_us = load_at<std::uint32_t>(data, 88);
    for (std::size_t i = 0; i < info.retry_delays.size(); ++i) {
        info.retry_delays[i] = load_at<std::uint16_t>(data, 128 + 2 * i);
    }
    info.optional_admin_commands = load_at<std::uint16_t>(data, 256);
    info.abort_limit = load_at<std::uint8_t>(data, 258);
    info.event_limit = load_at<std::uint8_t>(data, 259);
    info.log_attributes = load_at<std::uint8_t>(data, 261);
    info.error_log_entries = load_at<std::uint8_t>(data, 262);
    info.submission_entry_sizes = load_at<std::uint8_t>(data, 512);
    info.completion_entry_sizes = load_at<std::uint8_t>(data, 513);
    info.namespaces = load_at<std::uint32_t>(data, 516);
    info.optional_io_commands = load_at<std::uint16_t>(data, 520);
    info.volatile_write_cache = load_at<std::uint8_t>(data, 525);
    info.sgl_support = load_at<std::uint32_t>(data, 536);
    info.subsystem_name = text_at(data, 768, 256);
    return info;
}

Result<NamespaceInfo> NamespaceInfo::parse(Nsid nsid, const IdentifyData& data) {
    NamespaceInfo info;
    info.nsid = nsid;
    info.size_blocks = load_at<std::uint64_t>(data, 0);
    info.capacity_blocks = load_at<std::uint64_t>(data, 8);
    info.used_blocks = load_at<std::uint64_t>(data, 16);
    const std::size_t formats = std::size_t{load_at<std::uint8_t>(data, 25)} + 1;
    const auto current = load_at<std::uint8_t>(data, 26);
    // Bits 6:5 are the index's upper ones, in controllers with more than 16 formats; 64 is the most there is room for.
    info.current_format = static_cast<std::uint8_t>((current & 0x0f) | (formats > 16 ? (current & 0x60) >> 1 : 0));
    info.extended_metadata = (current & 0x10) != 0;
    info.protection = load_at<std::uint8_t>(data, 29);
    info.guid = load_at<std::array<std::uint8_t, 16>>(data, 104);
    info.eui64 = load_at<std::array<std::uint8_t, 8>>(data, 120);
    if (formats > 64 || info.current_format >= formats) {
        return fail(EPROTO, "identify namespace", fmt::format("namespace {}", nsid.value()),
                    fmt::format("The controller says that format {} of {} is in use: its firmware is at fault",
                                info.current_format, formats));
    }
    for (std::size_t i = 0; i < formats; ++i) {
        const auto raw = load_at<std::uint32_t>(data, 128 + 4 * i);
        info.formats.push_back({static_cast<std::uint8_t>(raw >> 16), static_cast<std::uint16_t>(raw),
                                static_cast<std::uint8_t>((raw >> 24) & 3)});
    }
    return info;
}

} // namespace upcie::nvme
