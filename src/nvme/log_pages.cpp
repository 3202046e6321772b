// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/nvme/log_pages.hpp>

#include <algorithm>
#include <array>
#include <limits>

#include "nvme/little_endian.hpp"

namespace upcie::nvme {
namespace {

std::uint64_t saturated_at(std::span<const std::byte> data, std::size_t offset) noexcept {
    const auto high = load_at<std::uint64_t>(data, offset + 8);
    return high != 0 ? std::numeric_limits<std::uint64_t>::max() : load_at<std::uint64_t>(data, offset);
}

} // namespace

Result<HealthLog> read_health_log(Controller& controller) {
    std::array<std::byte, 512> data{};
    LogPageRequest request;
    request.log = 0x02;
    if (auto read = controller.get_log_page(request, data); !read) {
        return tl::unexpected{std::move(read).error()};
    }
    HealthLog log;
    log.critical_warning = load_at<std::uint8_t>(data, 0);
    log.temperature_kelvin = load_at<std::uint16_t>(data, 1);
    log.available_spare = load_at<std::uint8_t>(data, 3);
    log.spare_threshold = load_at<std::uint8_t>(data, 4);
    log.percentage_used = load_at<std::uint8_t>(data, 5);
    log.data_units_read = saturated_at(data, 32);
    log.data_units_written = saturated_at(data, 48);
    log.host_reads = saturated_at(data, 64);
    log.host_writes = saturated_at(data, 80);
    log.busy_minutes = saturated_at(data, 96);
    log.power_cycles = saturated_at(data, 112);
    log.power_on_hours = saturated_at(data, 128);
    log.unsafe_shutdowns = saturated_at(data, 144);
    log.media_errors = saturated_at(data, 160);
    log.error_log_entries = saturated_at(data, 176);
    return log;
}

Result<std::vector<ErrorLogEntry>> read_error_log(Controller& controller, std::size_t limit) {
    constexpr std::size_t entry_bytes = 64;
    const std::size_t kept = std::size_t{controller.info().error_log_entries} + 1;
    std::vector<std::byte> data(std::min(limit, kept) * entry_bytes);
    std::vector<ErrorLogEntry> entries;
    if (data.empty()) {
        return entries;
    }
    LogPageRequest request;
    request.log = 0x01;
    if (auto read = controller.get_log_page(request, data); !read) {
        return tl::unexpected{std::move(read).error()};
    }
    for (std::size_t i = 0; i < data.size() / entry_bytes; ++i) {
        const std::span<const std::byte> raw = std::span{data}.subspan(i * entry_bytes, entry_bytes);
        ErrorLogEntry entry;
        entry.number = load_at<std::uint64_t>(raw, 0);
        if (entry.number == 0) {
            break; // unused entries follow
        }
        entry.submission_queue = Qid{load_at<std::uint16_t>(raw, 8)};
        entry.cid = Cid{load_at<std::uint16_t>(raw, 10)};
        entry.status = Status{static_cast<std::uint16_t>(load_at<std::uint16_t>(raw, 12) >> 1)}; // bit 0: phase
        entry.parameter_location = load_at<std::uint16_t>(raw, 14);
        entry.lba = Lba{load_at<std::uint64_t>(raw, 16)};
        entry.nsid = Nsid{load_at<std::uint32_t>(raw, 24)};
        entries.push_back(entry);
    }
    return entries;
}

} // namespace upcie::nvme
