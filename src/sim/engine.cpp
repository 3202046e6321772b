// SPDX-License-Identifier: BSD-3-Clause
#include "sim/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace upcie::sim {

Engine::Engine(Options options, std::shared_ptr<AddressSpace> space, std::shared_ptr<Bar> bar,
               std::vector<Medium> media, os::System& system)
    : options_{std::move(options)},
      space_{std::move(space)},
      bar_{std::move(bar)},
      system_{system},
      media_{std::move(media)},
      sqs_(options_.queues + 1U),
      cqs_(options_.queues + 1U) {
    faults_.load(options_.faults);
    doorbell_words_ = (bar_->size().value() - reg::doorbells) / 4;
    if (options_.msix_table != 0) {
        doorbell_words_ = std::min(doorbell_words_, (options_.msix_table / 4096 * 4096 - reg::doorbells) / 4);
    }
    doorbells_.assign(static_cast<std::size_t>(doorbell_words_), 0);
    lay_out_registers();
    forget_queues();
    reset_features();
}

unsigned Engine::vector_count(const Options& options) noexcept {
    if (options.no_interrupts) {
        return 0;
    }
    return options.vectors != 0 ? options.vectors : options.queues + 1U;
}

std::size_t Engine::step() {
    const std::lock_guard lock{mutex_};
    std::size_t work = watch_registers();
    if (!working()) {
        if (!gone_) {
            work += watch_doorbells();
        }
        return work;
    }
    // Until nothing is left: a completion may free a held command, whose completion may find room only now.
    for (std::size_t done = 1; done != 0;) {
        done = watch_doorbells();
        done += fetch_all();
        done += release_due();
        done += post_all();
        work += done;
        if (!working()) {
            break;
        }
        if (options_.threaded) {
            break; // the thread comes again, and others get at the lock in between
        }
    }
    signal_all();
    return work;
}

void Engine::advance(std::chrono::milliseconds time) {
    {
        const std::lock_guard lock{mutex_};
        skew_ += time;
    }
    step();
}

void Engine::reset() {
    const std::lock_guard lock{mutex_};
    if (gone_) {
        return;
    }
    ++counters_.resets;
    stop();
    lay_out_registers();
    bus_master_ = false;
    eventfds_.clear();
    events_.clear();
}

std::vector<Violation> Engine::violations() const {
    const std::lock_guard lock{mutex_};
    return violations_;
}

void Engine::clear_violations() {
    const std::lock_guard lock{mutex_};
    violations_.clear();
}

void Engine::set_faults(FaultScript script) {
    const std::lock_guard lock{mutex_};
    faults_.load(std::move(script));
}

std::vector<std::uint64_t> Engine::fault_hits() const {
    const std::lock_guard lock{mutex_};
    return faults_.hits();
}

Controller::Counters Engine::counters() const {
    const std::lock_guard lock{mutex_};
    return counters_;
}

void Engine::raise_event(std::uint8_t type, std::uint8_t information, std::uint8_t log_page) {
    const std::lock_guard lock{mutex_};
    events_.push_back({static_cast<std::uint8_t>(type & 7), information, log_page});
    deliver_events();
}

Medium* Engine::medium(std::uint32_t nsid) {
    return nsid >= 1 && nsid <= media_.size() ? &media_[nsid - 1] : nullptr;
}

namespace {

Result<std::span<std::byte>> medium_bytes(const std::vector<Medium>& media, Nsid nsid, Lba lba, std::size_t length) {
    const auto refuse = [&](const char* hint) {
        return fail(EINVAL, "access medium",
                    fmt::format("namespace {}, block {}, {} bytes", nsid.value(), lba.value(), length), hint);
    };
    if (nsid.value() < 1 || nsid.value() > media.size()) {
        return refuse("There is no such namespace.");
    }
    const Medium& medium = media[nsid.value() - 1];
    if (length % medium.block_size() != 0) {
        return refuse("The length must be whole blocks.");
    }
    const std::uint64_t count = length / medium.block_size();
    if (lba.value() > medium.blocks() || count > medium.blocks() - lba.value()) {
        return refuse("The range leaves the namespace.");
    }
    return medium.bytes(lba.value(), count);
}

} // namespace

Result<void> Engine::read_medium(Nsid nsid, Lba lba, std::span<std::byte> out) const {
    const std::lock_guard lock{mutex_};
    const auto bytes = medium_bytes(media_, nsid, lba, out.size());
    if (!bytes) {
        return tl::unexpected{bytes.error()};
    }
    std::memcpy(out.data(), bytes->data(), out.size());
    return {};
}

Result<void> Engine::write_medium(Nsid nsid, Lba lba, std::span<const std::byte> data) {
    const std::lock_guard lock{mutex_};
    const auto bytes = medium_bytes(media_, nsid, lba, data.size());
    if (!bytes) {
        return tl::unexpected{bytes.error()};
    }
    std::memcpy(bytes->data(), data.data(), data.size());
    return {};
}

void Engine::set_bus_master(bool enabled) {
    const std::lock_guard lock{mutex_};
    bus_master_ = enabled;
    noted_no_master_ = false;
}

bool Engine::bus_master() const {
    const std::lock_guard lock{mutex_};
    return bus_master_;
}

Result<void> Engine::set_interrupts(std::span<const int> eventfds) {
    std::vector<os::Fd> taken;
    for (const int fd : eventfds) {
        os::Fd& copy = taken.emplace_back();
        if (fd < 0) {
            continue;
        }
        copy = os::Fd{system_, system_.fcntl(fd, F_DUPFD_CLOEXEC, 0)};
        if (!copy) {
            return fail(errno, "enable interrupts", fmt::format("descriptor {}", fd), "Give eventfds that are open.");
        }
    }
    const std::lock_guard lock{mutex_};
    eventfds_ = std::move(taken);
    return {};
}

void Engine::violate(ViolationKind kind, std::string text) {
    constexpr std::size_t enough = 1000; // a driver gone wild repeats itself
    if (violations_.size() < enough) {
        violations_.push_back({kind, std::move(text)});
    }
}

void Engine::note(const AccessFault& fault, const char* what) {
    violate(ViolationKind::access_fault, fmt::format("{}: {} of {} bytes at 0x{:x}: {}", what,
                                                     fault.wanted == iommu::Access::read ? "read" : "write",
                                                     fault.length.value(), fault.address.value(), fault.reason));
}

} // namespace upcie::sim
