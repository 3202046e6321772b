// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>

#include "device.hpp"

namespace upcie::conformance {
namespace {

using namespace std::chrono_literals;

using Admin = Conformance;

TEST_F(Admin, ComesUpReady) {
    EXPECT_EQ(controller->state(), nvme::ControllerState::ready);
    const auto status = controller->status();
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_GE(controller->capabilities().max_queue_entries(), 2U);
    EXPECT_GE(controller->page_shift(), 12U);
    EXPECT_GE(controller->queue_count(), 1U);
    EXPECT_FALSE(controller->queue_count_reason().empty());
}

TEST_F(Admin, IdentifiesItself) {
    const auto info = controller->identify_controller();
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->serial, controller->info().serial);
    EXPECT_FALSE(info->model.empty());
    EXPECT_EQ(info->submission_entry_sizes & 15, 6);
    EXPECT_EQ(info->completion_entry_sizes & 15, 4);
    EXPECT_GE(info->namespaces, 1U);
}

TEST_F(Admin, NamespacesAscendAndHaveBlocks) {
    const auto active = controller->active_namespaces();
    ASSERT_TRUE(active) << active.error().message();
    std::uint32_t last = 0;
    for (const Nsid nsid : *active) {
        EXPECT_GT(nsid.value(), last);
        last = nsid.value();
        const auto info = controller->identify_namespace(nsid);
        ASSERT_TRUE(info) << info.error().message();
        EXPECT_GT(info->size_blocks, 0U);
        EXPECT_GE(info->format().data_shift, 9);
    }
    EXPECT_FALSE(controller->identify_namespace(Nsid{0xfffffff0}));
}

TEST_F(Admin, UnknownThingsAreRefusedWithTheirStatus) {
    EXPECT_EQ(code(controller->identify(0x7f, Nsid{1})), 0x002);
    EXPECT_EQ(code(controller->get_feature(0x7f)), 0x002);
    std::vector<std::byte> page(512);
    nvme::LogPageRequest request;
    request.log = 0x7f;
    const int refused = code(controller->get_log_page(request, page));
    // The specification says Invalid Log Page; QEMU says Invalid Field.
    EXPECT_TRUE(refused == 0x109 || (refused == 0x002 && Device::instance().simulated() == nullptr)) << refused;
    nvme::Command unknown;
    unknown.opcode = 0x70; // reserved; 7Ch is Doorbell Buffer Config, which QEMU has
    EXPECT_EQ(code(controller->admin(unknown)), 0x001);
}

TEST_F(Admin, FeaturesKeepWhatTheyAreSetTo) {
    constexpr std::uint8_t temperature_threshold = 0x04;
    const auto before = controller->get_feature(temperature_threshold);
    ASSERT_TRUE(before) << before.error().message();
    ASSERT_TRUE(controller->set_feature(temperature_threshold, 340));
    EXPECT_EQ(controller->get_feature(temperature_threshold).value_or(0), 340U);
    EXPECT_TRUE(controller->set_feature(temperature_threshold, *before & 0xffff));
    // Number of Queues: zero-based, submission queues in the low half.
    const auto queues = controller->get_feature(0x07);
    ASSERT_TRUE(queues) << queues.error().message();
    EXPECT_GE((*queues & 0xffff) + 1, controller->queue_count());
}

TEST_F(Admin, LogPages) {
    std::vector<std::byte> smart(512);
    nvme::LogPageRequest request;
    request.log = 0x02;
    auto got = controller->get_log_page(request, smart);
    ASSERT_TRUE(got) << got.error().message();
    std::uint16_t kelvin = 0;
    std::memcpy(&kelvin, smart.data() + 1, 2);
    EXPECT_GT(kelvin, 200);
    EXPECT_LT(kelvin, 400);
    std::vector<std::byte> firmware(512);
    request.log = 0x03;
    got = controller->get_log_page(request, firmware);
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_NE(std::to_integer<unsigned>(firmware[0]) & 7, 0U); // an active slot
    std::vector<std::byte> errors(64 * (controller->info().error_log_entries + std::size_t{1}));
    request.log = 0x01;
    got = controller->get_log_page(request, errors);
    EXPECT_TRUE(got) << got.error().message();
}

// A request for an event stays with the controller until there is one: an admin command that does not end.
TEST_F(Admin, CommandsTimeOutAndLeaveTheControllerUsable) {
    nvme::Command request;
    request.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::asynchronous_event_request);
    const auto begin = std::chrono::steady_clock::now();
    const auto answer = controller->admin(request, {}, 100ms);
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().is(ETIMEDOUT)) << answer.error().message();
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 90ms);
    const auto info = controller->identify_controller();
    EXPECT_TRUE(info) << info.error().message();
    ASSERT_TRUE(controller->reset());
    EXPECT_TRUE(controller->identify_controller());
}

