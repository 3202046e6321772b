// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <upcie/nvme/queue_pair.hpp>
#include <upcie/nvme/registers.hpp>
#include <upcie/result.hpp>
#include <upcie/units.hpp>

namespace upcie::nvme {

/// What Identify transfers, as it came.
using IdentifyData = std::array<std::byte, 4096>;

/// Identify Controller, CNS 01h (Base Specification 2.0, figure 275). Text without the padding.
struct ControllerInfo {
    std::uint16_t vendor = 0;
    std::uint16_t subsystem_vendor = 0;
    std::string serial;
    std::string model;
    std::string firmware;
    std::string subsystem_name; ///< SUBNQN, empty in old controllers
    std::uint16_t controller_id = 0;
    Version version;
    std::uint8_t max_transfer_shift = 0;         ///< MDTS: log2 in units of the smallest page; 0: no limit
    std::uint32_t resume_latency_us = 0;         ///< RTD3R
    std::uint32_t shutdown_time_us = 0;          ///< RTD3E: what a normal shutdown takes; 0: not said
    std::array<std::uint16_t, 3> retry_delays{}; ///< CRDT1 to 3, in 100 ms
    std::uint16_t optional_admin_commands = 0;   ///< OACS
    std::uint8_t abort_limit = 0;                ///< ACL, zero-based
    std::uint8_t event_limit = 0;                ///< AERL, zero-based: event requests that may be outstanding
    std::uint8_t log_attributes = 0;             ///< LPA
    std::uint8_t error_log_entries = 0;          ///< ELPE, zero-based
    std::uint8_t submission_entry_sizes = 0;     ///< SQES: 3:0 least, 7:4 most, log2
    std::uint8_t completion_entry_sizes = 0;     ///< CQES likewise
    std::uint32_t namespaces = 0;                ///< NN: the highest namespace identifier
    std::uint16_t optional_io_commands = 0;      ///< ONCS
    std::uint8_t volatile_write_cache = 0;       ///< VWC
    std::uint32_t sgl_support = 0;               ///< SGLS

    /// Most bytes of one command; none where there is no limit. MDTS counts in CAP.MPSMIN, not in the page in use.
    [[nodiscard]] std::optional<ByteCount> max_transfer(Capabilities capabilities) const noexcept;
    [[nodiscard]] bool has_write_zeroes() const noexcept { return (optional_io_commands & 0x08) != 0; }
    [[nodiscard]] bool has_dataset_management() const noexcept { return (optional_io_commands & 0x04) != 0; }
    [[nodiscard]] bool has_write_cache() const noexcept { return (volatile_write_cache & 1) != 0; }
    /// LPA bit 2: Get Log Page takes an offset and a long length.
    [[nodiscard]] bool has_long_log_pages() const noexcept { return (log_attributes & 0x04) != 0; }
    /// What SGLs of I/O commands may describe; the reserved value counts as none.
    [[nodiscard]] SglSupport sgl() const noexcept {
        return (sgl_support & 3) == 3 ? SglSupport::none : static_cast<SglSupport>(sgl_support & 3);
    }
    [[nodiscard]] bool has_sgl() const noexcept { return sgl() != SglSupport::none; }

    [[nodiscard]] static ControllerInfo parse(const IdentifyData& data);
};

/// One of the formats that a namespace can have (NVM Command Set Specification 1.0, figure 98).
struct LbaFormat {
    std::uint8_t data_shift = 0; ///< LBADS, log2 of the bytes of a block; 0: this format is not available
    std::uint16_t metadata_bytes = 0;
    std::uint8_t relative_performance = 0; ///< 0 best, 3 degraded
};

/// Identify Namespace, CNS 00h (NVM Command Set Specification 1.0, figure 97).
struct NamespaceInfo {
    Nsid nsid;
    std::uint64_t size_blocks = 0;     ///< NSZE; 0: the namespace is not active
    std::uint64_t capacity_blocks = 0; ///< NCAP
    std::uint64_t used_blocks = 0;     ///< NUSE
    std::vector<LbaFormat> formats;
    std::uint8_t current_format = 0;
    bool extended_metadata = false; ///< FLBAS bit 4: metadata follows each block's data in the same buffer
    std::uint8_t protection = 0;    ///< DPS
    std::array<std::uint8_t, 16> guid{};
    std::array<std::uint8_t, 8> eui64{};

    [[nodiscard]] const LbaFormat& format() const noexcept { return formats[current_format]; }

    /// Error: EPROTO when the current format is none of those listed.
    [[nodiscard]] static Result<NamespaceInfo> parse(Nsid nsid, const IdentifyData& data);
};

} // namespace upcie::nvme
