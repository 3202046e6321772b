// SPDX-License-Identifier: BSD-3-Clause
#include "channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

namespace upcie::probes {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_message = 128 * 1024; // below a socket's default buffer (net.core.wmem_default, 208 KiB)
constexpr std::size_t max_fds = 8;
const char* const magic = "upcie-probe";

/// Waits until `events` are possible. Error: ETIMEDOUT.
Result<void> wait_for(os::System& system, int fd, short events, Clock::time_point deadline, const char* for_what) {
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd wait{fd, events, 0};
        const int ready = system.poll(&wait, 1, std::max(0, static_cast<int>(left.count())));
        if (ready > 0) {
            return {};
        }
        if (ready == 0) {
            return fail(ETIMEDOUT, for_what, "the other process",
                        "Is it running, with the same --socket? --timeout gives more time.");
        }
        if (errno != EINTR) {
            return fail(errno, "poll", "the probe's socket", "This is unexpected: run the probe again.");
        }
    }
}

/// Whether the other end has closed without a word.
bool has_left(os::System& system, int socket) {
    std::byte first{};
    iovec part{&first, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return system.recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) == 0;
}

} // namespace

Result<Channel> Channel::connect(os::System& system, const std::string& path, std::chrono::milliseconds patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    for (;;) {
        Result<os::Connection> connection = os::Connection::connect(system, path);
        if (connection) {
            return over(system, std::move(*connection), patience);
        }
        Error error = std::move(connection.error());
        if (error.is(EACCES)) {
            error.hint = "The primary admits its own user only: start it with --allow-uid and this user's number.";
        }
        // Not there yet, or the name is a killed run's: the other side may still come.
        const bool may_come = error.is(ENOENT) || error.is(ECONNREFUSED) || error.is(EAGAIN);
        if (!may_come) {
            return tl::unexpected{std::move(error)};
        }
        if (Clock::now() >= deadline) {
            return fail(ETIMEDOUT, "connect", path,
                        fmt::format("The last attempt said {}: start the other process first, with the same --socket.",
                                    errno_name(error.code)));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
}

Result<Channel> Channel::over(os::System& system, os::Connection connection, std::chrono::milliseconds patience) {
    os::Fd socket = std::move(connection).release();
    // Nothing here may wait longer than its patience.
    if (system.fcntl(socket.get(), F_SETFL, O_NONBLOCK) < 0) {
        return fail(errno, "fcntl(F_SETFL)", "the probe's socket", "This is unexpected: run the probe again.");
    }
    return Channel{system, std::move(socket), patience};
}

Result<void> Channel::send(const std::string& type, const Value& data, const std::vector<int>& fds) {
    const Value envelope = {{"magic", magic}, {"version", channel_version}, {"type", type}, {"data", data}};
    std::string text = envelope.dump();
    if (text.size() > max_message || fds.size() > max_fds) {
        return fail(EMSGSIZE, "send", type, "The message has more bytes or descriptors than the probes exchange.");
    }
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(max_fds * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    const Clock::time_point deadline = Clock::now() + patience_;
    for (;;) {
        // A dead peer must be an error here and not a signal. A packet goes whole or not at all.
        if (system_.sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) {
            return {};
        }
        if (errno != EAGAIN && errno != EINTR) {
            return fail(errno, "sendmsg of \"" + type + "\"", "the other process",
                        "It ended early: its own output says why.");
        }
        Result<void> room = wait_for(system_, socket_.get(), POLLOUT, deadline, "sending a message");
        if (!room) {
            return room;
        }
    }
}

Result<Message> Channel::receive() {
    if (Result<void> ready =
            wait_for(system_, socket_.get(), POLLIN, Clock::now() + patience_, "waiting for a message");
        !ready) {
        return tl::unexpected{ready.error()};
    }
    std::string text(max_message, '\0');
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(max_fds * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = system_.recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) {
        return fail(errno, "recvmsg", "the other process", "It ended early: its own output says why.");
    }
    if (got == 0) {
        return fail(ECONNRESET, "recvmsg", "the other process", "It ended early: its own output says why.");
    }
    Message result;
    // Descriptors first: they are this process's now, whatever the text turns out to be.
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            result.fds.emplace_back(system_, fd);
        }
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return fail(EPROTO, "recvmsg", "the other process",
                    "The message did not fit: both sides must be of one build.");
    }
    text.resize(static_cast<std::size_t>(got));
    const Value envelope = Value::parse(text, nullptr, false);
    if (!envelope.is_object() || envelope.value("magic", Value{}) != magic) {
        return fail(EPROTO, "reading a message", "the other process", "That is no probe: check --socket.");
    }
    const Value version = envelope.value("version", Value{});
    if (version != channel_version) {
        return fail(EPROTO, "reading a message", "the other process",
                    fmt::format("It speaks version {} and this one {}: use the same build on both sides.",
                                version.dump(), channel_version));
    }
    const Value type = envelope.value("type", Value{});
    if (!type.is_string() || !envelope.contains("data")) {
        return fail(EPROTO, "reading a message", "the other process", "The message lacks its type or its data.");
    }
    result.type = type.get<std::string>();
    result.data = envelope.at("data");
    return result;
}

Result<Message> Channel::expect(const std::string& type) {
    Result<Message> message = receive();
    if (!message || message->type == type) {
        return message;
    }
    if (message->type == "failed" && message->data.is_object()) {
        return fail(EPROTO, "the other process", message->data.value("operation", "its part"),
                    message->data.value("message", "It gave no reason."));
    }
    return fail(
        EPROTO, "reading a message", "the other process",
        fmt::format("It sent \"{}\" where \"{}\" was due: use the same build on both sides.", message->type, type));
}

Result<void> Channel::wait_for_end() {
    Result<Message> last = receive();
    if (last) {
        return fail(EPROTO, "waiting for the end", "the other process",
                    fmt::format("It sent \"{}\" instead of ending.", last->type));
    }
    if (last.error().is(ECONNRESET)) {
        return {};
    }
    return tl::unexpected{last.error()};
}

Result<Listener> Listener::open(os::System& system, const std::string& path, std::vector<std::uint32_t> admitted) {
    const std::uint32_t self = ::geteuid();
    const bool others =
        std::any_of(admitted.begin(), admitted.end(), [self](std::uint32_t uid) { return uid != self; });
    Result<os::Listener> socket =
        os::Listener::listen(system, path, os::SocketKind::seqpacket, others ? mode_t{0666} : mode_t{0600});
    if (!socket) {
        Error error = std::move(socket.error());
        error.hint += error.hint.empty() ? "--socket chooses another name." : " (--socket)";
        return tl::unexpected{std::move(error)};
    }
    admitted.push_back(self);
    return Listener{system, std::move(*socket), std::move(admitted)};
}

Result<Channel> Listener::accept(std::chrono::milliseconds patience) {
    return accept(patience, patience);
}

Result<Channel> Listener::accept(std::chrono::milliseconds patience, std::chrono::milliseconds talking) {
    const Clock::time_point deadline = Clock::now() + patience;
    std::string refused;
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        Result<os::Connection> connection = socket_.accept(std::max(left, std::chrono::milliseconds{0}));
        if (!connection) {
            Error error = std::move(connection.error());
            if (error.is(ETIMEDOUT)) {
                error.hint = "Is the other process running, with the same --socket? --timeout gives more time.";
            }
            if (!refused.empty()) {
                error.hint += " Turned away: uid" + refused + " (--allow-uid admits them).";
            }
            return tl::unexpected{std::move(error)};
        }
        const Result<os::PeerCredentials> peer = connection->peer();
        if (!peer) {
            return tl::unexpected{peer.error()};
        }
        if (std::find(admitted_.begin(), admitted_.end(), peer->uid) != admitted_.end()) {
            if (has_left(system_, connection->fd())) {
                continue; // one that only looked whether somebody listens, say
            }
            return Channel::over(system_, std::move(*connection), talking);
        }
        refused += fmt::format(" {}", peer->uid);
    }
}

} // namespace upcie::probes
