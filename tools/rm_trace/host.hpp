// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// The version in the text of /proc/driver/nvidia/version: "580.159.04"; empty where it has none. Threads: any.
[[nodiscard]] std::string driver_version_in(std::string_view text);

/// A header with everything that the machine says: kernel, driver, GPUs, time. Run, mode and command are the caller's.
[[nodiscard]] TraceHeader header_of_this_machine();

} // namespace upcie::rm
