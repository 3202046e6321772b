// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/controller.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <system_error>
#include <thread>
#include <utility>

#include <sched.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

using namespace std::chrono_literals;

std::uint64_t bar_bytes(const Options& options) noexcept {
    std::uint64_t end = reg::doorbells + (std::uint64_t{options.queues} + 1) * 2 * (std::uint64_t{4} << options.dstrd);
    if (options.msix_table != 0) {
        end = options.msix_table + std::uint64_t{Engine::vector_count(options)} * 16;
    }
    return std::bit_ceil(std::max<std::uint64_t>(end, 0x4000));
}

} // namespace

/// The controller's thread: quick while there is work, asleep most of the time when there is none.
struct Controller::Worker {
    /// Throws std::system_error where the system has no thread for it.
    explicit Worker(Engine& engine) : thread{[this, &engine] { run(engine); }} {}
    ~Worker() {
        stop.store(true, std::memory_order_release);
        thread.join();
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void run(Engine& engine) const {
        auto last_work = std::chrono::steady_clock::now();
        while (!stop.load(std::memory_order_acquire)) {
            if (engine.step() != 0) {
                last_work = std::chrono::steady_clock::now();
                continue;
            }
            const auto idle = std::chrono::steady_clock::now() - last_work;
            if (idle < 50us) {
                sched_yield();
            } else {
                std::this_thread::sleep_for(idle < 5ms ? 10us : idle < 200ms ? 100us : 1000us);
            }
        }
    }

    std::atomic<bool> stop{false};
    std::thread thread; // declared last: it reads the flag
};

Controller::Controller(const Options& options, std::shared_ptr<AddressSpace> space, std::unique_ptr<Engine> engine)
    : options_{options}, space_{std::move(space)}, engine_{std::move(engine)} {
    if (options_.threaded) {
        worker_ = std::make_unique<Worker>(*engine_);
    }
}

Controller::~Controller() = default;

Result<std::shared_ptr<Controller>> Controller::create(const Options& options, std::shared_ptr<AddressSpace> space,
                                                       os::System& system) {
    const auto checked = options.check();
    if (!checked) {
        return tl::unexpected{checked.error()};
    }
    auto media = Medium::create(system, options);
    if (!media) {
        return tl::unexpected{std::move(media.error())};
    }
    auto bar = Bar::create(system, ByteCount{bar_bytes(options)});
    if (!bar) {
        return tl::unexpected{std::move(bar.error())};
    }
    auto engine = std::make_unique<Engine>(options, space, std::move(*bar), std::move(*media), system);
    try {
        return std::shared_ptr<Controller>{new Controller{options, std::move(space), std::move(engine)}};
    } catch (const std::system_error& error) {
        return fail(error.code().value(), "start a thread", "simulated controller",
                    "Threads or memory are used up (ulimit -u, ulimit -v); thread=off does without.");
    }
}

std::size_t Controller::step() {
    return engine_->step();
}

void Controller::advance(std::chrono::milliseconds time) {
    engine_->advance(time);
}

std::vector<Violation> Controller::violations() const {
    return engine_->violations();
}

void Controller::clear_violations() {
    engine_->clear_violations();
}

void Controller::set_faults(FaultScript script) {
    engine_->set_faults(std::move(script));
}

std::vector<std::uint64_t> Controller::fault_hits() const {
    return engine_->fault_hits();
}

Controller::Counters Controller::counters() const {
    return engine_->counters();
}

void Controller::raise_event(std::uint8_t type, std::uint8_t information, std::uint8_t log_page) {
    engine_->raise_event(type, information, log_page);
}

Result<void> Controller::read_medium(Nsid nsid, Lba lba, std::span<std::byte> out) const {
    return engine_->read_medium(nsid, lba, out);
}

Result<void> Controller::write_medium(Nsid nsid, Lba lba, std::span<const std::byte> data) {
    return engine_->write_medium(nsid, lba, data);
}

ByteCount Controller::bar_size() const noexcept {
    return engine_->bar()->size();
}

os::Mapping Controller::map_bar(ByteCount offset, ByteCount length) const {
    return os::Mapping{engine_->bar(), engine_->bar()->data() + offset.value(), length};
}

std::uint64_t Controller::read_bar(ByteCount offset, unsigned width) const noexcept {
    return engine_->bar()->load_width(offset.value(), width);
}

void Controller::write_bar(ByteCount offset, unsigned width, std::uint64_t value) noexcept {
    engine_->bar()->store_width(offset.value(), width, value);
}

void Controller::set_bus_master(bool enabled) {
    engine_->set_bus_master(enabled);
}

bool Controller::bus_master() const {
    return engine_->bus_master();
}

Result<void> Controller::set_interrupts(std::span<const int> eventfds) {
    return engine_->set_interrupts(eventfds);
}

void Controller::reset() {
    engine_->reset();
}

} // namespace upcie::sim
