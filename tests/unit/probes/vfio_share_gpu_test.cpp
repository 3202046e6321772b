// SPDX-License-Identifier: BSD-3-Clause
// The verdicts about reaching a BAR from a GPU, over a GPU and a device that behave as told.
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>

#include "child.hpp"
#include "gpu/vfio_share_gpu.hpp"
#include "support/fake_iommufd.hpp"
#include "support/fake_vfio_device.hpp"
#include "support/mock_system.hpp"

namespace upcie::probes {
namespace {

using gpu::stub::Stub;
using std::chrono::milliseconds;
using testing::_;
using testing::HasSubstr;

constexpr milliseconds share_gpu_patience{5000};
constexpr std::uint64_t cap_word = 0x0000'0024'f0ff'03ff;

Error refusal() {
    return {ErrorDomain::vendor, 800, "cuMemHostRegister_v2", "4096 bytes", "Be root.", "CUDA_ERROR_NOT_PERMITTED"};
}

/// The stub, except for what a test says of MMIO.
class ToldRuntime final : public gpu::Runtime {
  public:
    explicit ToldRuntime(gpu::FlavourRuntime<Stub>& stub) : stub_{stub} {}
    bool refuses_mmio = false;

    [[nodiscard]] std::string describe() const override { return stub_.describe(); }
    [[nodiscard]] Result<DevicePointer> allocate(ByteCount size) override { return stub_.allocate(size); }
    Result<void> free(DevicePointer base) override { return stub_.free(base); }
    [[nodiscard]] Result<gpu::Allocation> allocation_of(DevicePointer pointer) override {
        return stub_.allocation_of(pointer);
    }
    [[nodiscard]] ByteCount reported_granularity() const override { return stub_.reported_granularity(); }
    [[nodiscard]] Result<gpu::Export> export_range(DevicePointer start, ByteCount length) override {
        return stub_.export_range(start, length);
    }
    [[nodiscard]] Result<DevicePointer> register_mmio(void* start, ByteCount length) override {
        if (refuses_mmio) {
            return tl::unexpected{refusal()};
        }
        return stub_.register_mmio(start, length);
    }
    Result<void> unregister_mmio(void* start) override { return stub_.unregister_mmio(start); }
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length) override {
        return stub_.copy_to_device(to, from, length);
    }
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length) override {
        return stub_.copy_to_host(to, from, length);
    }
    [[nodiscard]] Result<std::uint64_t> read_by_kernel(DevicePointer pointer) override {
        return stub_.read_by_kernel(pointer);
    }
    [[nodiscard]] Result<std::uint64_t> checksum(DevicePointer start, ByteCount length) override {
        return stub_.checksum(start, length);
    }

  private:
    gpu::FlavourRuntime<Stub>& stub_;
};

class ToldGpu final : public ProbedGpu {
  public:
    bool reaches_ordinary_memory = true;
    ReadBy way = ReadBy::kernel;
    std::function<Result<std::uint64_t>(std::uint64_t)> reading; ///< of anything but ordinary memory: what it became
    ToldRuntime told{stub_};

    [[nodiscard]] gpu::Runtime& runtime() override { return told; }
    [[nodiscard]] Value describe() const override { return {{"runtime", "told"}}; }
    [[nodiscard]] Result<std::uint64_t> read(DevicePointer pointer) override {
        auto value = stub_.read_by_kernel(pointer);
        return value && reading && pointer != ordinary_ ? reading(*value) : value;
    }
    [[nodiscard]] ReadBy read_by() const override { return way; }
    [[nodiscard]] Result<DevicePointer> register_host(void* start, ByteCount length) override {
        if (!reaches_ordinary_memory) {
            return ProbedGpu::register_host(start, length);
        }
        ordinary_ = stub_.register_mmio(start, length).value();
        return ordinary_;
    }
    Result<void> unregister_host(void* start) override {
        ordinary_ = {}; // something else may come to lie there
        return stub_.unregister_mmio(start);
    }
    [[nodiscard]] Result<DevicePointer> import_external(gpu::ExternalHandle, int, ByteCount) override {
        return fail(ENOTSUP, "import", "a test", "It is not asked.");
    }
    Result<void> release_external(DevicePointer) override { return {}; }
    [[nodiscard]] Result<os::Fd> export_own(gpu::ExternalHandle, ByteCount) override {
        return fail(ENOTSUP, "export", "a test", "It is not asked.");
    }

  private:
    gpu::FlavourRuntime<Stub> stub_{Stub::create(os::real_system()).value()};
    DevicePointer ordinary_;
};

