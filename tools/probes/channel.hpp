// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "report.hpp"

namespace upcie::probes {

/// Version of the messages between a probe's processes; both sides must have the same.
constexpr int channel_version = 1;

/// What travels: a word, its data, and descriptors.
struct Message {
    std::string type;
    Value data = Value::object();
    std::vector<os::Fd> fds;
};

/// Who is at the other end, as the kernel knows it (SO_PEERCRED: at the time of connecting).
struct Peer {
    pid_t pid = 0;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
};

/// One end of a connection between two processes of a probe. Every wait ends by itself.
///
/// Owns its socket. Threads: one.
class Channel {
  public:
    /// `socket` is a connected SOCK_SEQPACKET.
    Channel(os::System& system, os::Fd socket, std::chrono::milliseconds patience) noexcept
        : system_{system}, socket_{std::move(socket)}, patience_{patience} {}

    /// Connects to a named socket, trying until `patience` has passed: the other side may start later.
    /// Errors: ETIMEDOUT (nobody listens there), EACCES (the socket's owner did not admit this user), ENAMETOOLONG.
    [[nodiscard]] static Result<Channel> connect(os::System& system, const std::string& path,
                                                 std::chrono::milliseconds patience);

    /// The descriptors stay the caller's. Errors: EPIPE (the other side is gone), EMSGSIZE, what sendmsg(2) says.
    Result<void> send(const std::string& type, const Value& data = Value::object(), const std::vector<int>& fds = {});
    /// Errors: ETIMEDOUT, ECONNRESET (the other side ended), EPROTO (another version, or not a probe's message).
    [[nodiscard]] Result<Message> receive();
    /// The same, and EPROTO for a message of another type. A message "failed" becomes the error that the other side
    /// met, with its words.
    [[nodiscard]] Result<Message> expect(const std::string& type);
    /// Waits until the other side has closed, up to the patience. Error: ETIMEDOUT; EPROTO when it still talks.
    [[nodiscard]] Result<void> wait_for_end();

    [[nodiscard]] Result<Peer> peer() const;
    [[nodiscard]] std::chrono::milliseconds patience() const noexcept { return patience_; }

  private:
    os::System& system_;
    os::Fd socket_;
    std::chrono::milliseconds patience_;
};

/// A named socket that waits for the other process. Removes its name when it goes; a name left behind by a killed run
/// is recognised (nobody answers there) and taken over.
class Listener {
  public:
    /// The socket is made for its owner alone, and for everybody where `admitted` names other users: the kernel's word
    /// about the peer decides, not the file's mode.
    /// Errors: EADDRINUSE (a live process listens there), EEXIST (the name is something else than a socket),
    /// ENAMETOOLONG, what bind(2) says.
    [[nodiscard]] static Result<Listener> open(os::System& system, std::string path,
                                               std::vector<std::uint32_t> admitted);
    Listener(Listener&& other) noexcept
        : system_{other.system_},
          path_{std::exchange(other.path_, {})},
          socket_{std::move(other.socket_)},
          admitted_{std::move(other.admitted_)} {}
    Listener& operator=(Listener&&) = delete;
    ~Listener();

    /// The first peer of an admitted user; others are turned away. Error: ETIMEDOUT, naming who was turned away.
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds patience);
    /// The same with another patience for what is then said.
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds patience, std::chrono::milliseconds talking);

  private:
    Listener(os::System& system, std::string path, os::Fd socket, std::vector<std::uint32_t> admitted)
        : system_{&system}, path_{std::move(path)}, socket_{std::move(socket)}, admitted_{std::move(admitted)} {}

    os::System* system_;
    std::string path_; ///< empty once moved from
    os::Fd socket_;
    std::vector<std::uint32_t> admitted_;
};

} // namespace upcie::probes
