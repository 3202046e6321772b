// SPDX-License-Identifier: BSD-3-Clause
#include "device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include <upcie/open.hpp>

namespace upcie::conformance {

namespace {

const char* variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
}

// Numbers parted by colons, as many as wanted.
std::optional<std::vector<std::uint64_t>> numbers(std::string_view text, std::size_t wanted) {
    std::vector<std::uint64_t> found;
    while (true) {
        const std::size_t colon = text.find(':');
        const std::string_view part = text.substr(0, colon);
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc{} || end != part.data() + part.size()) {
            return std::nullopt;
        }
        found.push_back(value);
        if (colon == std::string_view::npos) {
            break;
        }
        text.remove_prefix(colon + 1);
    }
    return found.size() == wanted ? std::optional{found} : std::nullopt;
}

bool read_range(const char* name, bool stamped, std::optional<BlockRange>& range) {
    const char* const text = variable(name);
    if (text == nullptr) {
        return true;
    }
    const auto found = numbers(text, stamped ? 3 : 2);
    if (!found || found->back() == 0) {
        fmt::print(stderr, "{}={}: it takes {}, count at least 1.\n", name, text,
                   stamped ? "SEED:FIRST:COUNT" : "FIRST:COUNT");
        return false;
    }
    range = stamped ? BlockRange{(*found)[1], (*found)[2], (*found)[0]} : BlockRange{(*found)[0], (*found)[1], 0};
    return true;
}

std::optional<Path> read_path() {
    const char* const text = variable("UPCIE_TEST_PATH");
    for (const Path path : {Path::automatic, Path::cdev, Path::group, Path::noiommu_cdev, Path::uio}) {
        if (text == nullptr || to_string(path) == text) {
            return path;
        }
    }
    fmt::print(stderr, "UPCIE_TEST_PATH={}: it is automatic, cdev, group, noiommu or uio.\n", text);
    return std::nullopt;
}

} // namespace

Device& Device::instance() {
    static Device device;
    return device;
}

bool Device::open() {
    const char* const named = variable("UPCIE_TEST_DEVICE");
    name_ = named != nullptr ? named : "sim:size=64M,ns=2,mdts=9,queues=8,mqes=255";
    if (!read_range("UPCIE_TEST_SCRATCH", false, scratch_) ||
        !read_range("UPCIE_TEST_WITNESS_READ", true, witness_read_) ||
        !read_range("UPCIE_TEST_WITNESS_WRITE", true, witness_write_)) {
        return false;
    }
    if (const char* const text = variable("UPCIE_TEST_NSID"); text != nullptr) {
        const auto found = numbers(text, 1);
        if (!found || found->front() == 0 || found->front() > 0xfffffffe) {
            fmt::print(stderr, "UPCIE_TEST_NSID={}: it is a namespace identifier.\n", text);
            return false;
        }
        nsid_ = Nsid{static_cast<std::uint32_t>(found->front())};
    }
    if (!scratch_ && !name_.starts_with("sim:")) {
        fmt::print(stderr, "UPCIE_TEST_SCRATCH=FIRST:COUNT must say which blocks of {} may be overwritten.\n", name_);
        return false;
    }
    const auto path = read_path();
    if (!path) {
        return false;
    }
    OpenOptions options;
    options.path = *path;
    auto opened = open_function(os::real_system(), name_, options);
    if (!opened) {
        fmt::print(stderr, "{}\n", opened.error().message());
        return false;
    }
    function_ = std::move(*opened);
    fmt::print("{}: {} ({})\n", name_, function_->path(), function_->path_reason());
    return true;
}

void Device::close() {
    function_.reset();
}

sim::Controller* Device::simulated() const {
    const auto* const function = dynamic_cast<sim::Function*>(function_.get());
    return function == nullptr ? nullptr : function->controller().get();
}

// ---- stamps

namespace {

constexpr std::uint64_t magic = 0x3154534549435055U;

std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

std::uint64_t stamp_word(std::size_t index, std::size_t block_size, std::uint64_t seed, Nsid nsid, std::uint64_t lba,
                         std::uint64_t pass) {
    const std::uint64_t head[] = {magic, seed, nsid.value() | (std::uint64_t{block_size} << 32), lba, pass};
    if (index < 5) {
        return head[index];
    }
    std::uint64_t check = 0;
    for (const std::uint64_t word : head) {
        check = mix(check ^ word);
    }
    return index == 5 ? check : mix(check + (index - 5) * 0x9E3779B97F4A7C15U);
}

} // namespace

void fill_stamp(std::span<std::byte> block, std::uint64_t seed, Nsid nsid, std::uint64_t lba, std::uint64_t pass) {
    for (std::size_t i = 0; i < block.size() / 8; ++i) {
        const std::uint64_t word = stamp_word(i, block.size(), seed, nsid, lba, pass);
        std::memcpy(block.data() + i * 8, &word, 8);
    }
}