class VfioShareGpu : public testing::Test {
  protected:
    /// A memfd in the place of a device: CAP stands at the second page.
    void SetUp() override {
        device_.session.device = os::Fd{system_, ::memfd_create("device", MFD_CLOEXEC)};
        ASSERT_EQ(::ftruncate(device_.session.device.get(), 8192), 0);
        device_.where = {"0000:7f:1f.7", "/dev/vfio/devices/vfio-none", 0, 4096, true};
        device_.view = std::move(requests_.map_shared(device_.session.device.get(), 4096, page).value);
        ASSERT_TRUE(device_.view);
        put(cap_word);
    }
    void put(std::uint64_t word) { std::memcpy(device_.view.data(), &word, sizeof word); }

    std::array<Channel, 2> pair() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        return {Channel{system_, os::Fd{system_, ends[0]}, share_gpu_patience},
                Channel{system_, os::Fd{system_, ends[1]}, share_gpu_patience}};
    }
    /// Both sides, to the primary's report.
    Report share() {
        auto [here, there] = pair();
        Report report{"vfio_share_gpu_stub", vfio_share_gpu_question, "primary"};
        Report other{"vfio_share_gpu_stub", vfio_share_gpu_question, "secondary"};
        std::thread secondary{[&, &channel = there] {
            const Result<void> done = be_share_gpu_secondary(other, requests_, gpu_, channel);
            EXPECT_TRUE(done) << done.error().message();
        }};
        const Result<void> asked = ask_share_gpu(report, requests_, here, device_);
        secondary.join();
        EXPECT_TRUE(asked) << asked.error().message();
        return report;
    }
    Report alone(bool with_device = true) {
        Report report{"vfio_share_gpu_stub", vfio_share_gpu_question};
        EXPECT_TRUE(ask_gpu_alone(report, requests_, gpu_, with_device ? &device_ : nullptr));
        return report;
    }
    static Answer answer(const Report& report, const std::string& topic) {
        for (const Answer& one : report.judged()) {
            if (one.topic == topic) {
                return one;
            }
        }
        ADD_FAILURE() << "no answer about " << topic;
        return {};
    }
    static void expect_answers(const Report& report, const char* registration, const char* read, const char* whole,
                               const char* topic = "delegated") {
        EXPECT_EQ(answer(report, "registration").answer, registration);
        EXPECT_EQ(answer(report, "device_read").answer, read);
        EXPECT_EQ(answer(report, topic).answer, whole);
        EXPECT_EQ(report.exit_status(), 0);
    }
    static Value value(const Report& report, const char* name) {
        const Observation* const seen = report.find(name);
        EXPECT_NE(seen, nullptr) << name;
        return seen == nullptr ? Value{} : seen->value;
    }

    os::System& system_ = os::real_system();
    Requests requests_{system_};
    ToldGpu gpu_;
    OpenedPage device_;
};

TEST_F(VfioShareGpu, TwoProcessesMeetAtANamedSocketAndTheGpuReadsWhatTheHostReads) {
    const ScratchFolder folder = ScratchFolder::make().value();
    Result<Listener> listener = Listener::open(system_, folder.file("socket"), {});
    ASSERT_TRUE(listener);
    Report other{"vfio_share_gpu_stub", vfio_share_gpu_question, "secondary"};
    std::thread secondary{[&] {
        Result<Channel> channel = Channel::connect(system_, folder.file("socket"), share_gpu_patience);
        ASSERT_TRUE(channel);
        EXPECT_TRUE(be_share_gpu_secondary(other, requests_, gpu_, *channel));
    }};
    Result<Channel> channel = listener->accept(milliseconds{2500}, share_gpu_patience);
    Report report{"vfio_share_gpu_stub", vfio_share_gpu_question, "primary"};
    Result<void> asked;
    if (channel) {
        asked = ask_share_gpu(report, requests_, *channel, device_);
    }
    secondary.join();
    ASSERT_TRUE(channel && asked);
    EXPECT_EQ(channel->patience(), share_gpu_patience);
    expect_answers(report, "ok", "equal", "reachable");
    EXPECT_EQ(value(report, "bar.host_word"), hex(cap_word));
    EXPECT_EQ(value(report, "bar.gpu_word"), hex(cap_word));
    EXPECT_EQ(value(report, "bar.read_by"), "a kernel");
    EXPECT_EQ(value(report, "bar.own_open_of_cdev"), "ENOENT");
    EXPECT_EQ(report.find("bar.registration")->process, "secondary");
    const Value json = report.json();
    for (const char* process : {"primary", "secondary"}) {
        EXPECT_EQ(json["processes"][process]["uid"], ::getuid());
        EXPECT_TRUE(json["processes"][process].contains("groups"));
        EXPECT_TRUE(json["processes"][process]["capabilities"].contains("effective"));
        EXPECT_TRUE(json["processes"][process].contains("dumpable"));
    }
    EXPECT_EQ(json["device"]["bdf"], "0000:7f:1f.7");
    EXPECT_EQ(json["device"]["gpu"]["runtime"], "told");
    EXPECT_TRUE(json["verdict"]["conclusive"].get<bool>());
    EXPECT_EQ(other.find("bar.gpu_word")->value, hex(cap_word)) << "the secondary's own report";
}

