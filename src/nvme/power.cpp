// SPDX-License-Identifier: BSD-3-Clause
#include "nvme/power.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include <upcie/nvme/queue_layout.hpp>

namespace upcie::nvme {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::chrono::milliseconds Power::limit(RegisterAccess& registers, Capabilities capabilities, milliseconds least) {
    milliseconds longest = std::max(capabilities.ready_timeout(), least);
    if (capabilities.ready_with_media()) {
        if (const auto raw = registers.read32(offset::ready_timeouts)) {
            longest = std::max(longest, ReadyTimeouts{*raw}.with_media());
        }
    }
    return longest;
}

template <class Done>
Result<void> Power::wait(const char* operation, Done done, milliseconds limit, OnFatal on_fatal) {
    const steady_clock::time_point deadline = steady_clock::now() + limit;
    for (;;) {
        // The clock first: a process that was stopped for long still takes one look at how things are now.
        const bool late = steady_clock::now() >= deadline;
        const auto status = registers_.status();
        if (!status) {
            return tl::unexpected{status.error()};
        }
        if (done(*status)) {
            return {};
        }
        if (status->fatal() && (on_fatal == OnFatal::fail || late)) {
            return fail(
                EIO, operation, registers_.name(),
                fmt::format("The controller reports a fatal error (CSTS.CFS, CSTS is {:#x}): reset the function "
                            "or power the device off and on",
                            status->raw));
        }
        if (late) {
            return fail(
                ETIMEDOUT, operation, registers_.name(),
                fmt::format("CSTS is still {:#x} after {} ms: reset the function or power the device off and on",
                            status->raw, limit.count()));
        }
        function_.pause();
    }
}

Result<void> Power::enable(Configuration configuration) {
    store_barrier(); // the admin rings are zeroed before the controller can look at them
    if (auto written = registers_.write(configuration.with_enabled(true)); !written) {
        return written;
    }
    return wait(
        "enable controller", [](ControllerStatus status) { return status.ready() && !status.fatal(); }, limit_,
        OnFatal::fail);
}

Result<void> Power::disable(bool settle) {
    const auto configuration = registers_.configuration();
    if (!configuration) {
        return tl::unexpected{configuration.error()};
    }
    if (configuration->enabled()) {
        if (settle) {
            // How this ends does not matter: EN is cleared anyway, and only the wait after that counts.
            auto settled = wait(
                "let controller settle", [](ControllerStatus status) { return status.ready() || status.fatal(); },
                limit_, OnFatal::fail);
            if (!settled && settled.error().is(ENODEV)) {
                return settled;
            }
        }
        const Configuration off = configuration->with_enabled(false).with_shutdown(ShutdownNotification::none);
        if (auto written = registers_.write(off); !written) {
            return written;
        }
    }
    // Clearing EN is the way out of a fatal error, so the flag itself does not end this wait.
    return wait(
        "disable controller", [](ControllerStatus status) { return !status.ready(); }, limit_, OnFatal::keep_waiting);
}

Result<void> Power::shut_down(milliseconds limit) {
    const auto configuration = registers_.configuration();
    if (!configuration) {
        return tl::unexpected{configuration.error()};
    }
    if (auto written = registers_.write(configuration->with_shutdown(ShutdownNotification::normal)); !written) {
        return written;
    }
    return wait(
        "shut controller down", [](ControllerStatus status) { return status.shutdown() == ShutdownStatus::complete; },
        limit, OnFatal::fail);
}

} // namespace upcie::nvme
