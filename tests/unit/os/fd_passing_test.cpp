// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <support/mock_system.hpp>
#include <support/user_emulation.hpp>
#include <upcie/os/fd_passing.hpp>

namespace upcie::os {
namespace {

using namespace std::chrono_literals;
using test::fails_with;
using test::MockSystem;
using testing::_;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* const first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

std::size_t open_descriptors() {
    std::vector<std::string> names;
    real_system().list_directory("/proc/self/fd", names);
    return names.size();
}

class FdPassing : public testing::TestWithParam<SocketKind> {
  protected:
    FdPassing() {
        std::string pattern = (std::filesystem::temp_directory_path() / "upcie-sock-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
        path_ = folder_ + "/socket";
    }
    ~FdPassing() override { std::filesystem::remove_all(folder_); }

    void join(System& system) {
        listener_.emplace(*Listener::listen(system, path_, GetParam()));
        client_.emplace(*Connection::connect(system, path_, GetParam()));
        server_.emplace(*listener_->accept(1s));
    }

    std::size_t entries() {
        std::vector<std::string> names;
        system_.list_directory(folder_.c_str(), names);
        return names.size();
    }

    System& system_ = real_system();
    std::string folder_;
    std::string path_;
    std::optional<Listener> listener_;
    std::optional<Connection> client_;
    std::optional<Connection> server_;
};

TEST_P(FdPassing, BytesAndDescriptorsArriveTogether) {
    join(system_);
    const std::string file = folder_ + "/file";
    std::ofstream{file} << "through the socket";
    const Fd opened = *open_file(system_, file.c_str(), O_RDONLY);
    const Fd null = *open_file(system_, "/dev/null", O_RDWR);
    const std::array<int, 2> fds{opened.get(), null.get()};
    ASSERT_TRUE(client_->send_message(bytes_of("hello"), fds));
    ASSERT_TRUE(client_->send_message(bytes_of("again")));
    const auto first = server_->receive_message(1s);
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_EQ(first->bytes, bytes_of("hello"));
    ASSERT_EQ(first->fds.size(), 2U);
    char text[7]{};
    EXPECT_EQ(system_.pread(first->fds[0].get(), text, 7, 0), 7);
    EXPECT_EQ(std::string(text, 7), "through");
    EXPECT_EQ(system_.fcntl(first->fds[1].get(), F_GETFD, 0), FD_CLOEXEC);
    const auto second = server_->receive_message(1s);
    EXPECT_EQ(second->bytes, bytes_of("again"));
    EXPECT_TRUE(second->fds.empty());
}

TEST_P(FdPassing, TheLargestMessageIsWholeAndMoreIsRefused) {
    join(system_);
    std::vector<std::byte> large(Connection::largest_message);
    for (std::size_t i = 0; i < large.size(); ++i) {
        large[i] = static_cast<std::byte>(i * 7);
    }
    ASSERT_TRUE(client_->send_message(large));
    EXPECT_EQ(server_->receive_message(1s)->bytes, large);
    large.push_back({});
    EXPECT_TRUE(client_->send_message(large).error().is(EINVAL));
    EXPECT_TRUE(client_->send_message({}).error().is(EINVAL));
    const std::vector<int> many(Connection::most_fds + 1, 0);
    EXPECT_TRUE(client_->send_message(bytes_of("x"), many).error().is(EINVAL));
}

TEST_P(FdPassing, TellsWhoIsThere) {
    join(system_);
    const auto peer = server_->peer();
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->pid, ::getpid());
    EXPECT_EQ(peer->uid, ::geteuid());
    EXPECT_EQ(peer->gid, ::getegid());
}

TEST_P(FdPassing, ADepartedPeerAndSilenceAreToldApart) {
    join(system_);
    EXPECT_TRUE(server_->receive_message(10ms).error().is(ETIMEDOUT));
    EXPECT_TRUE(listener_->accept(10ms).error().is(ETIMEDOUT));
    client_.reset();
    EXPECT_TRUE(server_->receive_message(1s).error().is(ECONNRESET));
    EXPECT_TRUE(server_->send_message(bytes_of("x")).error().is(EPIPE)); // and no SIGPIPE
}

TEST_P(FdPassing, TooManyDescriptorsAreNoticedAndLeakNothing) {
    if (test::under_user_emulation()) {
        GTEST_SKIP() << "qemu-user receives with twice the room and does not say that descriptors were cut off";
    }
    join(system_);
    const std::size_t before = open_descriptors();
    // By hand: this library does not send so many.
    const std::vector<int> fds(Connection::most_fds + 4, 0);
    alignas(struct cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * 20)> control{};
    std::uint32_t words[3]{0x31504355, 4, 0};
    struct iovec piece {
        &words[0], sizeof words
    };
    struct msghdr message {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    struct cmsghdr* const entry = CMSG_FIRSTHDR(&message);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(entry), fds.data(), sizeof(int) * fds.size());
    ASSERT_EQ(system_.sendmsg(client_->fd(), &message, 0), 12);
    const auto refused = server_->receive_message(1s);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is(EMSGSIZE));
    EXPECT_THAT(refused.error().hint, HasSubstr("ulimit -n"));
    EXPECT_EQ(open_descriptors(), before);
}

TEST_P(FdPassing, SignalsInterruptNothing) {
    MockSystem mock;
    join(mock);
    EXPECT_CALL(mock, sendmsg(_, _, _)).WillOnce(fails_with(EINTR)).WillRepeatedly([this](auto... all) {
        return system_.sendmsg(all...);
    });
    EXPECT_CALL(mock, recvmsg(_, _, _)).WillOnce(fails_with(EINTR)).WillRepeatedly([this](auto... all) {
        return system_.recvmsg(all...);
    });
    EXPECT_CALL(mock, poll(_, _, _)).WillOnce(fails_with(EINTR)).WillRepeatedly([this](auto... all) {
        return system_.poll(all...);
    });
    EXPECT_TRUE(client_->send_message(bytes_of("x")));
    EXPECT_EQ(server_->receive_message(1s)->bytes, bytes_of("x"));
    client_.reset(); // they close through the mock, which ends here
    server_.reset();
    listener_.reset();
}

TEST_P(FdPassing, ANameLeftBehindByAKilledProcessIsReplaced) {
    {
        Listener killed = *Listener::listen(system_, path_, GetParam());
        std::filesystem::rename(path_, folder_ + "/kept"); // as SIGKILL leaves it: the name stays, nobody listens
    }
    std::filesystem::rename(folder_ + "/kept", path_);
    EXPECT_TRUE(Connection::connect(system_, path_, GetParam()).error().is(ECONNREFUSED));
    auto listener = Listener::listen(system_, path_, GetParam());
    ASSERT_TRUE(listener) << listener.error().message();
    EXPECT_TRUE(Connection::connect(system_, path_, GetParam()));
    EXPECT_TRUE(Listener::listen(system_, path_, GetParam()).error().is(EADDRINUSE)); // one that lives is not
}

TEST_P(FdPassing, ListeningKeepsToItsName) {
    {
        Listener listener = *Listener::listen(system_, path_, GetParam(), 0620);
        struct stat status {};
        ASSERT_EQ(system_.stat(path_.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777U, 0620U);
        const Listener moved{std::move(listener)};
        EXPECT_EQ(system_.stat(path_.c_str(), &status), 0);
    }
    EXPECT_FALSE(std::filesystem::exists(path_)); // taken away once
    {
        const Listener listener = *Listener::listen(system_, path_, GetParam());
        std::filesystem::remove(path_);
        std::ofstream{path_} << "somebody else's";
    }
    EXPECT_TRUE(std::filesystem::exists(path_)); // not ours any more
    EXPECT_TRUE(Listener::listen(system_, path_, GetParam()).error().is(EEXIST));
    EXPECT_TRUE(std::filesystem::exists(path_));
}

// Whoever waits for the name connects at once when it is there: any other moment's answer would be taken for final.
TEST_P(FdPassing, AtEveryMomentANameIsAbsentOrAnswers) {
    testing::NiceMock<test::MockSystemBase> system;
    const auto look = [&] {
        struct stat status {};
        if (::stat(path_.c_str(), &status) != 0) {
            return;
        }
        EXPECT_EQ(status.st_mode & 0777U, 0666U);
        EXPECT_TRUE(Connection::connect(system_, path_, GetParam()));
    };
    ON_CALL(system, bind(_, _, _)).WillByDefault([&](int fd, const struct sockaddr* address, socklen_t length) {
        const int answer = system_.bind(fd, address, length);
        look();
        return answer;
    });
    ON_CALL(system, chmod(_, _)).WillByDefault([&](const char* name, mode_t mode) {
        look();
        const int answer = system_.chmod(name, mode);
        look();
        return answer;
    });
    ON_CALL(system, listen(_, _)).WillByDefault([&](int fd, int room) {
        look();
        const int answer = system_.listen(fd, room);
        look();
        return answer;
    });
    ON_CALL(system, link(_, _)).WillByDefault([&](const char* existing, const char* name) {
        look();
        const int answer = system_.link(existing, name);
        look();
        return answer;
    });
    const mode_t before = ::umask(0077); // which would take the others' permission away
    const auto listener = Listener::listen(system, path_, GetParam(), 0666);
    ::umask(before);
    ASSERT_TRUE(listener) << listener.error().message();
    look();
    EXPECT_EQ(entries(), 1U) << "the passing name has gone";
}

// Whichever step fails, its error is told, and the folder is as it was.
TEST_P(FdPassing, AStepThatFailsLeavesNoName) {
    const std::vector<std::pair<int, std::function<void(testing::NiceMock<test::MockSystemBase>&)>>> steps = {
        {EACCES, [](auto& system) { ON_CALL(system, bind(_, _, _)).WillByDefault(test::fails_with(EACCES)); }},
        {EROFS, [](auto& system) { ON_CALL(system, chmod(_, _)).WillByDefault(test::fails_with(EROFS)); }},
        {ENOBUFS, [](auto& system) { ON_CALL(system, listen(_, _)).WillByDefault(test::fails_with(ENOBUFS)); }},
        {EPERM, [](auto& system) { ON_CALL(system, link(_, _)).WillByDefault(test::fails_with(EPERM)); }},
        {EADDRINUSE, [](auto& system) { ON_CALL(system, bind(_, _, _)).WillByDefault(test::fails_with(EADDRINUSE)); }},
    };
    for (const auto& [code, arrange] : steps) {
        testing::NiceMock<test::MockSystemBase> system;
        arrange(system);
        const auto listener = Listener::listen(system, path_, GetParam());
        ASSERT_FALSE(listener);
        EXPECT_TRUE(listener.error().is(code)) << listener.error().message();
        EXPECT_EQ(entries(), 0U);
    }
}

TEST_P(FdPassing, APassingNameThatIsTakenIsPassedOver) {
    testing::NiceMock<test::MockSystemBase> system;
    int attempts = 0;
    ON_CALL(system, bind(_, _, _)).WillByDefault([&](int fd, const struct sockaddr* address, socklen_t length) {
        if (++attempts < 3) {
            errno = EADDRINUSE;
            return -1;
        }
        return system_.bind(fd, address, length);
    });
    const auto listener = Listener::listen(system, path_, GetParam());
    ASSERT_TRUE(listener) << listener.error().message();
    EXPECT_EQ(attempts, 3);
    EXPECT_TRUE(Connection::connect(system_, path_, GetParam()));
}

// Two take over one dead name at the same time: one has it, and the other is told, whichever moment they meet in.
TEST_P(FdPassing, WhoIsSlowerAtADeadNameIsTold) {
    for (const int moment : {1, 2}) {
        {
            const Listener killed = *Listener::listen(system_, path_, GetParam());
            std::filesystem::rename(path_, folder_ + "/kept");
        }
        std::filesystem::rename(folder_ + "/kept", path_);
        testing::NiceMock<test::MockSystemBase> system;
        std::optional<Result<Listener>> quicker;
        int links = 0;
        ON_CALL(system, link(_, _)).WillByDefault([&](const char* existing, const char* name) {
            if (++links == moment) {
                quicker.emplace(Listener::listen(system_, path_, GetParam()));
            }
            return system_.link(existing, name);
        });
        const auto slower = Listener::listen(system, path_, GetParam());
        ASSERT_TRUE(quicker.has_value() && *quicker) << moment;
        ASSERT_FALSE(slower) << moment;
        EXPECT_TRUE(slower.error().is(EADDRINUSE)) << slower.error().message();
        EXPECT_TRUE(Connection::connect(system_, path_, GetParam()));
        EXPECT_EQ(entries(), 1U);
    }
}

// Between the look at a dead name and its removal nobody else may have taken it over: two would believe to have it.
TEST_P(FdPassing, ADeadNameIsTakenOverByOneAtATime) {
    {
        const Listener killed = *Listener::listen(system_, path_, GetParam());
        std::filesystem::rename(path_, folder_ + "/kept");
    }
    std::filesystem::rename(folder_ + "/kept", path_);
    testing::NiceMock<test::MockSystemBase> system;
    bool looked = false;
    ON_CALL(system, unlink(_)).WillByDefault([&](const char* name) {
        if (name == path_ && !std::exchange(looked, true)) {
            const auto other = Listener::listen(system_, path_, GetParam());
            EXPECT_FALSE(other) << "both have it";
            EXPECT_TRUE(!other && other.error().is(EBUSY)) << "it waits for the first, a second long";
        }
        return system_.unlink(name);
    });
    const auto first = Listener::listen(system, path_, GetParam());
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_TRUE(looked);
    EXPECT_TRUE(Connection::connect(system_, path_, GetParam()));
    EXPECT_EQ(entries(), 1U);
    EXPECT_TRUE(Listener::listen(system_, path_, GetParam()).error().is(EADDRINUSE)) << "the lock has gone";
}

// A process that accepts nobody any more still has its name, and keeps nobody waiting.
TEST_P(FdPassing, AFullQueueIsAnAnswer) {
    const auto listener = Listener::listen(system_, path_, GetParam());
    ASSERT_TRUE(listener);
    std::vector<Result<Connection>> waiting;
    do {
        waiting.push_back(Connection::connect(system_, path_, GetParam()));
    } while (waiting.back() && waiting.size() < 100);
    EXPECT_TRUE(waiting.back().error().is(EAGAIN)) << waiting.back().error().message();
    EXPECT_TRUE(Listener::listen(system_, path_, GetParam()).error().is(EADDRINUSE));
}

TEST_P(FdPassing, NamesAreChecked) {
    for (const std::string& bad : {std::string{}, std::string{"@"}, std::string(108, 'x'), std::string{"a\0b", 3}}) {
        EXPECT_TRUE(Listener::listen(system_, bad, GetParam()).error().is(EINVAL));
        EXPECT_TRUE(Connection::connect(system_, bad, GetParam()).error().is(EINVAL));
    }
    EXPECT_TRUE(Connection::connect(system_, folder_ + "/none", GetParam()).error().is(ENOENT));
    EXPECT_TRUE(Listener::listen(system_, folder_ + "/none/socket", GetParam()).error().is(ENOENT));
}

TEST_P(FdPassing, AnAbstractNameNeedsNoFile) {
    const std::string name = "@" + path_;
    auto listener = Listener::listen(system_, name, GetParam());
    ASSERT_TRUE(listener);
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_TRUE(Listener::listen(system_, name, GetParam()).error().is(EADDRINUSE));
    ASSERT_TRUE(Connection::connect(system_, name, GetParam()));
    EXPECT_TRUE(listener->accept(1s));
}

INSTANTIATE_TEST_SUITE_P(Kinds, FdPassing, testing::Values(SocketKind::seqpacket, SocketKind::stream),
                         [](const auto& kind) { return kind.param == SocketKind::stream ? "stream" : "seqpacket"; });

TEST(FdPassingStream, StrangersAndDescriptorsInTheMiddleAreRefused) {
    System& system = real_system();
    for (const bool stranger : {true, false}) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        const Fd ours{system, pair[0]};
        Connection other{system, Fd{system, pair[1]}, SocketKind::stream};
        if (stranger) {
            ASSERT_EQ(system.write(ours.get(), "GET / HTTP/1.1", 14), 14);
        } else {
            const std::uint32_t header[2]{0x31504355, 6};
            ASSERT_EQ(system.write(ours.get(), header, 8), 8);
            // A seqpacket message has no header: on a stream it is payload with descriptors.
            const std::array<int, 1> fds{0};
            Connection raw{system, Fd{system, ::dup(ours.get())}, SocketKind::seqpacket};
            ASSERT_TRUE(raw.send_message(bytes_of("middle"), fds));
        }
        EXPECT_TRUE(other.receive_message(1s).error().is(EPROTO));
    }
}

TEST(FdPassingSeqpacket, AMessageThatIsTooLongIsRefusedWhole) {
    System& system = real_system();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const Fd ours{system, pair[0]};
    Connection other{system, Fd{system, pair[1]}, SocketKind::seqpacket};
    const std::vector<char> large(Connection::largest_message + 1);
    ASSERT_EQ(system.write(ours.get(), large.data(), large.size()), static_cast<ssize_t>(large.size()));
    ASSERT_EQ(system.write(ours.get(), "next", 4), 4);
    EXPECT_TRUE(other.receive_message(1s).error().is(EMSGSIZE));
    EXPECT_EQ(other.receive_message(1s)->bytes, bytes_of("next"));
}

} // namespace
} // namespace upcie::os