TEST_F(VfioShareGpu, ARefusalIsToldInTheVendorsWord) {
    gpu_.told.refuses_mmio = true;
    const Report report = share();
    expect_answers(report, "refused", "not_reached", "not_reachable");
    EXPECT_EQ(value(report, "bar.registration"), "CUDA_ERROR_NOT_PERMITTED");
    EXPECT_EQ(value(report, "ordinary.registration_as_iomemory"), "CUDA_ERROR_NOT_PERMITTED");
    EXPECT_THAT(answer(report, "registration").sentence, HasSubstr("CUDA_ERROR_NOT_PERMITTED"));
    EXPECT_THAT(answer(report, "registration").sentence, HasSubstr("uid " + std::to_string(::geteuid())));
    EXPECT_TRUE(report.json()["verdict"]["conclusive"].get<bool>()) << "a refusal is an answer";
}

TEST_F(VfioShareGpu, WhatTheGpuReadsIsComparedAndNotBelieved) {
    gpu_.reading = [](std::uint64_t word) { return word ^ 1; };
    expect_answers(share(), "ok", "differs", "not_reachable");
    gpu_.reading = [](std::uint64_t) -> Result<std::uint64_t> {
        return fail(EFAULT, "read", "there", "It is not reached.");
    };
    const Report failed = share();
    expect_answers(failed, "ok", "not_reached", "not_reachable");
    EXPECT_THAT(answer(failed, "device_read").sentence, HasSubstr("EFAULT"));
}

TEST_F(VfioShareGpu, ACopyIsCalledTheWeakerWitness) {
    gpu_.way = ReadBy::copy;
    const Report report = share();
    expect_answers(report, "ok", "equal", "reachable");
    EXPECT_THAT(answer(report, "device_read").sentence, HasSubstr("weaker"));
    EXPECT_THAT(report.find("bar.read_by")->note, HasSubstr("weaker"));
    gpu_.way = ReadBy::kernel;
    EXPECT_THAT(answer(share(), "device_read").sentence, testing::Not(HasSubstr("weaker")));
}

TEST_F(VfioShareGpu, FailedControlsMakeItInconclusive) {
    const auto expect_inconclusive = [&](const char* control) {
        SCOPED_TRACE(control);
        const Report report = share();
        ASSERT_NE(report.find(control), nullptr);
        EXPECT_EQ(report.find(control)->held, std::optional<bool>{false});
        expect_answers(report, "inconclusive", "inconclusive", "inconclusive");
        EXPECT_THAT(answer(report, "delegated").failed_controls, testing::ElementsAre(control));
    };
    gpu_.reaches_ordinary_memory = false;
    expect_inconclusive("control.ordinary_memory_is_reachable");
    gpu_.reaches_ordinary_memory = true;
    for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        put(word);
        expect_inconclusive("control.host_reads_the_register");
    }
    put(cap_word);
    gpu_.reading = [&](std::uint64_t word) {
        put(word + 1); // a register that counts
        return word;
    };
    expect_inconclusive("control.the_register_holds_still");
    put(cap_word);
    gpu_.reading = {};
    // The primary's view is of another page than the one that it hands over.
    device_.where.file_offset = 0;
    const std::uint64_t other = 4711;
    ASSERT_EQ(::pwrite(device_.session.device.get(), &other, sizeof other, 0), 8);
    expect_inconclusive("control.both_hosts_read_the_same");
}

TEST_F(VfioShareGpu, AMappingThatIsRefusedIsToldAndNothingIsRegistered) {
    device_.where.file_offset = 512;
    const Report report = share();
    EXPECT_EQ(value(report, "bar.mmap"), "EINVAL");
    EXPECT_EQ(report.find("bar.registration"), nullptr);
    expect_answers(report, "not_seen", "not_reached", "not_reachable");
    EXPECT_THAT(answer(report, "registration").sentence, HasSubstr("EINVAL"));
}

TEST_F(VfioShareGpu, OneProcessIsTheControlOfTwo) {
    const Report report = alone();
    expect_answers(report, "ok", "equal", "reachable", "standalone");
    EXPECT_TRUE(report.json()["processes"].contains("standalone"));
    gpu_.told.refuses_mmio = true;
    expect_answers(alone(), "refused", "not_reached", "not_reachable", "standalone");
}

