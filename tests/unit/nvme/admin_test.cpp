// SPDX-License-Identifier: BSD-3-Clause
// Admin commands: deadlines, errors, what they transfer, and what is parsed from it.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <upcie/nvme/log_pages.hpp>

#include "nvme/controller_test.hpp"

namespace upcie::nvme {
namespace {

using std::chrono::milliseconds;
using test::FakeDevice;
using testing::HasSubstr;

class Admin : public ControllerTest {
  protected:
    /// Silent for commands with this opcode.
    void silence(std::uint8_t opcode) {
        device->admin_hook = [this, opcode](const Command& command) -> std::optional<FakeDevice::Reply> {
            if (command.opcode == opcode) {
                silent_seen = true;
                return FakeDevice::Reply{{}, 0, true};
            }
            return std::nullopt;
        };
    }
    std::atomic<bool> silent_seen{false}; ///< the device has such a command
    static Command vendor(std::uint8_t opcode) {
        Command command;
        command.opcode = opcode;
        return command;
    }
};

TEST_F(Admin, StatusBecomesAnErrorWithItsName) {
    device->admin_hook = [](const Command&) {
        return FakeDevice::Reply{Status{StatusCodeType::command_specific, 0x0a, true}, 0, false};
    };
    const auto answer = controller->admin(vendor(0x80));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().domain, ErrorDomain::nvme);
    EXPECT_EQ(answer.error().code, 0x410a);
    EXPECT_EQ(answer.error().code_name, "Invalid Format");
    EXPECT_EQ(answer.error().operation, "Format NVM");
    EXPECT_THAT(answer.error().hint, HasSubstr("fail again"));
}

TEST_F(Admin, TimedOutCommandKeepsItsBufferUntilTheLateAnswer) {
    controller.reset();
    options.admin_depth = 3;
    open();
    silence(0xc2);
    std::array<std::byte, 4096> data{};
    const auto answer = controller->admin(vendor(0xc2), data, milliseconds{20});
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().is(ETIMEDOUT));
    const Command lost = device->admin_commands.back();

    // Later commands work, and none gets the lost one's identifier or memory.
    device->admin_hook = {};
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(controller->identify(1, Nsid{0}));
        ASSERT_NE(device->admin_commands.back().cid, lost.cid);
        ASSERT_NE(device->admin_commands.back().prp1, lost.prp1);
    }
    // The controller writes and answers: into memory that is still its own.
    std::memset(reinterpret_cast<void*>(lost.prp1), 0xee, 4096);
    device->release_held();
    ASSERT_TRUE(controller->identify(1, Nsid{0}));
    EXPECT_EQ(controller->info().model, "Fake model");
    // Its identifier serves again: there are two, and the event request occupies one.
    ASSERT_TRUE(controller->request_event());
    EXPECT_TRUE(controller->identify(1, Nsid{0}));
}

TEST_F(Admin, LateAnswerDoesNotCompleteAnother) {
    silence(0xc0);
    ASSERT_FALSE(controller->admin(vendor(0xc0), {}, milliseconds{20}));
    device->admin_hook = [&](const Command&) {
        device->release_held(Status{StatusCodeType::generic, 6}); // the late one, an error, comes first
        return FakeDevice::Reply{{}, 42, false};
    };
    const auto answer = controller->admin(vendor(0xc4));
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(*answer, 42U);
}

TEST_F(Admin, IdentifiersUsedUpByTimeOutsAreSaidAndComeBackByReset) {
    controller.reset();
    options.admin_depth = 3;
    open();
    silence(0xc0);
    EXPECT_FALSE(controller->admin(vendor(0xc0), {}, milliseconds{20}));
    EXPECT_FALSE(controller->admin(vendor(0xc0), {}, milliseconds{20}));
    device->admin_hook = {};
    const auto full = controller->admin(vendor(0xc0), {}, milliseconds{20});
    ASSERT_FALSE(full);
    EXPECT_TRUE(full.error().is(EAGAIN));
    ASSERT_TRUE(controller->reset());
    EXPECT_TRUE(controller->admin(vendor(0xc0)));
}

TEST_F(Admin, SlowCommandDoesNotKeepOthersOut) {
    silence(0xc0);
    Result<std::uint64_t> slow = 0U;
    std::thread other{[&] { slow = controller->admin(vendor(0xc0), {}, std::chrono::hours{2}); }};
    // Others are answered, at least until the device has the slow one, or else the reset would come before it.
    for (int i = 0; i < 50 || !silent_seen; ++i) {
        ASSERT_TRUE(controller->identify(1, Nsid{0}));
    }
    // A reset in the middle ends it with an error of its own.
    ASSERT_TRUE(controller->reset());
    other.join();
    ASSERT_FALSE(slow);
    EXPECT_TRUE(slow.error().is(ECANCELED)) << slow.error().message();
}

