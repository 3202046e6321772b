// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

constexpr std::uint32_t version = 0x00020000; // 2.0

std::uint64_t capabilities(const Options& options) noexcept {
    std::uint64_t cap = options.mqes;
    cap |= std::uint64_t{1} << 16; // CQR: queues are physically contiguous
    cap |= std::uint64_t{options.to} << 24;
    cap |= std::uint64_t{options.dstrd} << 32;
    cap |= std::uint64_t{1} << 37; // CSS: NVM command set
    cap |= std::uint64_t{options.mpsmin} << 48;
    cap |= std::uint64_t{options.mpsmax} << 52;
    return cap;
}

} // namespace

void Engine::lay_out_registers() {
    cap_ = capabilities(options_);
    cc_ = 0;
    aqa_ = 0;
    asq_ = 0;
    acq_ = 0;
    for (std::uint64_t offset = 0; offset < reg::doorbells; offset += 4) {
        bar_->store(offset, 0);
    }
    bar_->store(reg::cap, static_cast<std::uint32_t>(cap_));
    bar_->store(reg::cap + 4, static_cast<std::uint32_t>(cap_ >> 32));
    bar_->store(reg::vs, version);
    set_csts(0);
}

bool Engine::working() const noexcept {
    return !gone_ && (csts_ & (bits::csts_ready | bits::csts_fatal)) == bits::csts_ready &&
           (cc_ & bits::cc_enable) != 0;
}

void Engine::set_csts(std::uint32_t csts) {
    csts_ = csts;
    bar_->store(reg::csts, csts);
}

void Engine::fail_fatally() {
    set_csts(csts_ | bits::csts_fatal);
}

void Engine::vanish() {
    gone_ = true;
    held_.clear();
    for (std::uint64_t offset = 0; offset < reg::doorbells; offset += 4) {
        bar_->store(offset, ~0U);
    }
}

// True: the host wrote what it must not. The value is put back.
bool Engine::watch_fixed(std::uint64_t offset, std::uint32_t value, const char* name) {
    const std::uint32_t seen = bar_->load(offset);
    if (seen == value) {
        return false;
    }
    violate(ViolationKind::register_write, fmt::format("0x{:x} written to {}, which is read-only", seen, name));
    bar_->store(offset, value);
    return true;
}

// Admin queue registers are read when the controller is enabled and may not change after (3.1.3.8 to 3.1.3.10).
void Engine::watch_latched() {
    struct Latched {
        std::uint64_t offset;
        std::uint32_t value;
        const char* name;
    };
    const Latched all[] = {{reg::aqa, aqa_, "AQA"},
                           {reg::asq, static_cast<std::uint32_t>(asq_), "ASQ"},
                           {reg::asq + 4, static_cast<std::uint32_t>(asq_ >> 32), "ASQ"},
                           {reg::acq, static_cast<std::uint32_t>(acq_), "ACQ"},
                           {reg::acq + 4, static_cast<std::uint32_t>(acq_ >> 32), "ACQ"}};
    const bool ready = (csts_ & bits::csts_ready) != 0;
    for (const Latched& latched : all) {
        if (bar_->load(latched.offset) != latched.value) {
            if (!ready) {
                // The host cleared CC.EN, saw CSTS.RDY still (not again) 0 and goes on, too quick to be watched: either
                // it is at it just now, or it has set CC.EN again.
                if (bar_->load(reg::cc) == cc_) {
                    ++counters_.resets;
                    stop();
                    start(cc_);
                }
                return;
            }
            violate(ViolationKind::register_write, fmt::format("{} written while CC.EN is set", latched.name));
            bar_->store(latched.offset, latched.value);
        }
    }
}

