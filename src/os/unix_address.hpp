// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <sys/socket.h>
#include <sys/un.h>

#include <upcie/os/fd_passing.hpp>
#include <upcie/result.hpp>

namespace upcie::os {

/// The address of a named UNIX socket; "@name" is abstract: no file, gone with its process, without permissions.
struct UnixAddress {
    struct sockaddr_un storage {};
    socklen_t length = 0;
    [[nodiscard]] const struct sockaddr* get() const noexcept {
        return reinterpret_cast<const struct sockaddr*>(&storage);
    }
};

[[nodiscard]] Result<UnixAddress> make_unix_address(const std::string& name);
/// `flags`: SOCK_NONBLOCK or none.
[[nodiscard]] Result<Fd> make_unix_socket(System& system, SocketKind kind, int flags = 0);

} // namespace upcie::os
