// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

#include <upcie/units.hpp>

namespace upcie::nvme {

/// Offsets of controller properties in BAR0 (Base Specification 2.0, figure 35).
namespace offset {
inline constexpr ByteCount capabilities{0x00};
inline constexpr ByteCount version{0x08};
inline constexpr ByteCount configuration{0x14};
inline constexpr ByteCount status{0x1c};
inline constexpr ByteCount subsystem_reset{0x20};
inline constexpr ByteCount admin_queue_attributes{0x24};
inline constexpr ByteCount admin_submission_base{0x28};
inline constexpr ByteCount admin_completion_base{0x30};
inline constexpr ByteCount memory_buffer_location{0x38};
inline constexpr ByteCount memory_buffer_size{0x3c};
inline constexpr ByteCount ready_timeouts{0x68};
inline constexpr ByteCount doorbells{0x1000};
} // namespace offset

/// Written to NSSR to reset the whole subsystem: "NVMe" in ASCII.
inline constexpr std::uint32_t subsystem_reset_value = 0x4e564d65;

namespace detail {
[[nodiscard]] constexpr std::uint32_t bits(std::uint64_t value, unsigned high, unsigned low) noexcept {
    return static_cast<std::uint32_t>((value >> low) & ((std::uint64_t{1} << (high - low + 1)) - 1));
}
[[nodiscard]] constexpr std::uint32_t with_bits(std::uint32_t value, unsigned high, unsigned low,
                                                std::uint32_t field) noexcept {
    const auto mask = static_cast<std::uint32_t>(((std::uint64_t{1} << (high - low + 1)) - 1) << low);
    return (value & ~mask) | ((field << low) & mask);
}
} // namespace detail

/// CAP, what the controller can do (figure 36).
struct Capabilities {
    std::uint64_t raw = 0;

    /// Entries of a queue at most: MQES is zero-based, so this is one more. 2 to 65536 in a sane controller.
    [[nodiscard]] constexpr std::uint32_t max_queue_entries() const noexcept { return detail::bits(raw, 15, 0) + 1; }
    /// CQR: queues must be physically contiguous.
    [[nodiscard]] constexpr bool contiguous_queues_required() const noexcept { return detail::bits(raw, 16, 16) != 0; }
    /// TO: how long a change of CSTS.RDY may take. 0 is a legal reading and not a wish to give up at once.
    [[nodiscard]] constexpr std::chrono::milliseconds ready_timeout() const noexcept {
        return std::chrono::milliseconds{detail::bits(raw, 31, 24) * 500};
    }
    /// Bytes from one doorbell to the next: 4 << DSTRD.
    [[nodiscard]] constexpr std::uint64_t doorbell_stride() const noexcept {
        return std::uint64_t{4} << detail::bits(raw, 35, 32);
    }
    [[nodiscard]] constexpr bool subsystem_reset_supported() const noexcept { return detail::bits(raw, 36, 36) != 0; }
    [[nodiscard]] constexpr bool nvm_command_set() const noexcept { return detail::bits(raw, 37, 37) != 0; }
    /// CSS bit 6: sets are chosen by Identify (CC.CSS 110b).
    [[nodiscard]] constexpr bool io_command_sets() const noexcept { return detail::bits(raw, 43, 43) != 0; }
    /// CSS bit 7: there is no I/O command set at all.
    [[nodiscard]] constexpr bool no_io_command_set() const noexcept { return detail::bits(raw, 44, 44) != 0; }
    /// log2 of the smallest page the controller works with (MPSMIN + 12); MDTS counts in it.
    [[nodiscard]] constexpr unsigned min_page_shift() const noexcept { return detail::bits(raw, 51, 48) + 12; }
    [[nodiscard]] constexpr unsigned max_page_shift() const noexcept { return detail::bits(raw, 55, 52) + 12; }
    /// CMBS: CMBLOC and CMBSZ mean something.
    [[nodiscard]] constexpr bool memory_buffer_supported() const noexcept { return detail::bits(raw, 57, 57) != 0; }
    /// CRMS bit 0: CRTO says how long ready takes.
    [[nodiscard]] constexpr bool ready_with_media() const noexcept { return detail::bits(raw, 59, 59) != 0; }
};

/// VS, the version of the specification that the controller follows (figure 37).
struct Version {
    std::uint32_t raw = 0;
    [[nodiscard]] constexpr unsigned major() const noexcept { return detail::bits(raw, 31, 16); }
    [[nodiscard]] constexpr unsigned minor() const noexcept { return detail::bits(raw, 15, 8); }
    [[nodiscard]] constexpr unsigned tertiary() const noexcept { return detail::bits(raw, 7, 0); }
};

/// CC.SHN, what kind of shutdown is asked for.
enum class ShutdownNotification : std::uint8_t { none = 0, normal = 1, abrupt = 2 };

/// CC.CSS, which command set I/O queues speak.
enum class CommandSetSelection : std::uint8_t { nvm = 0, all_supported = 6, admin_only = 7 };

/// CC, how the controller is to work (figure 46). with_… answer a changed copy.
struct Configuration {
    std::uint32_t raw = 0;

