// SPDX-License-Identifier: BSD-3-Clause
#include "fuse_nodes.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "supervisor.hpp"
#include "target_calls.hpp"

namespace upcie::rm::test {

namespace {

constexpr std::array<std::string_view, 3> names{"control", "gpu", "uvm"};
constexpr std::uint64_t first_inode = 2; // after the root's
constexpr std::uint64_t file_bytes = 8192;

fuse_attr attributes_of(std::uint64_t inode) {
    fuse_attr attributes{};
    attributes.ino = inode;
    attributes.mode = inode == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
    attributes.size = inode == FUSE_ROOT_ID ? 0 : file_bytes;
    attributes.nlink = 1;
    attributes.blksize = 4096;
    return attributes;
}

class Answer {
  public:
    Answer(int connection, std::uint64_t unique) : connection_{connection}, unique_{unique} {}
    void error(int code) const { send(-code, nullptr, 0, nullptr, 0); }
    template <class T>
    void with(const T& body) const {
        send(0, &body, sizeof body, nullptr, 0);
    }
    template <class T>
    void with(const T& body, const std::vector<unsigned char>& data) const {
        send(0, &body, sizeof body, data.data(), data.size());
    }
    void bytes(const std::vector<unsigned char>& data) const { send(0, data.data(), data.size(), nullptr, 0); }

  private:
    void send(int error, const void* body, std::size_t size, const void* data, std::size_t more) const {
        fuse_out_header head{};
        head.len = static_cast<std::uint32_t>(sizeof head + size + more);
        head.error = error;
        head.unique = unique_;
        const std::array<iovec, 3> parts{
            {{&head, sizeof head}, {const_cast<void*>(body), size}, {const_cast<void*>(data), more}}};
        [[maybe_unused]] const ssize_t sent = ::writev(connection_, parts.data(), 3);
    }
    int connection_;
    std::uint64_t unique_;
};

void answer_ioctl(const Answer& answer, pid_t tid, const fuse_ioctl_in& call) {
    const int problem = target::answer_ioctl(tid, call.cmd, call.arg);
    if (problem != 0) {
        answer.error(problem);
        return;
    }
    // The kernel copies out what comes with the answer: the same that lies there already.
    std::vector<unsigned char> argument(call.out_size);
    const iovec local{argument.data(), argument.size()};
    const iovec there{reinterpret_cast<void*>(call.arg), argument.size()};
    if (!argument.empty() &&
        ::process_vm_readv(tid, &local, 1, &there, 1, 0) != static_cast<ssize_t>(argument.size())) {
        answer.error(EFAULT);
        return;
    }
    answer.with(fuse_ioctl_out{}, argument);
}

} // namespace

FuseNodes::FuseNodes(std::string folder) : folder_{std::move(folder)} {
    connection_ = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (connection_ < 0) {
        problem_ = fmt::format("/dev/fuse: {}", std::strerror(errno));
        return;
    }
    const std::string options =
        fmt::format("fd={},rootmode=40000,user_id={},group_id={},allow_other", connection_, ::geteuid(), ::getegid());
    if (::mount("upcie_test", folder_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
        problem_ = fmt::format("mounting FUSE: {}", std::strerror(errno));
        ::close(connection_);
        connection_ = -1;
        return;
    }
    server_ = std::thread{[this] { serve(); }};
}

FuseNodes::~FuseNodes() {
    if (server_.joinable()) {
        ::umount2(folder_.c_str(), MNT_DETACH); // ends the connection once nothing is open: read answers ENODEV
        server_.join();
    }
    if (connection_ >= 0) {
        ::close(connection_);
    }
}

void FuseNodes::serve() const {
    std::vector<unsigned char> request(FUSE_MIN_READ_BUFFER + 65536);
    for (;;) {
        const ssize_t got = ::read(connection_, request.data(), request.size());
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) {
            continue;
        }
        if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) {
            return;
        }
        const auto head = target::get<fuse_in_header>(request.data(), 0);
        const void* const body = request.data() + sizeof head;
        const Answer answer{connection_, head.unique};
        switch (head.opcode) {
        case FUSE_INIT: {
            fuse_init_out out{};
            out.major = FUSE_KERNEL_VERSION;
            out.minor = 31;
            out.max_write = 65536;
            answer.with(out);
            break;
        }
        case FUSE_LOOKUP: {
            const std::string_view wanted{static_cast<const char*>(body)};
            fuse_entry_out out{};
            for (std::size_t i = 0; i < names.size(); ++i) {
                out.nodeid = names[i] == wanted ? first_inode + i : out.nodeid;
            }
            if (out.nodeid == 0) {
                answer.error(ENOENT);
                break;
            }
            out.attr = attributes_of(out.nodeid);
            answer.with(out);
            break;
        }
        case FUSE_GETATTR: {
            fuse_attr_out out{};
            out.attr = attributes_of(head.nodeid);
            answer.with(out);
            break;
        }
        case FUSE_OPEN:
            answer.with(fuse_open_out{});
            break;
        case FUSE_READ:
            answer.bytes(std::vector<unsigned char>(
                std::min<std::size_t>(target::get<fuse_read_in>(body, 0).size, file_bytes), 0x77));
            break;
        case FUSE_IOCTL:
            answer_ioctl(answer, static_cast<pid_t>(head.pid), target::get<fuse_ioctl_in>(body, 0));
            break;
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_ACCESS:
            answer.error(0);
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break; // no answer is due
        case FUSE_DESTROY:
            answer.error(0);
            return;
        default:
            answer.error(ENOSYS);
            break;
        }
    }
}

} // namespace upcie::rm::test
