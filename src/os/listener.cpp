// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/fd_passing.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include <os/unix_address.hpp>

namespace upcie::os {

Result<UnixAddress> make_unix_address(const std::string& name) {
    UnixAddress address;
    // One byte stays for the end of a path; an abstract name's first byte is 0 in place of '@'.
    if (name.empty() || name == "@" || name.size() >= sizeof address.storage.sun_path ||
        name.find('\0') != std::string::npos) {
        return fail(EINVAL, "name socket", name,
                    fmt::format("A name has 1 to {} bytes.", sizeof address.storage.sun_path - 1));
    }
    address.storage.sun_family = AF_UNIX;
    std::memcpy(&address.storage.sun_path[0], name.data(), name.size());
    address.length = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + name.size());
    if (name[0] == '@') {
        address.storage.sun_path[0] = '\0'; // an abstract name is as long as the length says, with no end mark
    } else {
        address.length += 1;
    }
    return address;
}

Result<Fd> make_unix_socket(System& system, SocketKind kind) {
    const int number =
        system.socket(AF_UNIX, (kind == SocketKind::stream ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC, 0);
    if (number < 0) {
        const int code = errno;
        return fail(code, "socket", "AF_UNIX",
                    code == EMFILE ? "Raise this process's descriptor limit (ulimit -n)." : "");
    }
    return Fd{system, number};
}

namespace {

/// Takes a name away that a process left behind when it was killed: nobody answers there.
Result<void> remove_stale(System& system, const std::string& name, SocketKind kind, const UnixAddress& address) {
    struct stat status {};
    if (name[0] == '@') {
        return fail(EADDRINUSE, "bind", name, "Another process listens on this abstract name.");
    }
    if (system.stat(name.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
        return fail(EEXIST, "bind", name, "There is a file of that name which is no socket: choose another name.");
    }
    auto probe = make_unix_socket(system, kind);
    if (!probe) {
        return tl::unexpected{std::move(probe.error())};
    }
    if (system.connect(probe->get(), address.get(), address.length) == 0 || errno != ECONNREFUSED) {
        return fail(EADDRINUSE, "bind", name, "Another process listens there: end it, or choose another name.");
    }
    if (system.unlink(name.c_str()) != 0 && errno != ENOENT) {
        const int code = errno;
        return fail(code, "unlink", name, "A socket left behind by a process that was killed cannot be removed.");
    }
    return {};
}

} // namespace

Result<Listener> Listener::listen(System& system, const std::string& name, SocketKind kind, mode_t mode) {
    const auto address = make_unix_address(name);
    if (!address) {
        return tl::unexpected{address.error()};
    }
    auto socket = make_unix_socket(system, kind);
    if (!socket) {
        return tl::unexpected{std::move(socket.error())};
    }
    int bound = system.bind(socket->get(), address->get(), address->length);
    if (bound != 0 && errno == EADDRINUSE) {
        if (auto removed = remove_stale(system, name, kind, *address); !removed) {
            return tl::unexpected{std::move(removed.error())};
        }
        bound = system.bind(socket->get(), address->get(), address->length);
    }
    if (bound != 0) {
        const int code = errno;
        return fail(code, "bind", name,
                    code == EACCES || code == ENOENT || code == EROFS ? "Its folder must exist and let this user write."
                                                                      : "");
    }
    Listener listener{system, std::move(*socket), kind, name};
    if (name[0] != '@') {
        struct stat status {};
        // Permissions before listening: until then every connection is refused.
        if (system.stat(name.c_str(), &status) != 0 || system.chmod(name.c_str(), mode) != 0) {
            const int code = errno;
            return fail(code, "chmod", name, "The new socket's permissions could not be set.");
        }
        listener.device_ = status.st_dev;
        listener.inode_ = status.st_ino;
    }
    if (system.listen(listener.fd(), 8) != 0) {
        const int code = errno;
        return fail(code, "listen", name, {});
    }
    return listener;
}

Listener::Listener(Listener&& other) noexcept
    : system_{other.system_},
      socket_{std::move(other.socket_)},
      kind_{other.kind_},
      name_{std::move(other.name_)},
      device_{other.device_},
      inode_{std::exchange(other.inode_, 0)} {}

Listener& Listener::operator=(Listener&& other) noexcept {
    if (this != &other) {
        remove_name();
        system_ = other.system_;
        socket_ = std::move(other.socket_);
        kind_ = other.kind_;
        name_ = std::move(other.name_);
        device_ = other.device_;
        inode_ = std::exchange(other.inode_, 0);
    }
    return *this;
}

Listener::~Listener() {
    remove_name();
}

void Listener::remove_name() noexcept {
    // Somebody may have taken us for dead and put an own socket in place: that one is not ours to remove.
    struct stat status {};
    if (inode_ != 0 && system_->stat(name_.c_str(), &status) == 0 && status.st_dev == device_ &&
        status.st_ino == inode_) {
        system_->unlink(name_.c_str());
    }
    inode_ = 0;
}

} // namespace upcie::os
