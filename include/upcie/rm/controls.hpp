// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <upcie/rm/parameter_size.hpp>

namespace upcie::rm {

/// A control command: `cmd` of NVOS54, (class << 16) | (category << 8) | index (ctrl*.h).
struct Control {
    std::uint32_t command = 0;
    std::string_view name; ///< as in the headers: "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION"
    ParameterSize size;    ///< of its parameters; 0 bytes when it takes none
};

[[nodiscard]] constexpr std::uint32_t control_class(std::uint32_t command) noexcept {
    return command >> 16;
}
/// A control of the old kind: no header describes it, its parameters are opaque bytes. Never guessed.
[[nodiscard]] constexpr bool is_legacy_control(std::uint32_t command) noexcept {
    return (command & 0x8000) != 0;
}

/// The control of this number, or nullptr for one that no public header has. A few numbers changed their meaning
/// between branches: of those the one that `version` has, or else the newest. Threads: any.
[[nodiscard]] const Control* find_control(std::uint32_t command, DriverVersion version = {}) noexcept;
/// All, ascending by command; a number that changed its meaning stands there more than once, oldest first.
[[nodiscard]] std::span<const Control> controls() noexcept;

/// What becomes of a program when a control is answered with success and zeros.
struct ConsumedControl {
    std::uint32_t command = 0;
    std::string_view zeros_lead_to; ///< "cuInit fails with error 803" ...
};
/// The eleven controls (in twelve spellings) of which the values were seen to matter, of the 61 that libcuda 550.163.01
/// uses up to a context. Measured on that branch alone: of every other nothing is known.
[[nodiscard]] std::span<const ConsumedControl> consumed_controls() noexcept;
[[nodiscard]] const ConsumedControl* find_consumed_control(std::uint32_t command) noexcept;
inline constexpr std::uint16_t consumed_controls_measured_on = 550;

} // namespace upcie::rm
