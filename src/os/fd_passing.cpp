// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/fd_passing.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <os/unix_address.hpp>

namespace upcie::os {

namespace {

/// What precedes every message on a stream: host byte order, since a UNIX socket never leaves the host.
struct StreamHeader {
    std::uint32_t magic = magic_value;
    std::uint32_t length = 0;
    static constexpr std::uint32_t magic_value = 0x31504355; // "UCP1"
};

/// Waits until `fd` can be read. A signal does not prolong the time.
Result<void> wait_readable(System& system, int fd, Timeout timeout, const char* operation) {
    using Clock = std::chrono::steady_clock;
    if (!timeout) {
        return {};
    }
    const auto end = Clock::now() + *timeout;
    while (true) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        struct pollfd entry {};
        entry.fd = fd;
        entry.events = POLLIN;
        const int ready =
            system.poll(&entry, 1, static_cast<int>(std::clamp<long long>(left, 0, std::numeric_limits<int>::max())));
        if (ready > 0) {
            return {};
        }
        if (ready < 0 && errno != EINTR) {
            const int code = errno;
            return fail(code, "poll", fmt::format("socket {}", fd), {});
        }
        if (ready == 0 || Clock::now() >= end) {
            return fail(ETIMEDOUT, operation, fmt::format("socket {}", fd),
                        fmt::format("Nothing came within {} ms.", timeout->count()));
        }
    }
}

std::string send_hint(int code) {
    switch (code) {
    case EPIPE:
    case ECONNRESET:
        return "The other process has closed the connection or ended.";
    case EBADF:
        return "One of the descriptors to pass, or the socket, is not open.";
    case ETOOMANYREFS:
        return "Too many descriptors are on their way in sockets: the receiver must take some first.";
    case EMSGSIZE:
    case ENOBUFS:
        return "The message does not fit the socket's buffer (net.core.wmem_max).";
    default:
        return {};
    }
}

} // namespace

Result<Connection> Connection::connect(System& system, const std::string& name, SocketKind kind) {
    const auto address = make_unix_address(name);
    if (!address) {
        return tl::unexpected{address.error()};
    }
    auto socket = make_unix_socket(system, kind, SOCK_NONBLOCK);
    if (!socket) {
        return tl::unexpected{std::move(socket.error())};
    }
    int answer = -1;
    do {
        answer = system.connect(socket->get(), address->get(), address->length);
    } while (answer != 0 && errno == EINTR);
    if (answer != 0) {
        const int code = errno;
        std::string hint;
        switch (code) {
        case ENOENT:
            hint = "No such socket: is the other process running, and the name the same?";
            break;
        case ECONNREFUSED:
            hint = "Nobody listens there: the process that made the socket has ended.";
            break;
        case EACCES:
            hint = "This user may not write to the socket or search its folder.";
            break;
        case EAGAIN:
            hint = "The other process has not accepted those who came before: try again.";
            break;
        case EPROTOTYPE:
            hint = "The other end is a socket of the other kind (stream and seqpacket do not meet).";
            break;
        default:
            break;
        }
        return fail(code, "connect", name, std::move(hint));
    }
    if (system.fcntl(socket->get(), F_SETFL, 0) != 0) { // connecting alone does not wait
        const int code = errno;
        return fail(code, "fcntl(F_SETFL)", name,
                    "This is unexpected: does a filter of system calls (seccomp) refuse it?");
    }
    return Connection{system, std::move(*socket), kind};
}

Result<void> Connection::send_message(std::span<const std::byte> bytes, std::span<const int> fds) {
    const auto subject = [&] {
        return fmt::format("socket {}, {} bytes with {} descriptors", fd(), bytes.size(), fds.size());
    };
    if (bytes.empty() || bytes.size() > largest_message || fds.size() > most_fds) {
        return fail(EINVAL, "send message", subject(),
                    fmt::format("A message has 1 to {} bytes and at most {} descriptors.", largest_message, most_fds));
    }
    StreamHeader header;
    header.length = static_cast<std::uint32_t>(bytes.size());
    std::vector<std::byte> whole;
    if (kind_ == SocketKind::stream) {
        whole.resize(sizeof header);
        std::memcpy(whole.data(), &header, sizeof header);
    }
    whole.insert(whole.end(), bytes.begin(), bytes.end());

    alignas(struct cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * most_fds)> control{};
    std::size_t sent = 0;
    while (sent < whole.size()) {
        struct iovec piece {
            whole.data() + sent, whole.size() - sent
        };
        struct msghdr message {};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        if (sent == 0 && !fds.empty()) { // the descriptors ride on the first byte
            message.msg_control = control.data();
            message.msg_controllen = CMSG_SPACE(fds.size_bytes());
            struct cmsghdr* const entry = CMSG_FIRSTHDR(&message);
            entry->cmsg_level = SOL_SOCKET;
            entry->cmsg_type = SCM_RIGHTS;
            entry->cmsg_len = CMSG_LEN(fds.size_bytes());
            std::memcpy(CMSG_DATA(entry), fds.data(), fds.size_bytes());
        }
        // The peer's end is an errno here, not a SIGPIPE that ends this process.
        const ssize_t put = system_->sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
        if (put < 0) {
            const int code = errno;
            if (code == EINTR) {
                continue;
            }
            return fail(code, "sendmsg", subject(), send_hint(code));
        }
        sent += static_cast<std::size_t>(put);
    }
    return {};
}

