// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace upcie {

/// Opens /dev/null on descriptors 0 to 2 that the caller closed. Otherwise the next file that is opened gets such a
/// number, be it a drive's image or the memory of a BAR, and what is printed is written into it. Writing to them fails
/// as before (EBADF), so that an answer nobody can have had is not called given. First thing in main(). False where
/// that cannot be done: then the program is to end.
[[nodiscard]] inline bool hold_standard_descriptors() noexcept {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) {
            continue;
        }
        // The lowest free number, and those below are taken.
        if (::open("/dev/null", O_RDONLY) != fd) { // NOLINT: it is to stay open
            return false;
        }
    }
    return true;
}

} // namespace upcie
