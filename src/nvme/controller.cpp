// SPDX-License-Identifier: BSD-3-Clause
// Bring-up, reset and the end of a controller.
#include <upcie/nvme/controller.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "nvme/abandoned.hpp"
#include "nvme/controller_parts.hpp"

namespace upcie::nvme {
namespace {

/// The page that the controller is told to work with: the host's, or the largest below it.
/// A larger one cannot be: pages of the host are not contiguous.
Result<unsigned> choose_page_shift(const std::string& name, Capabilities capabilities, unsigned host_shift) {
    if (capabilities.min_page_shift() > host_shift) {
        return fail(
            ENOTSUP, "choose page size", name,
            fmt::format("The controller works with pages of {} bytes at least (CAP.MPSMIN) and this host's have "
                        "{}: it needs a kernel with larger pages",
                        std::uint64_t{1} << capabilities.min_page_shift(), std::uint64_t{1} << host_shift));
    }
    return std::max(std::min(capabilities.max_page_shift(), host_shift), capabilities.min_page_shift());
}

Result<CommandSetSelection> choose_command_set(const std::string& name, Capabilities capabilities) {
    if (capabilities.nvm_command_set()) {
        return CommandSetSelection::nvm;
    }
    if (capabilities.io_command_sets()) {
        return CommandSetSelection::all_supported;
    }
    if (capabilities.no_io_command_set()) {
        return CommandSetSelection::admin_only;
    }
    return fail(ENOTSUP, "choose command set", name,
                fmt::format("CAP is {:#x} and names no command set (CAP.CSS): this is not an NVMe controller, or its "
                            "firmware is at fault",
                            capabilities.raw));
}

Result<void> check_options(const std::string& name, const ControllerOptions& options) {
    if (options.admin_depth < 2 || options.admin_depth > AdminQueueAttributes::max_entries) {
        return fail(EINVAL, "open controller", name,
                    fmt::format("The admin queue can have 2 to {} entries, not {}", AdminQueueAttributes::max_entries,
                                options.admin_depth));
    }
    if (options.host_page_shift != 0 && (options.host_page_shift < 12 || options.host_page_shift > 27)) {
        return fail(EINVAL, "open controller", name,
                    fmt::format("A host page of 2^{} bytes is none that NVMe knows", options.host_page_shift));
    }
    return {};
}

} // namespace

Controller::Controller(std::unique_ptr<Parts> parts) : parts_{std::move(parts)} {}

Controller::~Controller() {
    shut_down();
}

Result<std::shared_ptr<Controller>> Controller::open(os::System& system, std::shared_ptr<pci::Function> function,
                                                     ControllerOptions options) {
    if (function == nullptr) {
        return fail(EINVAL, "open controller", "no function", "Open a pci::Function first");
    }
    if (auto valid = check_options(function->identity().name, options); !valid) {
        return tl::unexpected{std::move(valid).error()};
    }
    auto registers = RegisterAccess::create(function, options.wide_access);
    if (!registers) {
        return tl::unexpected{std::move(registers).error()};
    }
    std::shared_ptr<Controller> controller{
        new Controller{std::make_unique<Parts>(system, std::move(function), std::move(*registers), options)}};
    // Where bring-up fails, the destructor disables whatever was enabled, or keeps its memory.
    const std::lock_guard lock{controller->parts_->life};
    if (auto up = controller->bring_up(true); !up) {
        controller->parts_->state = ControllerState::failed;
        return tl::unexpected{std::move(up).error()};
    }
    controller->parts_->state = ControllerState::ready;
    return controller;
}

Result<void> Controller::bring_up(bool first) {
    Parts& parts = *parts_;
    if (first) {
        const auto capabilities = parts.registers->capabilities();
        if (!capabilities) {
            return tl::unexpected{capabilities.error()};
        }
        const auto version = parts.registers->version();
        if (!version) {
            return tl::unexpected{version.error()};
        }
        parts.capabilities = *capabilities;
        parts.version = *version;
        if (parts.capabilities.max_queue_entries() < 2) {
            return fail(ENOTSUP, "open controller", name(),
                        "CAP.MQES is 0, so queues would have one entry and hold nothing: its firmware is at fault");
        }
        const unsigned host_shift =
            parts.options.host_page_shift != 0
                ? parts.options.host_page_shift
                : static_cast<unsigned>(std::countr_zero(static_cast<unsigned long>(::sysconf(_SC_PAGESIZE))));
        const auto shift = choose_page_shift(name(), parts.capabilities, host_shift);
        if (!shift) {
            return tl::unexpected{shift.error()};
        }
        const auto command_set = choose_command_set(name(), parts.capabilities);
        if (!command_set) {
            return tl::unexpected{command_set.error()};
        }
        parts.page_shift = *shift;
        parts.configuration =
            Configuration{}.with_page_shift(*shift).with_command_set(*command_set).with_entry_shifts(6, 4);
        parts.power.set_limit(parts.options.ready_timeout.value_or(
            Power::limit(*parts.registers, parts.capabilities, parts.options.least_ready_timeout)));
        // Before it may do DMA: one that another driver left enabled has addresses that are no longer that driver's.
        if (auto disabled = disable_confirmed(); !disabled) {
            return disabled;
        }
        auto admin = AdminQueue::create(parts.system, *parts.function, *parts.registers, parts.capabilities,
                                        parts.options.admin_depth, parts.page_shift);
        if (!admin) {
            return tl::unexpected{std::move(admin).error()};
        }
        parts.admin = std::move(*admin);
    } else if (auto emptied = parts.admin->restart(); !emptied) {
        return emptied;
    }
    if (auto master = parts.function->set_bus_master(true); !master) {
        return master;
    }
    return enable(first);
}

Result<void> Controller::enable(bool first) {
    Parts& parts = *parts_;
    RegisterAccess& registers = *parts.registers;
    const AdminQueue& admin = *parts.admin;
    if (auto written = registers.write32(offset::admin_queue_attributes, AdminQueueAttributes::of(admin.entries()).raw);
        !written) {
        return written;
    }
    if (auto written = registers.write64(offset::admin_submission_base, admin.submission_address().value()); !written) {
        return written;
    }
    if (auto written = registers.write64(offset::admin_completion_base, admin.completion_address().value()); !written) {
        return written;
    }
    parts.may_touch_memory = true;
    if (auto enabled = parts.power.enable(parts.configuration); !enabled) {
        return enabled;
    }
    const auto data = parts.identify(1, Nsid{0}, 0, 0);
    if (!data) {
        return tl::unexpected{data.error()};
    }
    ControllerInfo info = ControllerInfo::parse(*data);
    const auto allows = [](std::uint8_t sizes, unsigned shift) {
        return (sizes & 0xfU) <= shift && (sizes >> 4) >= shift;
    };
    if (!allows(info.submission_entry_sizes, 6) || !allows(info.completion_entry_sizes, 4)) {
        return fail(ENOTSUP, "open controller", name(),
                    fmt::format("It wants queue entries of other sizes than 64 and 16 bytes (SQES {:#x}, CQES {:#x})",
                                info.submission_entry_sizes, info.completion_entry_sizes));
    }
    if (first) {
        parts.info = std::move(info);
    }
    if (auto negotiated = negotiate_queues(first); !negotiated) {
        return negotiated;
    }
    return set_up_interrupts();
}

// Before any I/O queue exists, as the specification demands (Base Specification 2.0, section 5.27.1.5).
Result<void> Controller::negotiate_queues(bool first) {
    Parts& parts = *parts_;
    if (parts.options.io_queues == 0 || parts.configuration.command_set() == CommandSetSelection::admin_only) {
        parts.queue_count_reason = parts.options.io_queues == 0 ? "none were asked for" : "it has no I/O command set";
        return {};
    }
    const std::uint32_t asked = parts.options.io_queues;
    Command command;
    command.opcode = static_cast<std::uint8_t>(AdminOpcode::set_features);
    command.cdw10 = 0x07;
    command.cdw11 = (asked - 1) | ((asked - 1) << 16);
    const auto answer = parts.admin->run(command, {}, parts.options.admin_timeout);
    if (!answer) {
        return tl::unexpected{answer.error()};
    }
    const auto submission = static_cast<std::uint32_t>(*answer & 0xffff) + 1;
    const auto completion = static_cast<std::uint32_t>((*answer >> 16) & 0xffff) + 1;
    const std::uint32_t granted = std::min({asked, submission, completion});
    parts.granted_queues = granted;
    if (!first) {
        return {};
    }
    std::uint32_t reachable = 0;
    while (reachable < granted) {
        const Qid next{static_cast<std::uint16_t>(reachable + 1)};
        if (!parts.registers->mappable(doorbell_offset(next, false, parts.capabilities)) ||
            !parts.registers->mappable(doorbell_offset(next, true, parts.capabilities))) {
            break;
        }
        ++reachable;
    }
    parts.queue_count = reachable;
    parts.queue_count_reason = fmt::format(
        "asked for {}, granted {} submission and {} completion queues, doorbells of {} lie where BAR0 can be "
        "mapped",
        asked, submission, completion, reachable);
    parts.ids = QueueIds{Qid{1}, reachable};
    return {};
}

Result<void> Controller::set_up_interrupts() {
    Parts& parts = *parts_;
    if (parts.options.interrupt_vectors == 0) {
        return {};
    }
    if (parts.interrupts.empty()) {
        const auto available = parts.function->interrupt_count();
        if (!available) {
            return tl::unexpected{available.error()};
        }
        const unsigned count = std::min(*available, parts.options.interrupt_vectors);
        if (count == 0) {
            return fail(ENOTSUP, "set up interrupts", name(),
                        fmt::format("{} has no interrupt vectors: open the controller without, and poll",
                                    parts.function->path()));
        }
        for (unsigned i = 0; i < count; ++i) {
            auto event = os::make_eventfd(parts.system);
            if (!event) {
                parts.interrupts.clear();
                return tl::unexpected{std::move(event).error()};
            }
            parts.interrupts.push_back(std::move(*event));
        }
    }
    std::vector<int> numbers;
    for (const os::Fd& event : parts.interrupts) {
        numbers.push_back(event.get());
    }
    return parts.function->enable_interrupts(numbers);
}

Result<void> Controller::disable_confirmed() {
    Parts& parts = *parts_;
    auto disabled = parts.power.disable();
    if (disabled) {
        return disabled;
    }
    if (auto reset = parts.function->reset(); !reset) {
        Error error = std::move(disabled).error();
        error.hint += ". A reset of the function was tried: " + reset.error().message();
        return tl::unexpected{std::move(error)};
    }
    parts.function_resets.fetch_add(1);
    return parts.power.disable(false);
}

void Controller::confirmed_disabled() {
    Parts& parts = *parts_;
    parts.may_touch_memory = false;
    std::vector<Parts::Kept> free_now;
    {
        const std::lock_guard lock{parts.table};
        generation_.fetch_add(1, std::memory_order_acq_rel);
        free_now = std::exchange(parts.kept, {});
        for (auto place = parts.queues.begin(); place != parts.queues.end();) {
            place->second.on_controller = false;
            if (place->second.kept) {
                parts.ids.give_back(place->first);
                place = parts.queues.erase(place);
            } else {
                ++place;
            }
        }
    }
    if (parts.admin != nullptr) {
        parts.admin->end_all();
    }
}

Result<void> Controller::reset() {
    Parts& parts = *parts_;
    const std::lock_guard lock{parts.life};
    parts.state = ControllerState::resetting;
    if (auto disabled = disable_confirmed(); !disabled) {
        parts.state = ControllerState::failed;
        return disabled;
    }
    confirmed_disabled();
    if (auto up = bring_up(false); !up) {
        if (disable_confirmed()) {
            confirmed_disabled();
        }
        parts.state = ControllerState::failed;
        return up;
    }
    parts.state = ControllerState::ready;
    return {};
}

void Controller::shut_down() noexcept {
    Parts& parts = *parts_;
    const std::lock_guard lock{parts.life};
    if (!parts.may_touch_memory) {
        return;
    }
    if (parts.state == ControllerState::ready) {
        const std::chrono::milliseconds told{parts.info.shutdown_time_us / 1000 + 1000};
        constexpr std::chrono::milliseconds otherwise{10'000};
        // A controller that does not finish in time is disabled all the same; there is nobody left to tell.
        [[maybe_unused]] const auto shut = parts.power.shut_down(
            parts.options.shutdown_timeout.value_or(parts.info.shutdown_time_us != 0 ? told : otherwise));
    }
    parts.state = ControllerState::resetting;
    const auto disabled = disable_confirmed();
    if (!parts.interrupts.empty()) {
        [[maybe_unused]] const auto silent = parts.function->disable_interrupts();
    }
    if (disabled) {
        confirmed_disabled();
        return;
    }
    // The last fence there is. It is not proof enough to free the memory.
    [[maybe_unused]] const auto fenced = parts.function->set_bus_master(false);
    ByteCount bytes = parts.admin->memory();
    std::vector<std::shared_ptr<void>> memory;
    memory.emplace_back(std::move(parts.admin));
    for (Parts::Kept& kept : parts.kept) {
        bytes += kept.bytes;
        memory.push_back(std::move(kept.memory));
    }
    abandon(std::move(memory), bytes, disabled.error().message());
}

} // namespace upcie::nvme
