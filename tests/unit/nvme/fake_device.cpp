// SPDX-License-Identifier: BSD-3-Clause
#include "nvme/fake_device.hpp"

#include <cstdlib>
#include <thread>
#include <utility>

namespace upcie::test {

FakeDevice::FakeDevice(std::shared_ptr<PointerSpace> space)
    : space_{std::move(space)}, bar_{os::real_system(), os::real_system().memfd_create("fake bar", 0)} {
    if (os::real_system().ftruncate(bar_.get(), 0x10000) != 0) {
        std::abort();
    }
    doorbells_ = *os::Mapping::map(os::real_system(), bar_.get(), 0, 64_KiB);
    identity_.name = "fake";
    identity_.class_code = 0x010802;
    areas = {{4_KiB, 60_KiB}};
    set_identify_defaults();
}

Result<std::uint64_t> FakeDevice::read_region(unsigned, ByteCount offset, unsigned width) {
    const std::lock_guard guard{mutex_};
    widths.push_back(width);
    if (gone) {
        return width == 8 ? ~std::uint64_t{0} : 0xffffffffU;
    }
    const std::uint64_t whole = reg(offset.value() & ~7ULL);
    const std::uint64_t value = width == 8 ? whole : (whole >> ((offset.value() & 4) * 8)) & 0xffffffffU;
    return value;
}

Result<void> FakeDevice::write_region(unsigned, ByteCount offset, unsigned width, std::uint64_t value) {
    const std::lock_guard guard{mutex_};
    writes.push_back(offset.value());
    switch (offset.value()) {
    case 0x14:
        configure(static_cast<std::uint32_t>(value));
        break;
    case 0x24:
        aqa = static_cast<std::uint32_t>(value);
        break;
    case 0x28:
        asq = width == 8 ? value : (asq & ~0xffffffffULL) | value;
        break;
    case 0x2c:
        asq = (asq & 0xffffffffU) | (value << 32);
        break;
    case 0x30:
        acq = width == 8 ? value : (acq & ~0xffffffffULL) | value;
        break;
    case 0x34:
        acq = (acq & 0xffffffffU) | (value << 32);
        break;
    default:
        break;
    }
    return {};
}

Result<void> FakeDevice::reset() {
    const std::lock_guard guard{mutex_};
    ++resets;
    if (!reset_works) {
        return fail(ENOTSUP, "reset function", "fake", "It has no reset");
    }
    cc = 0;
    csts = 0;
    fatal = false;
    forget();
    return {};
}

void FakeDevice::pause() noexcept {
    {
        const std::lock_guard guard{mutex_};
        if (on_pause) {
            on_pause();
        }
        work();
    }
    std::this_thread::yield();
}

void FakeDevice::set_identify_defaults() {
    std::memcpy(identify_controller.data() + 4, "SERIAL              ", 20);
    std::memcpy(identify_controller.data() + 24, "Fake model                              ", 40);
    put<std::uint8_t>(identify_controller, 77, 5); // MDTS: 128 KiB
    put<std::uint8_t>(identify_controller, 261, 0x04);
    put<std::uint8_t>(identify_controller, 512, 0x66);
    put<std::uint8_t>(identify_controller, 513, 0x44);
    put<std::uint32_t>(identify_controller, 516, 16);
    put<std::uint16_t>(identify_controller, 520, 0x0c);
    put<std::uint64_t>(identify_namespace, 0, 1000);
    put<std::uint64_t>(identify_namespace, 8, 1000);
    put<std::uint32_t>(identify_namespace, 128, 9U << 16);
}

std::uint64_t FakeDevice::reg(std::uint64_t offset) {
    const std::uint32_t status = csts | (fatal ? 2U : 0U);
    switch (offset) {
    case 0x00:
        return cap;
    case 0x08:
        return vs;
    case 0x10:
        return std::uint64_t{cc} << 32;
    case 0x18:
        return std::uint64_t{status} << 32;
    case 0x20:
        return std::uint64_t{aqa} << 32;
    case 0x28:
        return asq;
    case 0x30:
        return acq;
    default:
        return 0;
    }
}

void FakeDevice::configure(std::uint32_t value) {
    const bool was = (cc & 1) != 0;
    const bool is = (value & 1) != 0;
    cc = value;
    configurations.push_back(value);
    if (!was && is && ready_follows) {
        csts |= 1;
        rings_[0] = {asq, acq, (aqa & 0xfff) + 1, 0, 0, true};
        std::memset(doorbells_.data() + 0x1000, 0, 0xf000);
    }
    if (was && !is && ready_clears) {
        csts = 0;
        forget();
    }
    if (((value >> 14) & 3) != 0 && shutdown_completes) {
        csts = (csts & ~0xcU) | 0x8U;
    }
    if (on_configuration) {
        on_configuration(value);
    }
}

void FakeDevice::forget() {
    rings_.clear();
    held_.clear();
    events_.clear();
    completion_queues.clear();
    submission_queues.clear();
    memory_of_completions_.clear();
}

std::uint32_t FakeDevice::doorbell(std::uint16_t qid) {
    const std::uint64_t stride = std::uint64_t{4} << ((cap >> 32) & 15);
    std::uint32_t value = 0;
    std::memcpy(&value, doorbells_.data() + 0x1000 + 2 * qid * stride, sizeof value);
    return value;
}

void FakeDevice::complete(std::uint16_t qid, std::uint16_t cid, Reply reply) {
    Ring& ring = rings_.at(qid);
    nvme::CompletionEntry entry;
    entry.result_low = static_cast<std::uint32_t>(reply.result);
    entry.result_high = static_cast<std::uint32_t>(reply.result >> 32);
    entry.cid_phase_status = cid | (ring.phase ? 0x10000U : 0U) | (std::uint32_t{reply.status.raw()} << 17);
    std::memcpy(reinterpret_cast<void*>(ring.completion + ring.tail * sizeof entry), &entry, sizeof entry);
    if (++ring.tail == ring.entries) {
        ring.tail = 0;
        ring.phase = !ring.phase;
    }
}

void FakeDevice::work() {
    if ((csts & 1) == 0 || gone) {
        return;
    }
    std::vector<std::uint16_t> qids;
    for (const auto& [qid, ring] : rings_) {
        qids.push_back(qid);
    }
    for (const std::uint16_t qid : qids) {
        while (rings_.contains(qid) && rings_[qid].submission != 0 && rings_[qid].head != doorbell(qid)) {
            Ring& ring = rings_[qid];
            nvme::Command command;
            std::memcpy(static_cast<void*>(&command),
                        reinterpret_cast<const void*>(ring.submission + ring.head * sizeof command), sizeof command);
            ring.head = (ring.head + 1) % ring.entries;
            serve(qid, command);
        }
    }
}

void FakeDevice::serve(std::uint16_t qid, const nvme::Command& command) {
    if (qid != 0) {
        io_commands.push_back(command);
        const std::optional<Reply> reply = io_hook ? io_hook(command) : std::nullopt;
        if (reply && reply->silent) {
            held_.emplace_back(qid, command.cid);
            return;
        }
        complete(qid, command.cid, reply.value_or(Reply{}));
        return;
    }
    admin_commands.push_back(command);
    std::optional<Reply> reply;
    if (admin_hook) {
        reply = admin_hook(command);
    }
    if (!reply) {
        reply = admin(command);
    }
    if (!reply->silent) {
        complete(0, command.cid, *reply);
    } else if (command.opcode != 0x0c) {
        held_.emplace_back(std::uint16_t{0}, command.cid);
    }
}

FakeDevice::Reply FakeDevice::admin(const nvme::Command& command) {
    using nvme::AdminOpcode;
    const auto qid = static_cast<std::uint16_t>(command.cdw10);
    auto* const data = reinterpret_cast<void*>(command.prp1);
    const nvme::Status no_such_queue{nvme::StatusCodeType::command_specific, 0x01};
    switch (static_cast<AdminOpcode>(command.opcode)) {
    case AdminOpcode::identify: {
        const std::uint32_t cns = command.cdw10 & 0xff;
        if (cns == 2) {
            std::array<std::uint32_t, 1024> list{};
            std::size_t used = 0;
            for (const std::uint32_t nsid : active) {
                if (nsid > command.nsid && used < list.size()) {
                    list[used++] = nsid;
                }
            }
            std::memcpy(data, list.data(), 4096);
        } else {
            std::memcpy(data, cns == 1 ? identify_controller.data() : identify_namespace.data(), 4096);
        }
        return {};
    }
    case AdminOpcode::set_features:
        return {{}, (grants - 1U) | ((grants - 1U) << 16), false};
    case AdminOpcode::create_completion_queue:
        completion_queues.insert(qid);
        memory_of_completions_[qid] = command.prp1;
        return {};
    case AdminOpcode::create_submission_queue:
        submission_queues.insert(qid);
        rings_[qid] = {command.prp1, memory_of_completions_[qid], (command.cdw10 >> 16) + 1, 0, 0, true};
        return {};
    case AdminOpcode::delete_submission_queue:
        rings_.erase(qid);
        return {submission_queues.erase(qid) != 0 ? nvme::Status{} : no_such_queue, 0, false};
    case AdminOpcode::delete_completion_queue:
        return {completion_queues.erase(qid) != 0 ? nvme::Status{} : no_such_queue, 0, false};
    case AdminOpcode::asynchronous_event_request:
        events_.push_back(command.cid);
        return {{}, 0, true};
    default:
        return {};
    }
}

} // namespace upcie::test
