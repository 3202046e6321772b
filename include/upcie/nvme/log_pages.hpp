// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <upcie/nvme/command.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// SMART / Health Information, log page 02h (Base Specification 2.0, figure 207). 128-bit counters saturate at 2^64-1.
struct HealthLog {
    std::uint8_t critical_warning = 0; ///< 0: all is well; bit 0 spare, 1 temperature, 2 reliability, 3 read-only,
                                       ///< 4 volatile memory backup
    std::uint16_t temperature_kelvin = 0;
    std::uint8_t available_spare = 0;  ///< percent
    std::uint8_t spare_threshold = 0;  ///< percent
    std::uint8_t percentage_used = 0;  ///< may exceed 100
    std::uint64_t data_units_read = 0; ///< thousands of 512 bytes
    std::uint64_t data_units_written = 0;
    std::uint64_t host_reads = 0; ///< commands
    std::uint64_t host_writes = 0;
    std::uint64_t busy_minutes = 0;
    std::uint64_t power_cycles = 0;
    std::uint64_t power_on_hours = 0;
    std::uint64_t unsafe_shutdowns = 0;
    std::uint64_t media_errors = 0;
    std::uint64_t error_log_entries = 0; ///< over the life of the controller
};

/// Errors: as Controller::get_log_page. Threads: any.
[[nodiscard]] Result<HealthLog> read_health_log(Controller& controller);

/// An entry of Error Information, log page 01h (Base Specification 2.0, figure 206).
struct ErrorLogEntry {
    std::uint64_t number = 0; ///< counts over the life of the controller
    Qid submission_queue;
    Cid cid;
    Status status;
    std::uint16_t parameter_location = 0; ///< byte 7:0 and bit 10:8 in the command; 0xffff: none
    Lba lba;
    Nsid nsid;
};

/// Newest first, at most `limit` and at most what the controller keeps (ELPE + 1). Errors: as get_log_page.
[[nodiscard]] Result<std::vector<ErrorLogEntry>> read_error_log(Controller& controller, std::size_t limit = 64);

} // namespace upcie::nvme
