// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <upcie/os/fd.hpp>
#include <upcie/os/fd_passing.hpp>
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

/// One end of a connection between two processes of a probe. Every wait ends by itself.
///
/// Owns its socket. Threads: one.
class Channel {
  public:
    /// `socket` is a connected SOCK_SEQPACKET.
    Channel(os::System& system, os::Fd socket, std::chrono::milliseconds patience) noexcept
        : system_{system}, socket_{std::move(socket)}, patience_{patience} {}

    /// Connects to a named socket, trying until `patience` has passed: the other side may start later.
    /// Errors: ETIMEDOUT (nobody listens there), EACCES (the socket's owner did not admit this user), EINVAL (no name
    /// that a socket can have).
    [[nodiscard]] static Result<Channel> connect(os::System& system, const std::string& path,
                                                 std::chrono::milliseconds patience);
    /// Takes over a connection that was made otherwise.
    [[nodiscard]] static Result<Channel> over(os::System& system, os::Connection connection,
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

    /// Who is at the other end, as the kernel knows it (SO_PEERCRED: at the time of connecting).
    [[nodiscard]] Result<os::PeerCredentials> peer() const { return os::peer_of(system_, socket_.get()); }
    [[nodiscard]] std::chrono::milliseconds patience() const noexcept { return patience_; }

  private:
    os::System& system_;
    os::Fd socket_;
    std::chrono::milliseconds patience_;
};

/// A named socket (os::Listener) that waits for the other process, and answers admitted users alone.
class Listener {
  public:
    /// The socket is made for its owner alone, and for everybody where `admitted` names other users: the kernel's word
    /// about the peer decides, not the file's mode. Errors: those of os::Listener::listen.
    [[nodiscard]] static Result<Listener> open(os::System& system, const std::string& path,
                                               std::vector<std::uint32_t> admitted);

    /// The first peer of an admitted user; others are turned away. Error: ETIMEDOUT, naming who was turned away.
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds patience);
    /// The same with another patience for what is then said.
    [[nodiscard]] Result<Channel> accept(std::chrono::milliseconds patience, std::chrono::milliseconds talking);

  private:
    Listener(os::System& system, os::Listener socket, std::vector<std::uint32_t> admitted)
        : system_{system}, socket_{std::move(socket)}, admitted_{std::move(admitted)} {}

    os::System& system_;
    os::Listener socket_;
    std::vector<std::uint32_t> admitted_;
};

} // namespace upcie::probes