    [[nodiscard]] constexpr bool enabled() const noexcept { return (raw & 1) != 0; }
    [[nodiscard]] constexpr unsigned page_shift() const noexcept { return detail::bits(raw, 10, 7) + 12; }
    [[nodiscard]] constexpr ShutdownNotification shutdown() const noexcept {
        return static_cast<ShutdownNotification>(detail::bits(raw, 15, 14));
    }
    [[nodiscard]] constexpr CommandSetSelection command_set() const noexcept {
        return static_cast<CommandSetSelection>(detail::bits(raw, 6, 4));
    }
    [[nodiscard]] constexpr unsigned submission_entry_shift() const noexcept { return detail::bits(raw, 19, 16); }
    [[nodiscard]] constexpr unsigned completion_entry_shift() const noexcept { return detail::bits(raw, 23, 20); }

    [[nodiscard]] constexpr Configuration with_enabled(bool on) const noexcept {
        return {detail::with_bits(raw, 0, 0, on ? 1 : 0)};
    }
    [[nodiscard]] constexpr Configuration with_page_shift(unsigned shift) const noexcept {
        return {detail::with_bits(raw, 10, 7, shift - 12)};
    }
    [[nodiscard]] constexpr Configuration with_shutdown(ShutdownNotification kind) const noexcept {
        return {detail::with_bits(raw, 15, 14, static_cast<std::uint32_t>(kind))};
    }
    [[nodiscard]] constexpr Configuration with_command_set(CommandSetSelection set) const noexcept {
        return {detail::with_bits(raw, 6, 4, static_cast<std::uint32_t>(set))};
    }
    /// log2 of the bytes of entries: 6 and 4 in every controller so far.
    [[nodiscard]] constexpr Configuration with_entry_shifts(unsigned submission, unsigned completion) const noexcept {
        return {detail::with_bits(detail::with_bits(raw, 19, 16, submission), 23, 20, completion)};
    }
};

/// CSTS.SHST, how far a shutdown is.
enum class ShutdownStatus : std::uint8_t { normal = 0, occurring = 1, complete = 2, reserved = 3 };

/// CSTS, how the controller is (figure 47). RegisterAccess never hands out the all-ones of a device that is gone.
struct ControllerStatus {
    std::uint32_t raw = 0;
    [[nodiscard]] constexpr bool ready() const noexcept { return (raw & 1) != 0; }
    /// CFS: it failed so badly that it cannot report by completions; only a reset helps.
    [[nodiscard]] constexpr bool fatal() const noexcept { return (raw & 2) != 0; }
    [[nodiscard]] constexpr ShutdownStatus shutdown() const noexcept {
        return static_cast<ShutdownStatus>(detail::bits(raw, 3, 2));
    }
    [[nodiscard]] constexpr bool subsystem_reset_occurred() const noexcept { return (raw & 0x10) != 0; }
    [[nodiscard]] constexpr bool processing_paused() const noexcept { return (raw & 0x20) != 0; }
};

/// AQA, sizes of the admin queues (figure 50): zero-based in the register, entries here.
struct AdminQueueAttributes {
    static constexpr std::uint32_t max_entries = 4096;
    std::uint32_t raw = 0;
    [[nodiscard]] static constexpr AdminQueueAttributes of(std::uint32_t entries) noexcept {
        return {((entries - 1) & 0xfff) | (((entries - 1) & 0xfff) << 16)};
    }
    [[nodiscard]] constexpr std::uint32_t submission_entries() const noexcept { return (raw & 0xfff) + 1; }
    [[nodiscard]] constexpr std::uint32_t completion_entries() const noexcept { return ((raw >> 16) & 0xfff) + 1; }
};

/// CMBLOC and CMBSZ, the controller's own memory (figures 53 and 54).
struct MemoryBuffer {
    std::uint32_t location = 0;
    std::uint32_t size_register = 0;

    [[nodiscard]] constexpr unsigned bar() const noexcept { return location & 7; }
    /// 4 KiB, 64 KiB, … 64 GiB: the unit that offset and size count in.
    [[nodiscard]] constexpr std::uint64_t unit() const noexcept {
        return std::uint64_t{4096} << (4 * detail::bits(size_register, 11, 8));
    }
    [[nodiscard]] constexpr ByteCount start() const noexcept {
        return ByteCount{detail::bits(location, 31, 12) * unit()};
    }
    [[nodiscard]] constexpr ByteCount size() const noexcept {
        return ByteCount{detail::bits(size_register, 31, 12) * unit()};
    }
    [[nodiscard]] constexpr bool submission_queues() const noexcept { return (size_register & 1) != 0; }
    [[nodiscard]] constexpr bool completion_queues() const noexcept { return (size_register & 2) != 0; }
    [[nodiscard]] constexpr bool lists() const noexcept { return (size_register & 4) != 0; }
    [[nodiscard]] constexpr bool read_data() const noexcept { return (size_register & 8) != 0; }
    [[nodiscard]] constexpr bool write_data() const noexcept { return (size_register & 16) != 0; }
};

/// CRTO, ready time-outs of controllers with CAP.CRMS (figure 62).
struct ReadyTimeouts {
    std::uint32_t raw = 0;
    [[nodiscard]] constexpr std::chrono::milliseconds with_media() const noexcept {
        return std::chrono::milliseconds{(raw & 0xffff) * 500};
    }
};

/// Where a queue's doorbell lies in BAR0 (section 3.1.3.17 of the PCIe Transport Specification 1.0).
[[nodiscard]] constexpr ByteCount doorbell_offset(Qid qid, bool completion, Capabilities capabilities) noexcept {
    return offset::doorbells +
           ByteCount{(std::uint64_t{qid.value()} * 2 + (completion ? 1 : 0)) * capabilities.doorbell_stride()};
}

} // namespace upcie::nvme