std::size_t Engine::watch_registers() {
    if (gone_) {
        return 0;
    }
    std::size_t work = 0;
    const std::uint32_t cc = bar_->load(reg::cc);
    if (cc != cc_) {
        change_cc(cc);
        ++work;
    }
    if (gone_) {
        return work;
    }
    watch_fixed(reg::cap, static_cast<std::uint32_t>(cap_), "CAP");
    watch_fixed(reg::cap + 4, static_cast<std::uint32_t>(cap_ >> 32), "CAP");
    watch_fixed(reg::vs, version, "VS");
    watch_fixed(reg::csts, csts_, "CSTS");
    if (!watch_fixed(reg::nssr, 0, "NSSR (CAP.NSSRS is 0)") && (cc_ & bits::cc_enable) != 0) {
        watch_latched();
    }
    // Set- and clear-registers of pin interrupts: with MSI-X they are not to be touched (3.1.3.3).
    for (const std::uint64_t offset : {reg::intms, reg::intmc}) {
        if (bar_->load(offset) != 0) {
            if (!eventfds_.empty()) {
                violate(ViolationKind::register_write, "INTMS or INTMC written while MSI-X is enabled");
            }
            bar_->store(offset, 0);
        }
    }
    if (ready_at_ && now() >= *ready_at_) {
        ready_at_.reset();
        set_csts(csts_ | bits::csts_ready);
        ++work;
    }
    return work;
}

void Engine::change_cc(std::uint32_t cc) {
    const std::uint32_t old = cc_;
    cc_ = cc;
    const bool was = (old & bits::cc_enable) != 0;
    const bool is = (cc & bits::cc_enable) != 0;
    if (was && is) {
        std::uint32_t fixed = (old ^ cc) & ~bits::cc_shutdown;
        const auto exists = [](const auto& queue) { return queue.exists; };
        if (!std::any_of(sqs_.begin() + 1, sqs_.end(), exists) && !std::any_of(cqs_.begin() + 1, cqs_.end(), exists)) {
            fixed &= ~bits::cc_entry_sizes; // to be set before the first I/O queue (3.1.3.5)
        }
        if (fixed != 0) {
            violate(ViolationKind::register_write,
                    fmt::format("CC changed from 0x{:08x} to 0x{:08x} while CC.EN is set", old, cc));
        }
    }
    if ((cc & bits::cc_shutdown) != 0 && (old & bits::cc_shutdown) == 0) {
        shut_down();
    }
    if (was && !is) {
        ++counters_.resets;
        const FaultRule* const fault = faults_.on_event(FaultEvent::disable);
        const std::uint32_t before = csts_;
        stop();
        if (fault != nullptr && fault->action == FaultAction::never_idle) {
            set_csts(before);
        } else if (fault != nullptr && fault->action == FaultAction::fatal) {
            fail_fatally();
        } else if (fault != nullptr) {
            vanish();
        }
    } else if (!was && is) {
        start(cc);
    }
}

void Engine::start(std::uint32_t cc) {
    const FaultRule* const fault = faults_.on_event(FaultEvent::enable);
    if ((csts_ & bits::csts_ready) != 0) {
        violate(ViolationKind::controller_setup, "CC.EN set again before CSTS.RDY was 0");
    }
    set_csts(0);
    aqa_ = bar_->load(reg::aqa);
    asq_ = bar_->load_wide(reg::asq);
    acq_ = bar_->load_wide(reg::acq);
    if (fault != nullptr && fault->action == FaultAction::gone) {
        vanish();
        return;
    }
    if (!set_up_admin_queues(cc) || (fault != nullptr && fault->action == FaultAction::fatal)) {
        fail_fatally();
        return;
    }
    if (fault != nullptr && fault->action == FaultAction::never_ready) {
        return;
    }
    if (options_.ready_delay.count() != 0) {
        ready_at_ = now() + options_.ready_delay;
    } else {
        set_csts(csts_ | bits::csts_ready);
    }
}

