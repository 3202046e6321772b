// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace upcie::rm {

/// An NV_STATUS: what the driver answers inside the parameters, beside the result of the ioctl (nvstatuscodes.h).
struct Status {
    std::uint32_t number = 0;
    std::string_view name; ///< as in the headers: "NV_OK", "NV_ERR_NOT_SUPPORTED"
};

inline constexpr std::uint32_t status_ok = 0;
inline constexpr std::uint32_t status_not_supported = 0x56;

/// The status of this number, or nullptr for one that no public header has. Threads: any.
[[nodiscard]] const Status* find_status(std::uint32_t number) noexcept;
/// All, ascending by number.
[[nodiscard]] std::span<const Status> statuses() noexcept;
/// "NV_OK", "NV_ERR_NOT_SUPPORTED (0x56)", or "status 0x12345" for an unknown one.
[[nodiscard]] std::string describe_status(std::uint32_t number);

} // namespace upcie::rm
