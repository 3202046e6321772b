// SPDX-License-Identifier: BSD-3-Clause
// I/O queues of a controller: made, made again after a reset, deleted.
#include <upcie/nvme/controller.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "nvme/controller_parts.hpp"
#include "nvme/queue_memory.hpp"

namespace upcie::nvme {
namespace {

/// An answer of the controller, as opposed to none: the queue was not made, or is still there.
bool answered(const Error& error) noexcept {
    return error.domain == ErrorDomain::nvme;
}

Command queue_command(AdminOpcode opcode, Qid qid) {
    Command command;
    command.opcode = static_cast<std::uint8_t>(opcode);
    command.cdw10 = qid.value();
    return command;
}

} // namespace

// On return the table says whether the controller may know the queue: it does when this failed in a way that leaves
// that open (a creation that timed out may still happen).
Result<void> Controller::create_on_controller(Qid qid, DmaAddress submission, DmaAddress completion,
                                              std::uint32_t entries, std::optional<unsigned> vector) {
    const auto mark = [&](bool on_controller) {
        const std::lock_guard lock{parts_->table};
        if (const auto place = parts_->queues.find(qid); place != parts_->queues.end()) {
            place->second.on_controller = on_controller;
        }
    };
    mark(true);
    Command create = queue_command(AdminOpcode::create_completion_queue, qid);
    create.prp1 = completion.value();
    create.cdw10 |= (entries - 1) << 16;
    create.cdw11 = 1; // PC: the ring is contiguous
    if (vector) {
        create.cdw11 |= 2U | (*vector << 16);
    }
    if (auto created = admin(create); !created) {
        if (answered(created.error())) {
            mark(false);
        }
        return tl::unexpected{std::move(created).error()};
    }
    create = queue_command(AdminOpcode::create_submission_queue, qid);
    create.prp1 = submission.value();
    create.cdw10 |= (entries - 1) << 16;
    create.cdw11 = 1U | (std::uint32_t{qid.value()} << 16);
    if (auto created = admin(create); !created) {
        if (answered(created.error()) && admin(queue_command(AdminOpcode::delete_completion_queue, qid))) {
            mark(false);
        }
        return tl::unexpected{std::move(created).error()};
    }
    return {};
}

Result<void> Controller::delete_on_controller(Qid qid) {
    for (const AdminOpcode opcode : {AdminOpcode::delete_submission_queue, AdminOpcode::delete_completion_queue}) {
        if (auto deleted = admin(queue_command(opcode, qid)); !deleted) {
            return tl::unexpected{std::move(deleted).error()};
        }
    }
    return {};
}

Result<QueuePair> Controller::create_queue_pair(const QueueOptions& options) {
    Parts& parts = *parts_;
    if (auto usable = check_usable("create queue pair"); !usable) {
        return tl::unexpected{std::move(usable).error()};
    }
    const std::uint32_t most = parts.capabilities.max_queue_entries();
    if (options.depth < 2 || options.depth > most) {
        return fail(EINVAL, "create queue pair", name(),
                    fmt::format("The depth can be 2 to {} (CAP.MQES + 1), not {}: one entry always stays empty", most,
                                options.depth));
    }
    if (options.interrupt_vector && *options.interrupt_vector >= parts.interrupts.size()) {
        return fail(EINVAL, "create queue pair", name(),
                    fmt::format("There is no interrupt vector {}: {} were set up when the controller was opened",
                                *options.interrupt_vector, parts.interrupts.size()));
    }
    const ByteCount max_transfer = std::min(options.max_transfer, this->max_transfer().value_or(options.max_transfer));
    if (max_transfer == ByteCount{}) {
        return fail(EINVAL, "create queue pair", name(), "max_transfer must be at least a block");
    }

    QueueSetup setup;
    setup.generation = generation_.load(std::memory_order_acquire);
    setup.page_shift = parts.page_shift;
    setup.list_pages = prp_pages_for(max_transfer.value(), parts.page_shift);
    setup.max_transfer = max_transfer;
    setup.sgl = options.use_sgl ? parts.info.sgl() : SglSupport::none;
    if (setup.sgl != SglSupport::none) {
        setup.list_pages = std::max(setup.list_pages, sgl_pages_for(max_transfer.value(), parts.page_shift));
    }
    setup.timeout = options.timeout;
    setup.owner = shared_from_this();
    setup.resources = std::make_unique<QueueResources>();
    const std::string subject = fmt::format("{}, an I/O queue of {}", name(), options.depth);
    auto rings = allocate_rings(parts.system, address_space(), options.depth, parts.page_shift, subject);
    if (!rings) {
        return tl::unexpected{std::move(rings).error()};
    }
    auto lists = allocate_lists(parts.system, address_space(), std::uint64_t{options.depth - 1} * setup.list_pages,
                                parts.page_shift, subject);
    if (!lists) {
        return tl::unexpected{std::move(lists).error()};
    }
    if (options.interrupt_vector) {
        auto event = parts.interrupts[*options.interrupt_vector].duplicate();
        if (!event) {
            return tl::unexpected{std::move(event).error()};
        }
        setup.resources->interrupt = std::move(*event);
    }
    if (options.registry != nullptr) {
        setup.resources->reader = options.registry->attach();
    }
    setup.layout.submission = rings->submission;
    setup.layout.completion = rings->completion;
    setup.layout.entries = options.depth;
    setup.layout.prp_lists = reinterpret_cast<std::uint64_t*>(lists->buffer.data());
    setup.layout.prp_list_stride = setup.list_pages << parts.page_shift;
    setup.resources->rings = std::move(rings->buffer);
    setup.resources->lists = std::move(lists->buffer);
    setup.resources->list_addresses = std::move(lists->addresses);

    {
        const std::lock_guard lock{parts.table};
        auto qid = parts.ids.take();
        if (!qid) {
            Error error = std::move(qid).error();
            error.subject = name();
            error.hint += fmt::format(" ({})", parts.queue_count_reason);
            return tl::unexpected{std::move(error)};
        }
        setup.qid = *qid;
        parts.queues[*qid] =
            Parts::Queue{rings->submission_address, rings->completion_address, options.interrupt_vector, false, false};
    }
    // From here on release() is the one way out: it deletes, keeps, or frees as the table says.
    for (const bool completion : {false, true}) {
        auto doorbell = parts.registers->pointer(doorbell_offset(setup.qid, completion, parts.capabilities));
        if (!doorbell) {
            release(setup.qid, setup.generation, std::move(setup.resources));
            return tl::unexpected{std::move(doorbell).error()};
        }
        (completion ? setup.layout.completion_doorbell : setup.layout.submission_doorbell) = *doorbell;
    }
    if (auto created = create_on_controller(setup.qid, rings->submission_address, rings->completion_address,
                                            options.depth, options.interrupt_vector);
        !created) {
        release(setup.qid, setup.generation, std::move(setup.resources));
        return tl::unexpected{std::move(created).error()};
    }
    return QueuePair{std::move(setup)};
}

Result<std::uint32_t> Controller::recreate(Qid qid, const QueueResources& /*resources*/, std::uint32_t entries) {
    if (auto usable = check_usable("create queue pair again"); !usable) {
        return tl::unexpected{std::move(usable).error()};
    }
    const std::uint32_t present = generation_.load(std::memory_order_acquire);
    Parts::Queue queue;
    {
        const std::lock_guard lock{parts_->table};
        const auto place = parts_->queues.find(qid);
        if (place == parts_->queues.end() || place->second.on_controller) {
            return fail(EINVAL, "create queue pair again", fmt::format("{}, queue {}", name(), qid.value()),
                        "An earlier attempt left it half made: destroy the queue and create another");
        }
        queue = place->second;
    }
    if (qid.value() > parts_->granted_queues) {
        return fail(EBUSY, "create queue pair again", fmt::format("{}, queue {}", name(), qid.value()),
                    fmt::format("Since its reset the controller grants {} queues only", parts_->granted_queues.load()));
    }
    if (auto created = create_on_controller(qid, queue.submission, queue.completion, entries, queue.vector); !created) {
        return tl::unexpected{std::move(created).error()};
    }
    return present;
}

void Controller::release(Qid qid, std::uint32_t /*generation*/, std::unique_ptr<QueueResources> resources) noexcept {
    Parts& parts = *parts_;
    bool on_controller = false;
    {
        const std::lock_guard lock{parts.table};
        const auto place = parts.queues.find(qid);
        on_controller = place != parts.queues.end() && place->second.on_controller;
    }
    const bool deleted = !on_controller || delete_on_controller(qid);
    const std::lock_guard lock{parts.table};
    const auto place = parts.queues.find(qid);
    // A reset may have come between: then the controller was disabled, and the queue is gone without a deletion.
    if (!deleted && place->second.on_controller) {
        place->second.kept = true;
        const ByteCount bytes = resources->rings.size() + resources->lists.size();
        parts.kept.push_back({std::shared_ptr<void>{std::move(resources)}, bytes});
        return;
    }
    parts.queues.erase(qid);
    parts.ids.give_back(qid);
}

Result<QueueIds> Controller::lend_queue_ids(std::uint32_t count) {
    const std::lock_guard lock{parts_->table};
    return parts_->ids.split(count);
}

void Controller::return_queue_ids(QueueIds ids) {
    const std::lock_guard lock{parts_->table};
    parts_->ids.merge(std::move(ids));
}

void Controller::keep(std::shared_ptr<void> memory, ByteCount bytes) {
    const std::lock_guard lock{parts_->table};
    parts_->kept.push_back({std::move(memory), bytes});
}

ByteCount Controller::kept_memory() const {
    const std::lock_guard lock{parts_->table};
    ByteCount bytes;
    for (const Parts::Kept& kept : parts_->kept) {
        bytes += kept.bytes;
    }
    return bytes;
}

} // namespace upcie::nvme