TEST_F(Admin, DataGoesTheWayTheOpcodeSays) {
    std::array<std::byte, 8> seen{};
    device->admin_hook = [&](const Command& command) -> std::optional<FakeDevice::Reply> {
        std::memcpy(seen.data(), reinterpret_cast<const void*>(command.prp1), seen.size());
        std::memset(reinterpret_cast<void*>(command.prp1), 0x5a, seen.size());
        return FakeDevice::Reply{};
    };
    std::array<std::byte, 8> data;
    data.fill(std::byte{0x11});
    ASSERT_TRUE(controller->admin(vendor(0xc1), data)); // to the controller
    EXPECT_THAT(seen, testing::Each(std::byte{0x11}));
    EXPECT_THAT(data, testing::Each(std::byte{0x11}));
    ASSERT_TRUE(controller->admin(vendor(0xc2), data)); // from it
    EXPECT_THAT(seen, testing::Each(std::byte{0}));     // nothing of ours leaks to the device
    EXPECT_THAT(data, testing::Each(std::byte{0x5a}));
}

TEST_F(Admin, LengthIsChecked) {
    std::vector<std::byte> data(256 * 1024);
    EXPECT_TRUE(controller->admin(vendor(0xc2), data).error().is(EINVAL)); // above MDTS
    EXPECT_TRUE(controller->admin(vendor(0xc2), std::span{data}.first(5)).error().is(EINVAL));
    EXPECT_TRUE(controller->admin(vendor(0xc2), std::span{data}.first(128 * 1024)));
    EXPECT_NE(device->admin_commands.back().prp2, 0U);
}

TEST_F(Admin, ActiveListGoesOnPastTheFirstPage) {
    device->active.clear();
    for (std::uint32_t nsid = 2; nsid <= 5000; nsid += 2) {
        device->active.push_back(nsid);
    }
    const auto active = controller->active_namespaces();
    ASSERT_TRUE(active);
    ASSERT_EQ(active->size(), device->active.size());
    for (std::size_t i = 0; i < active->size(); ++i) {
        ASSERT_EQ((*active)[i].value(), device->active[i]);
    }
}

TEST_F(Admin, ActiveListThatGoesBackwardsIsRefused) {
    device->admin_hook = [](const Command& command) -> std::optional<FakeDevice::Reply> {
        const std::array<std::uint32_t, 3> list{5, 5, 0};
        std::memcpy(reinterpret_cast<void*>(command.prp1), list.data(), sizeof list);
        return FakeDevice::Reply{};
    };
    EXPECT_TRUE(controller->active_namespaces().error().is(EPROTO));
}

TEST_F(Admin, VersionOneHasNoActiveList) {
    controller.reset();
    device->vs = 0x00010000;
    FakeDevice::put<std::uint32_t>(device->identify_controller, 516, 3);
    open();
    device->admin_hook = [&](const Command& command) -> std::optional<FakeDevice::Reply> {
        EXPECT_NE(command.cdw10 & 0xff, 2U);
        if (command.nsid == 2) {
            return FakeDevice::Reply{}; // all zero: not active
        }
        return std::nullopt;
    };
    const auto active = controller->active_namespaces();
    ASSERT_TRUE(active);
    EXPECT_THAT(*active, testing::ElementsAre(Nsid{1}, Nsid{3}));
}

