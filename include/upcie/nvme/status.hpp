// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace upcie::nvme {

/// Status Code Type (NVM Express Base Specification 2.0, figure 92).
enum class StatusCodeType : std::uint8_t {
    generic = 0,
    command_specific = 1,
    media_and_data_integrity = 2,
    path_related = 3,
    vendor_specific = 7,
};

/// The status field of a completion queue entry: dword 3, bits 31:17, that is without the phase bit (Base
/// Specification 2.0, figure 90). Type and code count together: type 1 with code 0 is an error.
class Status {
  public:
    constexpr Status() noexcept = default;
    /// `raw` is the 15-bit field: code 7:0, type 10:8, retry delay 12:11, more 13, do not retry 14.
    constexpr explicit Status(std::uint16_t raw) noexcept : raw_{static_cast<std::uint16_t>(raw & 0x7fff)} {}
    constexpr Status(StatusCodeType type, std::uint8_t code, bool do_not_retry = false) noexcept
        : raw_{static_cast<std::uint16_t>(code | (static_cast<unsigned>(type) << 8) | (do_not_retry ? 0x4000U : 0U))} {}

    [[nodiscard]] constexpr bool ok() const noexcept { return (raw_ & 0x7ff) == 0; }
    [[nodiscard]] constexpr std::uint8_t code() const noexcept { return static_cast<std::uint8_t>(raw_); }
    [[nodiscard]] constexpr StatusCodeType type() const noexcept {
        return static_cast<StatusCodeType>((raw_ >> 8) & 7);
    }
    /// Index of the Command Retry Delay time (CRDT1 to 3 of Identify Controller), 0 for none.
    [[nodiscard]] constexpr unsigned retry_delay() const noexcept { return (raw_ >> 11) & 3; }
    /// More about it is in the Error Information log page.
    [[nodiscard]] constexpr bool more() const noexcept { return (raw_ & 0x2000) != 0; }
    [[nodiscard]] constexpr bool do_not_retry() const noexcept { return (raw_ & 0x4000) != 0; }
    [[nodiscard]] constexpr std::uint16_t raw() const noexcept { return raw_; }
    friend constexpr bool operator==(Status, Status) noexcept = default;

    /// The specification's name for type and code; "unknown status" for what it does not name.
    [[nodiscard]] std::string_view name() const noexcept;
    /// Name, type and code as numbers, and the flags that are set.
    [[nodiscard]] std::string describe() const;

  private:
    std::uint16_t raw_ = 0;
};

} // namespace upcie::nvme
