// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <upcie/os/fd.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/result.hpp>

#include "requests.hpp"

namespace upcie::probes {

/// A cdev bound to an iommufd and attached to an IOAS of it: what the owner of a device has.
struct Session {
    os::Fd iommufd;
    os::Fd device;
    std::uint32_t device_id = 0;
    std::uint32_t ioas = 0;
};

/// Opens, binds, allocates and attaches. `rlimit_mode` is set first, while the iommufd still is empty (it must be).
/// Error: of the step that failed, with its errno and what to do.
[[nodiscard]] Result<Session> open_session(const Requests& requests, const std::string& cdev,
                                           std::optional<std::uint64_t> rlimit_mode = {});

/// Memory that two processes can see, and its file.
struct SharedMemory {
    os::Fd file;
    os::Mapping view;
};
/// A memfd of `length` bytes, mapped. `flags` as for memfd_create(2). Error: ENOMEM, EMFILE.
[[nodiscard]] Result<SharedMemory> make_shared_memory(const Requests& requests, const char* name, std::uint64_t length,
                                                      unsigned flags = 0);

} // namespace upcie::probes
