// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

// Starting this program as somebody with chosen capabilities, to learn which of them the kernel or a driver asks for.
namespace upcie::probes {

/// "sys_rawio" of CAP_SYS_RAWIO, by its number in linux/capability.h; "capability_63" for one that came later.
[[nodiscard]] std::string capability_name(unsigned number);

/// Whether a capability has that name.
[[nodiscard]] bool is_capability_name(std::string_view name);

/// The number of the last capability that this kernel has. Error: what reading /proc/sys/kernel/cap_last_cap says,
/// EPROTO for something that is no such number.
[[nodiscard]] Result<unsigned> last_capability(os::System& system);

/// Who a process is to become before it starts this program.
struct Appearance {
    std::uint32_t uid = 0;          ///< and the group of the same number, with no supplementary groups
    std::uint64_t capabilities = 0; ///< permitted, effective, inheritable and ambient: those and no others
};

/// The arguments with which this program, started by Child::start, first becomes `appearance` and then runs
/// `arguments`. So the change is made by a process that has done nothing before, and not by a fork of one that has
/// opened a GPU.
[[nodiscard]] std::vector<std::string> arguments_to_become(const Appearance& appearance,
                                                           const std::vector<std::string>& arguments);

/// To be called first in main(): where the command line is one of arguments_to_become(), becomes that and starts anew,
/// which does not return. Answers an exit status where that failed, having said why on standard error, and nothing
/// where the command line is another.
[[nodiscard]] std::optional<int> become_if_told(int argc, char** argv);

} // namespace upcie::probes
