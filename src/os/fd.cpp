// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/fd.hpp>

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>

namespace upcie::os {

namespace {

std::string table_full_hint(int code) {
    switch (code) {
    case EMFILE:
        return "This process has no descriptor left: raise its limit (ulimit -n, LimitNOFILE=).";
    case ENFILE:
        return "The machine has no file left to open: raise fs.file-max.";
    default:
        return {};
    }
}

std::string open_hint(int code, const char* path) {
    switch (code) {
    case EACCES:
        return fmt::format("This user may not open it: see `ls -l {}` and give the user or its group the right "
                           "(a udev rule makes that last).",
                           path);
    case EPERM:
        return "The kernel forbids it to this process: it may need a capability (CAP_SYS_RAWIO, CAP_SYS_ADMIN), or "
               "lockdown is in force.";
    case ENOENT:
        return "It does not exist: is the driver that makes it loaded, and the name right?";
    case EBUSY:
        return "Another process, or another way of opening the same device, holds it: find it with `fuser -v`.";
    case ENODEV:
    case ENXIO:
        return "The node is there and no driver or device answers behind it.";
    default:
        return table_full_hint(code);
    }
}

} // namespace

void Fd::reset() noexcept {
    if (number_ >= 0) {
        // Not repeated on EINTR: Linux has let the number go by then, and another thread may have it already.
        system_->close(number_);
        number_ = -1;
    }
}

Result<Fd> Fd::duplicate() const {
    if (number_ < 0) {
        return fail(EBADF, "F_DUPFD_CLOEXEC", "an empty descriptor", "Nothing is open here.");
    }
    const int copy = system_->fcntl(number_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        const int code = errno;
        return fail(code, "F_DUPFD_CLOEXEC", fmt::format("descriptor {}", number_), table_full_hint(code));
    }
    return Fd{*system_, copy};
}

Result<Fd> open_file(System& system, const char* path, int flags) {
    int number = -1;
    do {
        number = system.open(path, flags | O_CLOEXEC);
    } while (number < 0 && errno == EINTR);
    if (number < 0) {
        const int code = errno;
        return fail(code, "open", path, open_hint(code, path));
    }
    return Fd{system, number};
}

Result<Fd> make_eventfd(System& system) {
    const int number = system.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (number < 0) {
        const int code = errno;
        return fail(code, "eventfd", "a new counter", table_full_hint(code));
    }
    return Fd{system, number};
}

} // namespace upcie::os
