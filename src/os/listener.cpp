// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/os/fd_passing.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

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

Result<Fd> make_unix_socket(System& system, SocketKind kind, int flags) {
    const int type = kind == SocketKind::stream ? SOCK_STREAM : SOCK_SEQPACKET;
    const int number = system.socket(AF_UNIX, type | SOCK_CLOEXEC | flags, 0);
    if (number < 0) {
        const int code = errno;
        return fail(code, "socket", "AF_UNIX",
                    code == EMFILE ? "Raise this process's descriptor limit (ulimit -n)." : "");
    }
    return Fd{system, number};
}

namespace {

constexpr int backlog = 8;

tl::unexpected<Error> somebody_listens(const std::string& name) {
    return fail(
        EADDRINUSE, "bind", name,
        "Another process listens there, or the socket is another user's: end that process, or choose another name.");
}

/// The folder of `name`, locked: of all that would take a dead name over, one at a time looks and acts. Between its
/// look and its unlink(2) another's living socket would otherwise have come under the same name. Errors: EBUSY
/// (somebody else holds a lock on the folder for a second), what open(2) and flock(2) say.
Result<Fd> lock_folder(System& system, const std::string& name) {
    const std::size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : name.substr(0, slash + 1);
    Fd lock{system, system.open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!lock) {
        const int code = errno;
        return fail(code, "open", folder, "A dead socket in a folder that this user may not read stays: remove it.");
    }
    constexpr int tries = 100;
    for (int attempt = 1; system.flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
        const int code = errno;
        if (code != EINTR && code != EWOULDBLOCK) {
            return fail(code, "flock", folder, "Choose a folder on a file system that has locks.");
        }
        if (attempt == tries) {
            return fail(EBUSY, "flock", folder, "Another process keeps that folder locked: choose another one.");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    return lock;
}

/// Whether `name` is nobody's: left behind by a process that was killed, or just gone. Errors: EADDRINUSE (somebody
/// answers there), EEXIST (no socket).
Result<void> is_dead(System& system, const std::string& name, SocketKind kind, const UnixAddress& address) {
    struct stat status {};
    if (system.stat(name.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
        return fail(EEXIST, "bind", name, "There is a file of that name which is no socket: choose another name.");
    }
    const auto trial = make_unix_socket(system, kind, SOCK_NONBLOCK); // a full queue must not make it wait
    if (!trial) {
        return tl::unexpected{trial.error()};
    }
    if (system.connect(trial->get(), address.get(), address.length) != 0 &&
        (errno == ECONNREFUSED || errno == ENOENT)) {
        return {};
    }
    return somebody_listens(name);
}

/// Takes a dead `name` away. Errors: those of is_dead() and lock_folder(), what unlink(2) says. The lock is the
/// caller's until the name is taken.
Result<Fd> remove_dead(System& system, const std::string& name, SocketKind kind, const UnixAddress& address) {
    // Who lives is told without a lock, which takes permission to read the folder.
    if (auto dead = is_dead(system, name, kind, address); !dead) {
        return tl::unexpected{std::move(dead.error())};
    }
    auto lock = lock_folder(system, name);
    if (!lock) {
        return lock;
    }
    if (auto dead = is_dead(system, name, kind, address); !dead) {
        return tl::unexpected{std::move(dead.error())};
    }
    if (system.unlink(name.c_str()) != 0 && errno != ENOENT) {
        const int code = errno;
        return fail(code, "unlink", name, "A socket left behind by a process that was killed cannot be removed.");
    }
    return lock;
}

/// A name in the folder of `name` that no other thread or process of this moment makes; at most 20 bytes of its own.
std::string passing_name(const std::string& name) {
    static std::atomic<std::uint32_t> made{0};
    const std::size_t folder = name.rfind('/') + 1; // npos + 1: no folder
    return fmt::format("{}.{:x}.{:x}", name.substr(0, folder), ::getpid(), made.fetch_add(1) + 1);
}

/// Removes a passing name, whatever else happens.
class PassingName {
  public:
    PassingName(System& system, std::string name) : system_{system}, name_{std::move(name)} {}
    PassingName(const PassingName&) = delete;
    PassingName& operator=(const PassingName&) = delete;
    ~PassingName() { system_.unlink(name_.c_str()); }
    [[nodiscard]] const char* c_str() const noexcept { return name_.c_str(); }

  private:
    System& system_;
    std::string name_;
};

tl::unexpected<Error> cannot_bind(int code, const std::string& name) {
    std::string hint;
    if (code == EADDRINUSE) {
        hint = name[0] == '@' ? "Another process listens on this abstract name."
                              : "Killed processes left sockets named .<number>.<number> in its folder: remove them.";
    } else if (code == EACCES || code == ENOENT || code == EROFS) {
        hint = "Its folder must exist and let this user write.";
    }
    return fail(code, "bind", name, std::move(hint));
}

tl::unexpected<Error> cannot_listen(int code, const std::string& name) {
    return fail(code, "listen", name, "This is unexpected of a new socket: is memory used up?");
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
    Listener listener{system, std::move(*socket), kind, name};
    if (name[0] == '@') {
        if (system.bind(listener.fd(), address->get(), address->length) != 0) {
            return cannot_bind(errno, name);
        }
        if (system.listen(listener.fd(), backlog) != 0) {
            return cannot_listen(errno, name);
        }
        return listener;
    }
    if (auto named = listener.take_name(*address, mode); !named) {
        return tl::unexpected{std::move(named.error())};
    }
    return listener;
}

Result<void> Listener::take_name(const UnixAddress& address, mode_t mode) {
    std::string passing;
    int code = EADDRINUSE;
    // A passing name may be in use where process numbers repeat: another PID namespace's, or a killed process's.
    for (int attempt = 0; attempt < 64 && code == EADDRINUSE; ++attempt) {
        passing = passing_name(name_);
        const auto first_address = make_unix_address(passing);
        if (!first_address) {
            return fail(EINVAL, "name socket", name_,
                        fmt::format("Its folder's path leaves no room for a name: a path has at most {} bytes.",
                                    sizeof address.storage.sun_path - 1));
        }
        code = system_->bind(fd(), first_address->get(), first_address->length) == 0 ? 0 : errno;
    }
    if (code != 0) {
        return cannot_bind(code, name_);
    }
    const PassingName guard{*system_, std::move(passing)};
    struct stat status {};
    if (system_->chmod(guard.c_str(), mode) != 0 || system_->stat(guard.c_str(), &status) != 0) {
        code = errno;
        return fail(code, "chmod", name_, "The new socket's permissions could not be set.");
    }
    if (system_->listen(fd(), backlog) != 0) {
        return cannot_listen(errno, name_);
    }
    code = system_->link(guard.c_str(), name_.c_str()) == 0 ? 0 : errno;
    if (code == EEXIST) {
        const auto lock = remove_dead(*system_, name_, kind_, address);
        if (!lock) {
            return tl::unexpected{lock.error()};
        }
        code = system_->link(guard.c_str(), name_.c_str()) == 0 ? 0 : errno;
    }
    if (code == EEXIST) { // somebody who found no name there was quicker
        return somebody_listens(name_);
    }
    if (code != 0) {
        return fail(code, "link", name_, "The folder's file system must have hard links (ext4, xfs, btrfs, tmpfs do).");
    }
    device_ = status.st_dev;
    inode_ = status.st_ino;
    return {};
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
