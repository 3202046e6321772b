// SPDX-License-Identifier: BSD-3-Clause
// Namespaces against the simulator, whose medium is the witness.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/memory/registry.hpp>
#include <upcie/nvme/log_pages.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/nvme/synchronous.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::nvme {
namespace {

using testing::HasSubstr;

class NamespaceTest : public testing::Test {
  protected:
    std::shared_ptr<sim::Controller> device;
    std::shared_ptr<Controller> controller;
    std::shared_ptr<memory::Registry> registry;
    memory::Buffer buffer;
    memory::Registration registration;
    os::System& system = os::real_system();

    void open(const std::string& text, ControllerOptions options = {}) {
        const auto parsed = sim::Options::parse(text + ",thread=off");
        ASSERT_TRUE(parsed) << parsed.error().message();
        auto function = sim::Function::create(*parsed);
        ASSERT_TRUE(function);
        device = (*function)->controller();
        auto opened = Controller::open(system, std::move(*function), options);
        ASSERT_TRUE(opened) << opened.error().message();
        controller = *opened;
        registry = *memory::Registry::create(system, controller->address_space());
        buffer = *memory::Buffer::allocate(system, 4_MiB);
        registration = *registry->register_buffer(buffer);
    }
    Result<QueuePair> queue(QueueOptions options = {}) {
        options.registry = registry;
        return controller->create_queue_pair(options);
    }
    void fill() {
        for (std::size_t i = 0; i < buffer.bytes().size(); ++i) {
            buffer.bytes()[i] = static_cast<std::byte>(i * 7 + i / 509);
        }
    }
    void TearDown() override {
        if (device != nullptr) {
            for (const sim::Violation& violation : device->violations()) {
                ADD_FAILURE() << violation.text;
            }
        }
    }
};

TEST_F(NamespaceTest, WritesAndReadsBlocksOfBothSizes) {
    for (const std::uint32_t block : {512U, 4096U}) {
        open("size=16M,lba=" + std::to_string(block));
        const auto space = Namespace::open(controller, Nsid{1});
        ASSERT_TRUE(space) << space.error().message();
        EXPECT_EQ(space->block_size(), block);
        EXPECT_EQ(space->size(), 16_MiB);
        auto pair = queue();
        ASSERT_TRUE(pair) << pair.error().message();
        fill();
        ASSERT_TRUE(space->write(*pair, Lba{3}, 5, buffer.data()));
        std::vector<std::byte> medium(5 * block);
        ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{3}, medium));
        EXPECT_EQ(std::memcmp(medium.data(), buffer.data(), medium.size()), 0);
        ASSERT_TRUE(space->read(*pair, Lba{3}, 5, buffer.data() + (1_MiB).value()));
        EXPECT_EQ(std::memcmp(buffer.data() + (1_MiB).value(), medium.data(), medium.size()), 0);
        ASSERT_TRUE(space->flush(*pair));
    }
}

TEST_F(NamespaceTest, TransfersAboveMdtsAreSplit) {
    open("size=16M,mdts=2"); // 16 KiB
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue({.depth = 4}); // fewer identifiers than pieces
    ASSERT_TRUE(space && pair);
    fill();
    const std::uint64_t blocks = (2_MiB).value() / 512 + 3;
    ASSERT_TRUE(space->write(*pair, Lba{1}, blocks, buffer.data()));
    std::vector<std::byte> medium(blocks * 512);
    ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{1}, medium));
    EXPECT_EQ(std::memcmp(medium.data(), buffer.data(), medium.size()), 0);
    std::memset(buffer.data(), 0, medium.size());
    ASSERT_TRUE(space->read(*pair, Lba{1}, blocks, buffer.data()));
    EXPECT_EQ(std::memcmp(medium.data(), buffer.data(), medium.size()), 0);
    EXPECT_EQ(pair->outstanding(), 0U);
}