TEST_F(Admin, IdentifyParsesWhatHasANamedField) {
    auto& data = device->identify_controller;
    FakeDevice::put<std::uint32_t>(data, 88, 250'000);
    FakeDevice::put<std::uint16_t>(data, 130, 7);
    FakeDevice::put<std::uint8_t>(data, 525, 1);
    FakeDevice::put<std::uint32_t>(data, 536, 1);
    std::memcpy(data.data() + 64, "a\x01\0....", 8);
    const auto info = controller->identify_controller();
    ASSERT_TRUE(info);
    EXPECT_EQ(info->shutdown_time_us, 250'000U);
    EXPECT_EQ(info->retry_delays[1], 7);
    EXPECT_TRUE(info->has_write_cache());
    EXPECT_TRUE(info->has_sgl());
    EXPECT_EQ(info->firmware, "a?");
    EXPECT_EQ(info->namespaces, 16U);
}

TEST_F(Admin, NamespaceFormatIndexHasUpperBits) {
    auto& data = device->identify_namespace;
    FakeDevice::put<std::uint8_t>(data, 25, 19);          // 20 formats
    FakeDevice::put<std::uint8_t>(data, 26, 0x10 | 0x23); // 0x13, metadata behind the data
    FakeDevice::put<std::uint32_t>(data, 128 + 4 * 0x13, (12U << 16) | 8U | (2U << 24));
    const auto info = controller->identify_namespace(Nsid{1});
    ASSERT_TRUE(info);
    EXPECT_EQ(info->current_format, 0x13);
    EXPECT_TRUE(info->extended_metadata);
    EXPECT_EQ(info->format().data_shift, 12);
    EXPECT_EQ(info->format().metadata_bytes, 8);
    EXPECT_EQ(info->format().relative_performance, 2);
    FakeDevice::put<std::uint8_t>(data, 25, 0);
    FakeDevice::put<std::uint8_t>(data, 26, 3);
    EXPECT_TRUE(controller->identify_namespace(Nsid{1}).error().is(EPROTO));
    FakeDevice::put<std::uint64_t>(data, 0, 0);
    FakeDevice::put<std::uint8_t>(data, 26, 0);
    EXPECT_TRUE(controller->identify_namespace(Nsid{1}).error().is(ENODEV));
}

TEST_F(Admin, LongLogPagesAreReadInPartsThatRetainTheEvent) {
    device->admin_commands.clear();
    std::vector<std::byte> data(150'000);
    LogPageRequest request;
    request.log = 0x7;
    request.offset = 8;
    ASSERT_TRUE(controller->get_log_page(request, data));
    ASSERT_EQ(device->admin_commands.size(), 3U);
    std::uint64_t position = 8;
    for (std::size_t i = 0; i < 3; ++i) {
        const Command& command = device->admin_commands[i];
        const std::uint64_t dwords = ((command.cdw10 >> 16) | (std::uint64_t{command.cdw11 & 0xffff} << 16)) + 1;
        EXPECT_EQ(command.cdw12 | (std::uint64_t{command.cdw13} << 32), position);
        EXPECT_EQ((command.cdw10 & 0x8000) != 0, i != 2) << i;
        position += dwords * 4;
    }
    EXPECT_EQ(position, 150'008U);
}

TEST_F(Admin, LogPagesWithoutOffsetAreLimited) {
    controller.reset();
    FakeDevice::put<std::uint8_t>(device->identify_controller, 261, 0);
    open();
    std::vector<std::byte> data(20'000);
    LogPageRequest request;
    request.log = 2;
    EXPECT_TRUE(controller->get_log_page(request, data).error().is(ENOTSUP));
    EXPECT_TRUE(controller->get_log_page(request, std::span{data}.first(512)));
    request.offset = 4;
    EXPECT_TRUE(controller->get_log_page(request, std::span{data}.first(512)).error().is(ENOTSUP));
    EXPECT_TRUE(controller->get_log_page(request, {}).error().is(EINVAL));
}

TEST_F(Admin, HealthAndErrorLogsAreParsed) {
    device->admin_hook = [](const Command& command) -> std::optional<FakeDevice::Reply> {
        auto* const data = reinterpret_cast<std::byte*>(command.prp1);
        const auto put = [&](std::size_t offset, auto value) { std::memcpy(data + offset, &value, sizeof value); };
        if ((command.cdw10 & 0xff) == 2) {
            put(1, std::uint16_t{300});
            put(32, std::uint64_t{11});
            put(160, std::uint64_t{1});
            put(168, std::uint64_t{1}); // beyond 64 bits
        } else {
            put(0, std::uint64_t{9});
            put(8, std::uint16_t{3});
            put(10, std::uint16_t{77});
            put(12, std::uint16_t{0x281 << 1 | 1});
            put(16, std::uint64_t{1234});
            put(24, std::uint32_t{1});
        }
        return FakeDevice::Reply{};
    };
    const auto health = read_health_log(*controller);
    ASSERT_TRUE(health);
    EXPECT_EQ(health->temperature_kelvin, 300);
    EXPECT_EQ(health->data_units_read, 11U);
    EXPECT_EQ(health->media_errors, ~std::uint64_t{0});
    const auto errors = read_error_log(*controller);
    ASSERT_TRUE(errors);
    ASSERT_EQ(errors->size(), 1U);
    EXPECT_EQ(errors->front().status.name(), "Unrecovered Read Error");
    EXPECT_EQ(errors->front().lba, Lba{1234});
    EXPECT_EQ(errors->front().cid, Cid{77});
}

TEST_F(Admin, EventsAreTakenAndDoNotTimeOut) {
    ASSERT_TRUE(controller->request_event());
    ASSERT_TRUE(controller->identify(1, Nsid{0}));
    ASSERT_TRUE(controller->take_events()->empty());
    device->event(0x00020101);
    const auto events = controller->take_events();
    ASSERT_TRUE(events);
    ASSERT_EQ(events->size(), 1U);
    EXPECT_EQ(events->front().type, 1);
    EXPECT_EQ(events->front().information, 1);
    EXPECT_EQ(events->front().log_page, 2);
    ASSERT_TRUE(controller->request_event());
    EXPECT_TRUE(controller->reset()); // which ends the one outstanding
    EXPECT_TRUE(controller->take_events()->empty());
}

TEST_F(Admin, MemoryBufferIsDecoded) {
    EXPECT_FALSE(*controller->memory_buffer());
    const MemoryBuffer buffer{0x00005002, 0x0001021f};
    EXPECT_EQ(buffer.bar(), 2U);
    EXPECT_EQ(buffer.unit(), 1U << 20);
    EXPECT_EQ(buffer.start(), 5_MiB);
    EXPECT_EQ(buffer.size(), 16_MiB);
    EXPECT_TRUE(buffer.submission_queues() && buffer.write_data());
}

} // namespace
} // namespace upcie::nvme