TEST_F(VfioShareGpu, WithoutADeviceTheBarIsNotSeenAndOrdinaryMemoryIsAsked) {
    const Report taken = alone(false);
    expect_answers(taken, "not_seen", "not_seen", "not_seen", "standalone");
    EXPECT_EQ(value(taken, "bar"), nullptr);
    EXPECT_EQ(answer(taken, "ordinary_as_iomemory").answer, "ok");
    EXPECT_EQ(value(taken, "ordinary.gpu_read_as_iomemory_is_equal"), true);
    EXPECT_EQ(taken.json()["device"]["runtime"], "told");
    gpu_.told.refuses_mmio = true;
    const Report refused = alone(false);
    EXPECT_EQ(answer(refused, "ordinary_as_iomemory").answer, "refused");
    EXPECT_THAT(answer(refused, "ordinary_as_iomemory").sentence, HasSubstr("CUDA_ERROR_NOT_PERMITTED"));
    EXPECT_EQ(refused.find("ordinary.gpu_read_as_iomemory"), nullptr);
}

TEST_F(VfioShareGpu, AnotherVersionAnotherVendorAndHalfAMessageAreRefused) {
    {
        int ends[2] = {-1, -1};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        const os::Fd raw{system_, ends[1]};
        Channel here{system_, os::Fd{system_, ends[0]}, share_gpu_patience};
        const std::string old = R"({"magic":"upcie-probe","version":4711,"type":"hello","data":{}})";
        ASSERT_EQ(::send(raw.get(), old.data(), old.size(), 0), static_cast<ssize_t>(old.size()));
        Report report{"vfio_share_gpu_stub", vfio_share_gpu_question, "primary"};
        const Result<void> asked = ask_share_gpu(report, requests_, here, device_);
        ASSERT_FALSE(asked);
        EXPECT_TRUE(asked.error().is(EPROTO));
        EXPECT_THAT(asked.error().hint, HasSubstr("4711"));
    }
    const Value self = who_am_i(system_)->json();
    {
        auto [here, there] = pair();
        const Value nothing = Report{"x", "y"}.share_findings();
        ASSERT_TRUE(there.send("hello", self));
        ASSERT_TRUE(there.send("looked", {{"findings", nothing}, {"flavour", "hip"}, {"gpu", Value::object()}}));
        Report report{"vfio_share_gpu_stub", vfio_share_gpu_question, "primary"};
        const Result<void> asked = ask_share_gpu(report, requests_, here, device_);
        ASSERT_FALSE(asked);
        EXPECT_THAT(asked.error().hint, HasSubstr("another vendor"));
    }
    for (const Value& data : {Value{{"device", {{"bdf", "0000:01:00.0"}}}}, Value::object(), Value{{"device", 7}}}) {
        auto [here, there] = pair();
        ASSERT_TRUE(here.send("hello", self));
        ASSERT_TRUE(here.send("page", data, {device_.session.device.get()}));
        Report report{"vfio_share_gpu_stub", vfio_share_gpu_question, "secondary"};
        const Result<void> done = be_share_gpu_secondary(report, requests_, gpu_, there);
        ASSERT_FALSE(done) << data.dump();
        EXPECT_TRUE(done.error().is(EPROTO)) << data.dump();
    }
}

class OpenPage : public testing::Test {
  protected:
    static constexpr const char* node = "/dev/vfio/devices/vfio9";
    OpenPage() {
        function_.vfio_cdev = node;
        function_.class_code = 0x010802;
        // Pages below `first_` hold what may not be mapped: an MSI-X table.
        ON_CALL(system_, mmap(_, page, _, _, test::FakeVfioDevice::fd, _))
            .WillByDefault([this](void*, std::size_t, int, int, int, off_t place) -> void* {
                if (place < first_) {
                    errno = EINVAL;
                    return MAP_FAILED;
                }
                return ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            });
    }
    test::MockSystem system_;
    test::FakeIommufd iommufd_{system_};
    test::FakeVfioDevice device_{system_, node};
    Requests requests_{system_};
    pci::FunctionInfo function_;
    off_t first_ = 0;
};

TEST_F(OpenPage, TheFirstPageThatCanBeMapped) {
    const auto opened = open_page(requests_, function_);
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_EQ(opened->where.bar_offset, 0U);
    EXPECT_TRUE(opened->where.nvme);
    first_ = 8192;
    const auto later = open_page(requests_, function_);
    ASSERT_TRUE(later);
    EXPECT_EQ(later->where.bar_offset, 8192U);
    EXPECT_EQ(later->where.file_offset, 8192U) << "BAR 0 begins at 0 in this descriptor";
}

TEST_F(OpenPage, WhatStandsInTheWayIsNamed) {
    first_ = 1 << 20;
    EXPECT_TRUE(open_page(requests_, function_).error().is(EINVAL));
    device_.failures[uapi::vfio_device_get_region_info] = EIO;
    EXPECT_TRUE(open_page(requests_, function_).error().is(EIO));
    device_.failures[uapi::vfio_device_bind_iommufd] = EBUSY;
    EXPECT_TRUE(open_page(requests_, function_).error().is(EBUSY));
}

} // namespace
} // namespace upcie::probes