Result<Connection::Part> Connection::receive_part(std::byte* into, std::size_t room, bool with_fds, Timeout timeout) {
    const auto subject = fmt::format("socket {}", fd());
    if (auto ready = wait_readable(*system_, socket_.get(), timeout, "receive message"); !ready) {
        return tl::unexpected{std::move(ready.error())};
    }
    alignas(struct cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * most_fds)> control{};
    struct iovec piece {
        into, room
    };
    struct msghdr message {};
    ssize_t got = -1;
    do {
        message = {};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        got = system_->recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        const int code = errno;
        return fail(code, "recvmsg", subject, send_hint(code));
    }
    // Whatever came is owned before anything is judged, so that a refused message leaks no descriptor.
    Part part;
    part.bytes = static_cast<std::size_t>(got);
    for (struct cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr; entry = CMSG_NXTHDR(&message, entry)) {
        if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int number = -1;
            std::memcpy(&number, CMSG_DATA(entry) + i * sizeof(int), sizeof number);
            part.fds.emplace_back(*system_, number);
        }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return fail(
            EMSGSIZE, "receive message", subject,
            fmt::format("Descriptors were cut off: more than {} were sent, or this process is at its limit of open "
                        "files (ulimit -n), or a security module forbids one. Those that came were closed.",
                        most_fds));
    }
    if ((message.msg_flags & MSG_TRUNC) != 0) {
        return fail(EMSGSIZE, "receive message", subject, "The message is longer than a message may be.");
    }
    if (!with_fds && !part.fds.empty()) {
        return fail(EPROTO, "receive message", subject, "Descriptors came in the middle of a message.");
    }
    if (got == 0) {
        return fail(ECONNRESET, "receive message", subject, "The other process has closed the connection or ended.");
    }
    return part;
}

Result<Message> Connection::receive_message(Timeout timeout) {
    Message result;
    if (kind_ == SocketKind::seqpacket) {
        result.bytes.resize(largest_message);
        auto part = receive_part(result.bytes.data(), result.bytes.size(), true, timeout);
        if (!part) {
            return tl::unexpected{std::move(part.error())};
        }
        result.bytes.resize(part->bytes);
        result.fds = std::move(part->fds);
        return result;
    }
    const auto fill = [&](std::byte* into, std::size_t wanted, bool first) -> Result<void> {
        for (std::size_t done = 0; done < wanted;) {
            auto part = receive_part(into + done, wanted - done, first && done == 0, timeout);
            if (!part) {
                return tl::unexpected{std::move(part.error())};
            }
            done += part->bytes;
            for (Fd& fd : part->fds) {
                result.fds.push_back(std::move(fd));
            }
        }
        return {};
    };
    std::array<std::byte, sizeof(StreamHeader)> raw{};
    if (auto filled = fill(raw.data(), raw.size(), true); !filled) {
        return tl::unexpected{std::move(filled.error())};
    }
    StreamHeader header;
    std::memcpy(&header, raw.data(), sizeof header);
    if (header.magic != StreamHeader::magic_value || header.length == 0 || header.length > largest_message) {
        return fail(
            EPROTO, "receive message", fmt::format("socket {}", fd()),
            "What came is no message of this library: another program is at the other end, or another version.");
    }
    result.bytes.resize(header.length);
    if (auto filled = fill(result.bytes.data(), result.bytes.size(), false); !filled) {
        return tl::unexpected{std::move(filled.error())};
    }
    return result;
}

Result<PeerCredentials> peer_of(System& system, int socket) {
    struct ucred credentials {};
    socklen_t length = sizeof credentials;
    if (system.getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
        const int code = errno;
        return fail(code, "SO_PEERCRED", fmt::format("socket {}", socket), "It has to be a connected UNIX socket.");
    }
    return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<Connection> Listener::accept(Timeout timeout) {
    if (auto ready = wait_readable(*system_, socket_.get(), timeout, "accept"); !ready) {
        Error error = std::move(ready.error());
        error.subject = name_;
        return tl::unexpected{std::move(error)};
    }
    int number = -1;
    do {
        number = system_->accept(socket_.get(), SOCK_CLOEXEC);
    } while (number < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (number < 0) {
        const int code = errno;
        return fail(code, "accept", name_, code == EMFILE ? "Raise this process's descriptor limit (ulimit -n)." : "");
    }
    return Connection{*system_, Fd{*system_, number}, kind_};
}

} // namespace upcie::os
