// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel.hpp"
#include "child.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using std::chrono::milliseconds;
using testing::_;

constexpr milliseconds patience{2000};
constexpr milliseconds short_patience{50};

class ChannelTest : public testing::Test {
  protected:
    void SetUp() override {
        Result<ScratchFolder> made = ScratchFolder::make();
        ASSERT_TRUE(made);
        folder_.emplace(std::move(*made));
        path_ = folder_->file("socket");
    }
    /// Both ends of a socket pair, the first as a Channel.
    Channel pair(os::Fd& other, milliseconds wait = patience) {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        other = os::Fd{system_, ends[1]};
        return Channel{system_, os::Fd{system_, ends[0]}, wait};
    }
    void send_raw(const os::Fd& fd, const std::string& text) {
        ASSERT_EQ(::send(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    }

    os::System& system_ = os::real_system();
    std::optional<ScratchFolder> folder_;
    std::string path_;
};

TEST_F(ChannelTest, MessagesAndDescriptorsTravelBothWays) {
    Result<Listener> listener = Listener::open(system_, path_, {});
    ASSERT_TRUE(listener);
    Result<Channel> client = Channel::connect(system_, path_, patience);
    Result<Channel> server = listener->accept(patience);
    ASSERT_TRUE(client && server);

    const os::Fd memory{system_, ::memfd_create("test", MFD_CLOEXEC)};
    ASSERT_EQ(::write(memory.get(), "hello", 5), 5);
    ASSERT_TRUE(client->send("memory", {{"length", 5}}, {memory.get()}));
    Result<Message> got = server->expect("memory");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->data["length"], 5);
    ASSERT_EQ(got->fds.size(), 1U);
    char text[5] = {};
    ASSERT_EQ(::pread(got->fds[0].get(), text, 5, 0), 5);
    EXPECT_EQ(std::memcmp(text, "hello", 5), 0);
    EXPECT_NE(::fcntl(got->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_TRUE(server->send("thanks"));
    EXPECT_TRUE(client->expect("thanks"));
}

TEST_F(ChannelTest, AnotherVersionIsRefusedNamingBoth) {
    os::Fd other;
    Channel channel = pair(other);
    send_raw(other, R"({"magic":"upcie-probe","version":4711,"type":"hello","data":{}})");
    const Result<Message> got = channel.receive();
    ASSERT_FALSE(got);
    EXPECT_TRUE(got.error().is(EPROTO));
    EXPECT_NE(got.error().hint.find("4711"), std::string::npos);
    EXPECT_NE(got.error().hint.find(std::to_string(channel_version)), std::string::npos);
}

TEST_F(ChannelTest, WhatIsNoMessageIsRefused) {
    const std::string version = std::to_string(channel_version);
    const std::vector<std::string> texts = {std::string{"junk"},
                                            std::string{"[1]"},
                                            std::string{"{}"},
                                            R"({"magic":"other","version":)" + version + R"(,"type":"t","data":{}})",
                                            R"({"magic":"upcie-probe","type":"t","data":{}})",
                                            R"({"magic":"upcie-probe","version":)" + version +
                                                R"(,"type":7,"data":{}})",
                                            R"({"magic":"upcie-probe","version":)" + version + R"(,"type":"t"})"};
    for (const std::string& text : texts) {
        os::Fd other;
        Channel channel = pair(other);
        send_raw(other, text);
        const Result<Message> got = channel.receive();
        ASSERT_FALSE(got) << text;
        EXPECT_TRUE(got.error().is(EPROTO)) << text;
    }
}

TEST_F(ChannelTest, AnotherTypeThanExpectedIsRefusedAndAFailureTellsItsWords) {
    os::Fd other;
    Channel channel = pair(other);
    Channel peer{system_, std::move(other), patience};
    ASSERT_TRUE(peer.send("this"));
    EXPECT_TRUE(channel.expect("that").error().is(EPROTO));
    ASSERT_TRUE(peer.send("failed", {{"operation", "open"}, {"message", "no such device"}}));
    EXPECT_EQ(channel.expect("that").error().hint, "no such device");
}

TEST_F(ChannelTest, EveryWaitEnds) {
    os::Fd other;
    Channel channel = pair(other, short_patience);
    EXPECT_TRUE(channel.receive().error().is(ETIMEDOUT));
    EXPECT_TRUE(channel.wait_for_end().error().is(ETIMEDOUT));
    EXPECT_TRUE(Channel::connect(system_, path_, short_patience).error().is(ETIMEDOUT));
    Result<Listener> listener = Listener::open(system_, path_, {});
    ASSERT_TRUE(listener);
    EXPECT_TRUE(listener->accept(short_patience).error().is(ETIMEDOUT));
    // A peer that does not read: the sender gives up once the socket is full.
    Result<void> sent;
    for (int i = 0; i < 1000 && sent; ++i) {
        sent = channel.send("filler", {{"text", std::string(60000, 'x')}});
    }
    ASSERT_FALSE(sent);
    EXPECT_TRUE(sent.error().is(ETIMEDOUT));
}

TEST_F(ChannelTest, TheEndOfTheOtherSideIsNoticed) {
    os::Fd other;
    Channel channel = pair(other);
    other.reset();
    EXPECT_TRUE(channel.wait_for_end());
    EXPECT_TRUE(channel.receive().error().is(ECONNRESET));
    EXPECT_TRUE(channel.send("late").error().is(EPIPE)) << "and no SIGPIPE";
}

TEST_F(ChannelTest, TooLargeAMessageIsRefusedBeforeItIsSent) {
    os::Fd other;
    Channel channel = pair(other);
    EXPECT_TRUE(channel.send("big", std::string(200000, 'x')).error().is(EMSGSIZE));
    EXPECT_TRUE(channel.send("many", {}, std::vector<int>(9, 0)).error().is(EMSGSIZE));
}

TEST_F(ChannelTest, ANameLeftByAKilledRunIsTakenOver) {
    {
        const os::Fd dead{system_, ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
        ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        ASSERT_EQ(::listen(dead.get(), 1), 0);
    }
    ASSERT_EQ(::access(path_.c_str(), F_OK), 0) << "the name outlives its socket";
    Result<Listener> listener = Listener::open(system_, path_, {});
    ASSERT_TRUE(listener) << listener.error().message();
    EXPECT_TRUE(Channel::connect(system_, path_, patience));
}

TEST_F(ChannelTest, ALiveListenerIsNotTakenOver) {
    const Result<Listener> first = Listener::open(system_, path_, {});
    ASSERT_TRUE(first);
    const Result<Listener> second = Listener::open(system_, path_, {});
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().is(EADDRINUSE));
    EXPECT_EQ(::access(path_.c_str(), F_OK), 0);
}

TEST_F(ChannelTest, SomethingElseOfThatNameStaysAsItIs) {
    std::ofstream{path_} << "precious";
    const Result<Listener> listener = Listener::open(system_, path_, {});
    ASSERT_FALSE(listener);
    EXPECT_TRUE(listener.error().is(EEXIST));
    EXPECT_EQ(::access(path_.c_str(), F_OK), 0);
}

TEST_F(ChannelTest, TheNameGoesWithTheListener) {
    { ASSERT_TRUE(Listener::open(system_, path_, {})); }
    EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(ChannelTest, TheSocketIsForItsOwnerUnlessOthersAreAdmitted) {
    struct stat status {};
    {
        const Result<Listener> own = Listener::open(system_, path_, {::geteuid()});
        ASSERT_EQ(::stat(path_.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777U, 0600U);
    }
    const Result<Listener> others = Listener::open(system_, path_, {12345});
    ASSERT_EQ(::stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0666U);
}

TEST_F(ChannelTest, AUserWhoIsNotAdmittedIsTurnedAwayAndNamed) {
    testing::NiceMock<test::MockSystemBase> system;
    ON_CALL(system, getsockopt(_, SOL_SOCKET, SO_PEERCRED, _, _))
        .WillByDefault([](int, int, int, void* value, socklen_t*) {
            const ucred stranger{1, 4242, 4242};
            std::memcpy(value, &stranger, sizeof(stranger));
            return 0;
        });
    Result<Listener> listener = Listener::open(system, path_, {12345});
    ASSERT_TRUE(listener);
    const Result<Channel> client = Channel::connect(system_, path_, patience);
    ASSERT_TRUE(client);
    const Result<Channel> server = listener->accept(short_patience);
    ASSERT_FALSE(server);
    EXPECT_TRUE(server.error().is(ETIMEDOUT));
    EXPECT_NE(server.error().hint.find("4242"), std::string::npos);
}

TEST_F(ChannelTest, WhoOnlyLookedIsNoPeer) {
    Result<Listener> listener = Listener::open(system_, path_, {});
    ASSERT_TRUE(listener);
    ASSERT_FALSE(Listener::open(system_, path_, {})) << "a second primary looks, and leaves";
    ASSERT_TRUE(Channel::connect(system_, path_, patience));
    EXPECT_TRUE(listener->accept(short_patience).error().is(ETIMEDOUT));
    const Result<Channel> client = Channel::connect(system_, path_, patience);
    EXPECT_TRUE(listener->accept(patience));
    // What was said before leaving is heard.
    { ASSERT_TRUE(Channel::connect(system_, path_, patience)->send("farewell")); }
    EXPECT_TRUE(listener->accept(patience)->expect("farewell"));
}

TEST_F(ChannelTest, TooLongANameIsRefused) {
    const std::string longest(sizeof(sockaddr_un::sun_path), 'x');
    EXPECT_TRUE(Listener::open(system_, longest, {}).error().is(EINVAL));
    EXPECT_TRUE(Channel::connect(system_, longest, patience).error().is(EINVAL));
    EXPECT_TRUE(Channel::connect(system_, {}, patience).error().is(EINVAL));
}

} // namespace
} // namespace upcie::probes
