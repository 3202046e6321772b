// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <upcie/rm/driver_version.hpp>
#include <upcie/rm/nested.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// One ioctl of a trace, understood: what it is once indirections are followed, on which objects, and how it ended.
/// Holds references into the record, which has to outlive it. Threads: any.
struct Call {
    const Record* record = nullptr;
    const IoctlRecord* ioctl = nullptr;
    /// The innermost escape or UVM command; opaque for an ioctl of another node.
    BlockKind what;
    bool through_xfer = false;
    std::optional<std::uint32_t> control;  ///< command of a control
    std::optional<std::uint32_t> class_id; ///< of an allocation
    std::uint32_t client = 0;              ///< handles; 0 where the call has none
    std::uint32_t parent = 0;
    std::uint32_t object = 0; ///< the object acted on; of an allocation the new one, as the driver answered
    /// Bytes of the argument of `what` (of XFER's inner argument), as the call was entered and as it returned.
    std::span<const std::byte> argument_before;
    std::span<const std::byte> argument_after;
    /// Parameters of a control or an allocation; empty where there are none or they were not recorded.
    std::span<const std::byte> parameters_before;
    std::span<const std::byte> parameters_after;
    std::uint64_t parameter_bytes = 0; ///< as the call says, or as they were recorded
    /// What the driver answered inside the argument; nothing where it has no status or none was recorded.
    std::optional<std::uint32_t> status;

    /// The ioctl succeeded and the status, where there is one, is NV_OK.
    [[nodiscard]] bool succeeded() const noexcept;
    [[nodiscard]] std::uint64_t nanoseconds() const noexcept {
        const Stamp& stamp = record->stamp;
        return stamp.time_out >= stamp.time_in ? stamp.time_out - stamp.time_in : 0;
    }
};

/// Understands an ioctl record; nothing for a record of another type. Whatever the bytes are, it only finds less: no
/// check is left out, and a block that is too short has no fields. Threads: any.
[[nodiscard]] std::optional<Call> understand(const Record& record, DriverVersion version);

/// "RM_CONTROL NV2080_CTRL_CMD_GPU_GET_ENGINES_V2 (0x20800170)", "RM_ALLOC NV01_DEVICE_0 (0x80)", "UVM FREE (34)",
/// "escape 0x99", "ioctl 0xc0104d01". A number without a name stays one; a legacy control is called that.
[[nodiscard]] std::string call_name(const Call& call, DriverVersion version);
/// Of a control alone: its name, "legacy control", or "unknown control", with the number.
[[nodiscard]] std::string control_name(std::uint32_t command, DriverVersion version);
[[nodiscard]] std::string class_name(std::uint32_t id);
[[nodiscard]] std::string escape_name(std::uint32_t number);
[[nodiscard]] std::string uvm_name(std::uint32_t number);
/// How the call ended, in words: "NV_OK", "NV_ERR_NOT_SUPPORTED (0x56)", "EINVAL", "unfinished".
[[nodiscard]] std::string outcome_text(const Call& call);

/// The version of the driver that a trace is of: its header's, or what the driver itself answered (control 0x101,
/// escape 210, /proc/driver/nvidia/version); unknown when neither is there. Threads: any.
[[nodiscard]] DriverVersion driver_version(const Trace& trace);

/// The bytes of a block as the call returned: what was captured then, or what went in where nothing changed.
[[nodiscard]] std::span<const std::byte> bytes_after(const Block& block, const Outcome& outcome) noexcept;
/// The block of this path, or nullptr.
[[nodiscard]] const Block* find_block(const IoctlRecord& ioctl, std::string_view path) noexcept;

} // namespace upcie::rm
