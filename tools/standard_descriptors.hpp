// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace upcie {

/// Opens /dev/null on descriptors 0 to 2 that the caller closed. Otherwise the next file that is opened gets such a
/// number, be it a drive's image or the memory of a BAR, and what is printed is written into it. First thing in main().
/// False where that cannot be done: then the program is to end.
[[nodiscard]] inline bool hold_standard_descriptors() noexcept {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) {
            continue;
        }
        // The lowest free number, and those below are taken.
        if (::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd) { // NOLINT: it is to stay open
            return false;
        }
    }
    return true;
}

} // namespace upcie