TEST_F(NamespaceTest, OneCommandOfTwoMebibytes) {
    open("size=16M,mdts=0");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    EXPECT_EQ(pair->max_transfer(), 2_MiB);
    fill();
    const auto before = device->counters().commands;
    ASSERT_TRUE(space->write(*pair, Lba{0}, 4096, buffer.data() + 512)); // not on a page
    EXPECT_EQ(device->counters().commands, before + 1);
    std::vector<std::byte> medium((2_MiB).value());
    ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{0}, medium));
    EXPECT_EQ(std::memcmp(medium.data(), buffer.data() + 512, medium.size()), 0);
}

TEST_F(NamespaceTest, ScatteredMemoryWorksToo) {
    open("size=16M,mdts=0,scatter=1");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue({.depth = 64});
    ASSERT_TRUE(space) << space.error().message();
    ASSERT_TRUE(pair) << pair.error().message();
    fill();
    ASSERT_TRUE(space->write(*pair, Lba{0}, 2000, buffer.data() + 1024));
    std::vector<std::byte> medium(2000 * 512);
    ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{0}, medium));
    EXPECT_EQ(std::memcmp(medium.data(), buffer.data() + 1024, medium.size()), 0);
}

TEST_F(NamespaceTest, RangesAreChecked) {
    open("size=1M");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    const auto commands = device->counters().commands;
    const auto beyond = space->read(*pair, Lba{2047}, 2, buffer.data());
    ASSERT_FALSE(beyond);
    EXPECT_TRUE(beyond.error().is(ERANGE));
    EXPECT_THAT(beyond.error().message(), HasSubstr("2 blocks from 2047 are not all inside its 2048 blocks"));
    EXPECT_TRUE(space->write(*pair, Lba{~std::uint64_t{0}}, 2, buffer.data()).error().is(ERANGE));
    EXPECT_TRUE(space->read(*pair, Lba{0}, 0, buffer.data()).error().is(EINVAL));
    EXPECT_TRUE(space->write_zeroes(*pair, Lba{0}, 2049).error().is(ERANGE));
    EXPECT_EQ(device->counters().commands, commands);
    EXPECT_TRUE(space->read(*pair, Lba{2047}, 1, buffer.data()));
}

TEST_F(NamespaceTest, MemoryThatIsNotRegisteredIsRefused) {
    open("size=1M");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    std::array<std::byte, 512> elsewhere{};
    EXPECT_TRUE(space->read(*pair, Lba{0}, 1, elsewhere.data()).error().is(EFAULT));
    EXPECT_TRUE(space->read(*pair, Lba{0}, 2, buffer.data() + buffer.size().value() - 512).error().is(EFAULT));
}

TEST_F(NamespaceTest, ZeroesAndDeallocation) {
    open("size=1M");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    fill();
    ASSERT_TRUE(space->write(*pair, Lba{0}, 64, buffer.data()));
    ASSERT_TRUE(space->write_zeroes(*pair, Lba{10}, 5));
    std::vector<std::byte> medium(64 * 512);
    ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{0}, medium));
    EXPECT_THAT(std::span{medium}.subspan(10 * 512, 5 * 512), testing::Each(std::byte{0}));
    EXPECT_EQ(std::memcmp(medium.data() + 15 * 512, buffer.data() + 15 * 512, 512), 0);

    const std::array ranges{LbaRange{Lba{20}, 2}, LbaRange{Lba{30}, 1}};
    const auto done = space->deallocate(*pair, ranges);
    ASSERT_TRUE(done) << done.error().message();
    ASSERT_TRUE(device->read_medium(Nsid{1}, Lba{0}, medium));
    EXPECT_THAT(std::span{medium}.subspan(20 * 512, 2 * 512), testing::Each(std::byte{0}));
    EXPECT_EQ(std::memcmp(medium.data() + 29 * 512, buffer.data() + 29 * 512, 512), 0);
    EXPECT_THAT(std::span{medium}.subspan(30 * 512, 512), testing::Each(std::byte{0}));

    EXPECT_TRUE(space->deallocate(*pair, {}).error().is(EINVAL));
    EXPECT_TRUE(space->deallocate(*pair, std::vector<LbaRange>(257, LbaRange{Lba{0}, 1})).error().is(EINVAL));
    EXPECT_TRUE(space->deallocate(*pair, std::array{LbaRange{Lba{2048}, 1}}).error().is(ERANGE));
}

