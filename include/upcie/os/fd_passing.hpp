// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>

namespace upcie::os {

struct UnixAddress;

/// Which UNIX socket carries messages. Both ends must agree.
enum class SocketKind : std::uint8_t {
    seqpacket, ///< the kernel keeps message boundaries
    stream,    ///< this library does, with 8 bytes of header a message
};

/// Who connected or listened, as the kernel recorded it then (SO_PEERCRED), in this process's namespaces.
struct PeerCredentials {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};

/// Of a connected UNIX socket. Error: what getsockopt(2) says.
[[nodiscard]] Result<PeerCredentials> peer_of(System& system, int socket);

/// Bytes with the descriptors that came along, close-on-exec, owned.
struct Message {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
};

/// How long to wait; nothing: for ever.
using Timeout = std::optional<std::chrono::milliseconds>;

/// One end of a connection over which descriptors travel.
///
/// Move-only, owns its socket. Threads: one at a time.
class Connection {
  public:
    static constexpr std::size_t largest_message = 65536;
    static constexpr std::size_t most_fds = 16;

    /// Takes over a connected socket (an inherited one, or of a socketpair).
    Connection(System& system, Fd socket, SocketKind kind) noexcept
        : system_{&system}, socket_{std::move(socket)}, kind_{kind} {}
    /// Connects to a named socket; a name that begins with '@' is abstract. Errors: EINVAL (a name of length 0 or
    /// beyond 107 bytes), ENOENT, ECONNREFUSED (nobody listens), EAGAIN (the other process has yet to accept those who
    /// came before), EACCES, EPROTOTYPE (the other end is of the other kind). Never waits.
    [[nodiscard]] static Result<Connection> connect(System& system, const std::string& name,
                                                    SocketKind kind = SocketKind::seqpacket);

    /// Sends 1 to largest_message bytes and up to most_fds descriptors; the caller's descriptors stay open.
    /// Errors: EINVAL (no bytes, too many of either), EBADF, EPIPE and ECONNRESET (the peer is gone), ETOOMANYREFS.
    Result<void> send_message(std::span<const std::byte> bytes, std::span<const int> fds = {});
    /// Receives one message. Nothing is lost half-way: descriptors of a message that is refused are closed.
    /// Errors: ETIMEDOUT, ECONNRESET (the peer closed), EMSGSIZE (bytes or descriptors were cut off: more than there is
    /// room for, or this process is at its descriptor limit), EPROTO (stream: not a message of this library).
    [[nodiscard]] Result<Message> receive_message(Timeout timeout = std::nullopt);
    /// Error: what getsockopt(2) says.
    [[nodiscard]] Result<PeerCredentials> peer() const { return peer_of(*system_, fd()); }

    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    /// The socket itself, for a caller who speaks a protocol of its own over it; the connection is spent.
    [[nodiscard]] Fd release() && noexcept { return std::move(socket_); }

  private:
    struct Part {
        std::size_t bytes = 0;
        std::vector<Fd> fds;
    };
    Result<Part> receive_part(std::byte* into, std::size_t room, bool with_fds, Timeout timeout);

    System* system_;
    Fd socket_;
    SocketKind kind_;
};

/// A named socket that others connect to.
///
/// The name is there only once the socket has its permissions and listens: who waits for the name to come (ENOENT) and
/// then connects is not refused for having been quick. It is made under a passing name in the same folder, which is
/// what getsockname(2) and ss(8) tell.
///
/// Move-only; takes its name away at the end when the name is still its own. A name that a killed process left behind
/// is recognised (nobody answers) and replaced. Threads: one at a time.
class Listener {
  public:
    /// `mode` are the permissions of the name: writing is what connecting needs. An abstract name ("@...") has none:
    /// check peer(). Errors: EINVAL (the name, or one of 20 bytes in its folder, is beyond 107 bytes), EADDRINUSE
    /// (somebody listens there), EEXIST (the path is no socket), EACCES, ENOENT (no such folder), EROFS, EPERM (a file
    /// system without hard links), EBUSY (a dead name in a folder that somebody keeps locked, flock(2)).
    [[nodiscard]] static Result<Listener> listen(System& system, const std::string& name,
                                                 SocketKind kind = SocketKind::seqpacket, mode_t mode = 0600);
    Listener(Listener&& other) noexcept;
    Listener& operator=(Listener&& other) noexcept;
    ~Listener();

    /// Errors: ETIMEDOUT, EMFILE.
    [[nodiscard]] Result<Connection> accept(Timeout timeout = std::nullopt);
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  private:
    Listener(System& system, Fd socket, SocketKind kind, std::string name) noexcept
        : system_{&system}, socket_{std::move(socket)}, kind_{kind}, name_{std::move(name)} {}
    Result<void> take_name(const UnixAddress& address, mode_t mode);
    void remove_name() noexcept;

    System* system_;
    Fd socket_;
    SocketKind kind_;
    std::string name_;
    dev_t device_ = 0; // which inode the name led to when it was made
    ino_t inode_ = 0;
};

} // namespace upcie::os