bool Engine::set_up_admin_queues(std::uint32_t cc) {
    if (!bus_master_) {
        violate(ViolationKind::dma_while_not_master, "CC.EN set while bus mastering is off");
        noted_no_master_ = true;
    }
    const std::size_t before = violations_.size();
    const auto refuse = [&](std::string text) { violate(ViolationKind::controller_setup, std::move(text)); };
    const std::uint32_t mps = (cc >> 7) & 15;
    if (mps < options_.mpsmin || mps > options_.mpsmax) {
        refuse(fmt::format("CC.MPS is {}, CAP allows {} to {}", mps, options_.mpsmin, options_.mpsmax));
    }
    if (((cc >> 4) & 7) != 0) {
        refuse(fmt::format("CC.CSS is {}, CAP allows the NVM command set only", (cc >> 4) & 7));
    }
    if (((cc >> 11) & 7) != 0) {
        refuse("CC.AMS is not round robin, which is all that CAP allows");
    }
    if ((cc & 0xff00000eU) != 0) {
        refuse(fmt::format("reserved bits of CC are set: 0x{:08x}", cc));
    }
    if (violations_.size() != before) {
        return false;
    }
    page_shift_ = 12 + mps;
    const std::uint64_t page = std::uint64_t{1} << page_shift_;
    const std::uint32_t sq_entries = (aqa_ & 0xfff) + 1;
    const std::uint32_t cq_entries = ((aqa_ >> 16) & 0xfff) + 1;
    if (sq_entries < 2 || cq_entries < 2 || (aqa_ & 0xf000f000U) != 0) {
        refuse(fmt::format("AQA is 0x{:08x}: queues have 2 to 4096 entries", aqa_));
    }
    for (const std::uint64_t base : {asq_, acq_}) {
        if (base % page != 0) {
            violate(ViolationKind::queue_memory,
                    fmt::format("admin queue at 0x{:x} is not at a page of {}", base, page));
        }
    }
    if (violations_.size() != before) {
        return false;
    }
    const bool sq_good =
        check_ring("admin submission queue", asq_, std::uint64_t{sq_entries} * 64, iommu::Access::read);
    const bool cq_good =
        check_ring("admin completion queue", acq_, std::uint64_t{cq_entries} * 16, iommu::Access::write);
    if (!sq_good || !cq_good) {
        return false;
    }
    check_zeroed("admin completion queue", acq_, cq_entries);
    sqs_[0] = {};
    sqs_[0].exists = true;
    sqs_[0].base = asq_;
    sqs_[0].entries = sq_entries;
    cqs_[0] = {};
    cqs_[0].exists = true;
    cqs_[0].base = acq_;
    cqs_[0].entries = cq_entries;
    cqs_[0].interrupts = true; // 3.1.3.9: the admin completion queue uses vector 0
    return true;
}

void Engine::stop() {
    ready_at_.reset();
    forget_queues();
    reset_features();
    set_csts(0);
}

void Engine::forget_queues() {
    held_.clear();
    event_requests_.clear();
    masked_events_.reset();
    std::fill(sqs_.begin(), sqs_.end(), SubmissionQueue{});
    std::fill(cqs_.begin(), cqs_.end(), CompletionQueue{});
    for (std::size_t word = 0; word < doorbells_.size(); ++word) {
        if (bar_->load(reg::doorbells + word * 4) != 0) {
            bar_->store(reg::doorbells + word * 4, 0);
        }
        doorbells_[word] = 0;
    }
    granted_sqs_ = options_.queues;
    granted_cqs_ = options_.queues;
}

void Engine::shut_down() {
    // Commands that were rung before CC.SHN was written came before it, though both are seen only now.
    if (working()) {
        watch_doorbells();
        fetch_all();
        post_all();
    }
    const FaultRule* const fault = faults_.on_event(FaultEvent::shutdown);
    if (fault != nullptr && fault->action == FaultAction::gone) {
        vanish();
        return;
    }
    if (fault != nullptr && fault->action == FaultAction::fatal) {
        fail_fatally();
        return;
    }
    const bool stuck = fault != nullptr && fault->action == FaultAction::never_shut;
    set_csts((csts_ & ~bits::csts_shutdown) | (stuck ? 1U << 2 : bits::csts_shutdown_complete));
}

} // namespace upcie::sim