TEST_F(NamespaceTest, FormatsWithMetadataAreRefusedWithTheReason) {
    open("size=1M,meta=8");
    const auto space = Namespace::open(controller, Nsid{1});
    ASSERT_FALSE(space);
    EXPECT_TRUE(space.error().is(ENOTSUP));
    EXPECT_THAT(space.error().message(), HasSubstr("8 bytes of metadata"));
}

TEST_F(NamespaceTest, InactiveNamespacesAreRefused) {
    open("size=1M,ns=2");
    EXPECT_EQ(controller->active_namespaces()->size(), 2U);
    EXPECT_TRUE(Namespace::open(controller, Nsid{2}));
    EXPECT_FALSE(Namespace::open(controller, Nsid{3}));
}

TEST_F(NamespaceTest, MediaErrorIsNamedWithItsBlocksAndTheQueueStaysUsable) {
    open("size=1M,mdts=1,faults=error:2:0x81@op=read&lba=40..47");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    const auto read = space->read(*pair, Lba{0}, 200, buffer.data());
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().domain, ErrorDomain::nvme);
    EXPECT_EQ(read.error().code & 0x7ff, 0x281);
    EXPECT_THAT(read.error().message(), HasSubstr("16 blocks from 32"));
    EXPECT_EQ(pair->outstanding(), 0U);
    EXPECT_TRUE(space->read(*pair, Lba{100}, 100, buffer.data()));
}

TEST_F(NamespaceTest, ResetUnderIoLeavesAUsableDevice) {
    open("size=1M,faults=lost@op=read&times=3");
    const auto space = Namespace::open(controller, Nsid{1});
    auto pair = queue();
    ASSERT_TRUE(space && pair);
    for (std::uint64_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(pair->read(space->format(), Lba{i}, 1, buffer.data() + 512 * i, i));
    }
    pair->ring();
    controller->function()->pause(); // the stepped device takes them, and answers none
    ASSERT_TRUE(controller->reset());
    std::array<Completion, 8> ended;
    ASSERT_EQ(pair->poll(ended), 3U);
    EXPECT_EQ(ended[0].outcome(), Outcome::reset);
    ASSERT_TRUE(pair->restart());
    EXPECT_TRUE(space->read(*pair, Lba{0}, 8, buffer.data()));
}

TEST_F(NamespaceTest, LogsAndFeaturesOfTheSimulator) {
    open("size=1M");
    EXPECT_TRUE(read_health_log(*controller));
    EXPECT_TRUE(read_error_log(*controller));
    const auto cache = controller->get_feature(0x06);
    ASSERT_TRUE(cache) << cache.error().message();
    ASSERT_TRUE(controller->set_feature(0x06, 0));
    EXPECT_EQ(*controller->get_feature(0x06) & 1, 0U);
}

TEST_F(NamespaceTest, ThreadedDeviceWithInterrupts) {
    const auto parsed = sim::Options::parse("size=1M,vectors=3");
    auto function = sim::Function::create(*parsed);
    ASSERT_TRUE(function);
    ControllerOptions options;
    options.interrupt_vectors = 3;
    auto opened = Controller::open(system, std::move(*function), options);
    ASSERT_TRUE(opened) << opened.error().message();
    controller = *opened;
    registry = *memory::Registry::create(system, controller->address_space());
    buffer = *memory::Buffer::allocate(system, 64_KiB);
    registration = *registry->register_buffer(buffer);
    auto pair = queue({.interrupt_vector = 2});
    ASSERT_TRUE(pair);
    ASSERT_TRUE(pair->read(BlockFormat{Nsid{1}, 9}, Lba{0}, 8, buffer.data(), 5));
    pair->ring();
    const auto fired = pair->wait_for_interrupt(system, std::chrono::milliseconds{20'000});
    ASSERT_TRUE(fired);
    EXPECT_TRUE(*fired);
    std::array<Completion, 2> ended;
    ASSERT_EQ(pair->poll(ended), 1U);
    EXPECT_TRUE(ended[0].ok());
    EXPECT_EQ(ended[0].cookie, 5U);
}

} // namespace
} // namespace upcie::nvme