std::string check_stamp(std::span<const std::byte> block, std::uint64_t seed, Nsid nsid, std::uint64_t lba,
                        std::uint64_t pass) {
    for (std::size_t i = 0; i < block.size() / 8; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, block.data() + i * 8, 8);
        const std::uint64_t wanted = stamp_word(i, block.size(), seed, nsid, lba, pass);
        if (word != wanted) {
            std::uint64_t found_lba = 0;
            std::memcpy(&found_lba, block.data() + 24, 8);
            return fmt::format("block {}: byte {} begins 0x{:016x}, should be 0x{:016x} (its LBA field says {})", lba,
                               i * 8, word, wanted, found_lba);
        }
    }
    return {};
}

// ---- the fixture

void Conformance::SetUp() {
    Device& device = Device::instance();
    if (!device.function() && !device.open()) {
        FAIL() << "the device does not open";
    }
    if (device.simulated() != nullptr) {
        device.simulated()->clear_violations();
    }
    open_controller();
}

void Conformance::TearDown() {
    registry.reset();
    controller.reset();
    EXPECT_EQ(nvme::abandoned_memory().controllers, 0U) << "a controller could not be disabled at its end";
    const sim::Controller* const simulated = Device::instance().simulated();
    if (simulated != nullptr) {
        EXPECT_EQ(sim::to_string(simulated->violations()), "");
    }
}

void Conformance::open_controller(const nvme::ControllerOptions& options) {
    registry.reset();
    controller.reset();
    auto opened = nvme::Controller::open(system, Device::instance().function(), options);
    ASSERT_TRUE(opened) << opened.error().message();
    controller = std::move(*opened);
    auto made = memory::Registry::create(system, controller->address_space());
    ASSERT_TRUE(made) << made.error().message();
    registry = std::move(*made);
    const auto active = controller->active_namespaces();
    ASSERT_TRUE(active) << active.error().message();
    ASSERT_FALSE(active->empty());
    const Nsid nsid = Device::instance().nsid().value_or(active->front());
    auto info = controller->identify_namespace(nsid);
    ASSERT_TRUE(info) << info.error().message();
    space = std::move(*info);
    ASSERT_EQ(space.format().metadata_bytes, 0);
    format = {nsid, space.format().data_shift};
}

nvme::QueueOptions Conformance::of_depth(std::uint32_t depth) {
    nvme::QueueOptions options;
    options.depth = depth;
    return options;
}

nvme::QueuePair Conformance::make_queue(std::uint32_t depth, std::optional<unsigned> vector) {
    nvme::QueueOptions options = of_depth(std::min(depth, controller->capabilities().max_queue_entries()));
    options.interrupt_vector = vector;
    options.registry = registry;
    auto made = controller->create_queue_pair(options);
    if (!made) {
        throw std::runtime_error{made.error().message()}; // ends this test, and only this
    }
    return std::move(*made);
}

Memory Conformance::make_memory(std::size_t size) {
    const auto backing =
        controller->address_space()->needs_hugepages() ? memory::Backing::hugepage_2m : memory::Backing::plain;
    auto buffer = memory::Buffer::allocate(system, ByteCount{size}, backing);
    if (!buffer) {
        throw std::runtime_error{buffer.error().message()};
    }
    auto registered = registry->register_buffer(*buffer);
    if (!registered) {
        throw std::runtime_error{registered.error().message()};
    }
    return {std::move(*buffer), std::move(*registered)};
}

Lba Conformance::scratch(std::uint64_t index, std::uint64_t blocks) {
    const BlockRange whole{0, space.size_blocks, 0};
    const BlockRange range = Device::instance().scratch().value_or(whole);
    EXPECT_LE(index + blocks, range.count) << "UPCIE_TEST_SCRATCH is too small for this test";
    return Lba{range.first + index};
}

std::size_t Conformance::max_bytes(const nvme::QueuePair& queue) const {
    return static_cast<std::size_t>(queue.max_transfer().value()) / block_size() * block_size();
}

std::vector<nvme::Completion> Conformance::finish(nvme::QueuePair& queue, std::size_t count) const {
    queue.ring();
    std::vector<nvme::Completion> all(count);
    std::size_t came = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (came < count && std::chrono::steady_clock::now() < end) {
        const std::size_t now = queue.poll(std::span{all}.subspan(came));
        came += now;
        if (now == 0) {
            controller->function()->pause();
        }
    }
    EXPECT_EQ(came, count) << "completions did not come within ten seconds";
    all.resize(came);
    return all;
}

nvme::Completion Conformance::finish_one(nvme::QueuePair& queue, const nvme::Submitted& submitted) const {
    const auto none = nvme::Completion::without_answer(0, Cid{0}, nvme::Outcome::timed_out);
    if (!submitted) {
        ADD_FAILURE() << submitted.error("submit", "command").message();
        return none;
    }
    const auto all = finish(queue, 1);
    return all.empty() ? none : all.front();
}

int Conformance::code(const nvme::Completion& completion) {
    return completion.outcome() == nvme::Outcome::completed ? completion.status().raw() & 0x7ff : -1;
}

} // namespace upcie::conformance
