// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

template <class Number>
void put(std::vector<std::byte>& page, std::size_t offset, Number value) {
    std::memcpy(page.data() + offset, &value, sizeof value);
}

} // namespace

void Engine::log_error(std::uint16_t qid, const Command& command, nvme::Status status) {
    const std::uint64_t lba = qid == 0 ? 0 : command.cdw10 | (std::uint64_t{command.cdw11} << 32);
    errors_.push_front(
        {++error_count_, qid, command.cid, static_cast<std::uint16_t>(status.raw() << 1), lba, command.nsid});
    if (errors_.size() > max_errors) {
        errors_.pop_back();
    }
}

// Get Log Page (Base Specification 2.0, section 5.16): lengths and offsets in bytes here, both of whole dwords.
Answer Engine::get_log_page(const Command& command) {
    const std::uint8_t identifier = command.cdw10 & 0xff;
    const std::uint64_t dwords = ((command.cdw10 >> 16) | (std::uint64_t{command.cdw11 & 0xffff} << 16)) + 1;
    const std::uint64_t offset = command.cdw12 | (std::uint64_t{command.cdw13} << 32);
    std::vector<std::byte> page;
    switch (identifier) {
    case 0x01: { // errors, the newest first (figure 206)
        page.resize(max_errors * 64);
        for (std::size_t i = 0; i < errors_.size(); ++i) {
            const ErrorEntry& error = errors_[i];
            put(page, i * 64, error.count);
            put(page, i * 64 + 8, error.sqid);
            put(page, i * 64 + 10, error.cid);
            put(page, i * 64 + 12, error.status);
            put<std::uint16_t>(page, i * 64 + 14, 0xffff); // no parameter at fault named
            put(page, i * 64 + 16, error.lba);
            put(page, i * 64 + 24, error.nsid);
        }
        break;
    }
    case 0x02: // SMART (figure 207)
        if (command.nsid != ~0U && command.nsid != 0 && medium(command.nsid) == nullptr) {
            return {generic(0x0b)};
        }
        page.resize(512);
        put<std::uint16_t>(page, 1, 300); // kelvin
        put<std::uint8_t>(page, 3, 100);  // spare
        put<std::uint8_t>(page, 4, 10);
        put(page, 32, (bytes_read_ + 511'999) / 512'000); // in thousands of 512 bytes
        put(page, 48, (bytes_written_ + 511'999) / 512'000);
        put(page, 64, read_commands_);
        put(page, 80, write_commands_);
        put<std::uint64_t>(page, 112, 1); // power cycles
        put(page, 176, error_count_);
        break;
    case 0x03: // firmware slots (figure 209)
        page.resize(512);
        put<std::uint8_t>(page, 0, 1);
        std::memset(page.data() + 8, ' ', 8);
        std::memcpy(page.data() + 8, options_.firmware.data(), std::min<std::size_t>(8, options_.firmware.size()));
        break;
    default:
        return {specific(0x09)};
    }
    if (offset % 4 != 0 || offset >= page.size() || dwords > (std::uint64_t{1} << 20)) {
        return {invalid_field};
    }
    std::vector<std::byte> part(static_cast<std::size_t>(dwords * 4));
    const auto available = static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), page.size() - offset));
    std::memcpy(part.data(), page.data() + offset, available);
    const nvme::Status status = send(command, part);
    // Reading acknowledges the event that pointed here, unless RAE retains it.
    if (status.ok() && (command.cdw10 & 0x8000) == 0) {
        for (std::size_t type = 0; type < masked_by_.size(); ++type) {
            if (masked_events_.test(type) && masked_by_[type] == identifier) {
                masked_events_.reset(type);
            }
        }
        deliver_events();
    }
    return {status};
}

} // namespace upcie::sim