TEST_F(Admin, NoEventWithoutCause) {
    ASSERT_TRUE(controller->request_event());
    const auto events = controller->take_events();
    ASSERT_TRUE(events) << events.error().message();
    EXPECT_TRUE(events->empty());
}

TEST_F(Admin, EndsDisabledAndComesUpAgain) {
    for (int round = 0; round < 3; ++round) {
        registry.reset();
        controller.reset();
        const auto csts = Device::instance().function()->read_region(0, ByteCount{0x1c}, 4);
        ASSERT_TRUE(csts) << csts.error().message();
        EXPECT_EQ(*csts & 1, 0U);
        open_controller();
        ASSERT_TRUE(controller);
    }
}

// ---- queues, by hand: what the library itself would not send

class QueueCommands : public Conformance {
  protected:
    void SetUp() override {
        Conformance::SetUp();
        ring = make_memory(8192);
        ASSERT_TRUE(ring.registration);
        address = ring.registration.resolve(ByteCount{0}, ByteCount{4096}).extent.address.value();
    }
    void TearDown() override {
        ring = {};
        Conformance::TearDown();
    }
    [[nodiscard]] int create(bool completion, std::uint32_t qid, std::uint32_t entries, std::uint32_t high = 0) {
        nvme::Command command;
        command.opcode = completion ? 0x05 : 0x01;
        command.prp1 = address;
        command.cdw10 = qid | (entries - 1) << 16;
        command.cdw11 = 1 | high << 16;
        return code(controller->admin(command));
    }
    [[nodiscard]] int erase(bool completion, std::uint32_t qid) {
        nvme::Command command;
        command.opcode = completion ? 0x04 : 0x00;
        command.cdw10 = qid;
        return code(controller->admin(command));
    }
    Memory ring;
    std::uint64_t address = 0;
};

TEST_F(QueueCommands, AreRefusedWithTheStatusesOfTheSpecification) {
    const std::uint32_t most = controller->capabilities().max_queue_entries();
    EXPECT_EQ(create(true, 0, 16), 0x101);
    EXPECT_EQ(create(true, 0xfff0, 16), 0x101);
    EXPECT_EQ(create(true, 1, 1), 0x102);
    if (most < 65536) {
        EXPECT_EQ(create(true, 1, most + 1), 0x102);
    }
    EXPECT_EQ(create(false, 1, 16, 1), 0x100); // no such completion queue
    EXPECT_EQ(create(true, 1, 16), 0x000);
    EXPECT_EQ(create(true, 1, 16), 0x101); // there is one
    EXPECT_EQ(create(false, 1, 1, 1), 0x102);
    EXPECT_EQ(erase(false, 1), 0x101);
    EXPECT_EQ(erase(true, 1), 0x000);
    for (const std::uint32_t missing : {0U, 1U}) {
        const int status = erase(true, missing);
        // The specification says Invalid Queue Identifier (5.4.1); QEMU says Completion Queue Invalid.
        EXPECT_TRUE(status == 0x101 || (status == 0x100 && Device::instance().simulated() == nullptr)) << status;
    }
}

TEST_F(QueueCommands, CompletionQueueInUseCannotBeDeleted) {
    const nvme::QueuePair queue = make_queue();
    EXPECT_EQ(erase(true, queue.qid().value()), 0x10c);
}

} // namespace
} // namespace upcie::conformance
