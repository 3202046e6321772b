// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>

namespace upcie::test {

/// True under qemu-user, which translates system calls and not all of them as the kernel answers them; level aarch64
/// says so by this variable.
[[nodiscard]] inline bool under_user_emulation() {
    return std::getenv("UPCIE_USER_EMULATION") != nullptr;
}

} // namespace upcie::test
