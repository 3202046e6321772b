// SPDX-License-Identifier: BSD-3-Clause
#include "delegation.hpp"

#include <cerrno>

#include "nvme_witness.hpp"

namespace upcie::probes {

namespace {

/// Lets the device itself say whether the secondary's mappings lead to memory: queues in the secondary's own memory
/// (mapped by file), data to its own (by address) and to the shared memory (mapped by the primary).
void ask_the_device(Report& report, const Requests& requests, const Delegation& given, const SharedMemory& own,
                    std::uint64_t own_iova, std::uint64_t anonymous_iova, const os::Mapping& anonymous,
                    const os::Mapping& shared) {
    if (!given.nvme) {
        report.not_seen("share.dma", "only an NVMe controller can be told to write somewhere");
        return;
    }
    Result<DmaWitness> witness = DmaWitness::open(requests, given.device.get(), own.view.data(), own_iova);
    if (!witness) {
        report.not_seen("share.dma", witness.error().message());
        return;
    }
    const Result<void> started = witness->start();
    report.outcome("share.controller_start", started ? 0 : started.error().code,
                   "with the admin queue in the secondary's own memory");
    if (!started) {
        return;
    }
    report.observe("share.dma_to_own_memory", witness->identify(anonymous.data(), anonymous_iova).word());
    report.observe("share.dma_to_shared_memory",
                   witness->identify(shared.data() + layout::witness, given.memory_iova + layout::witness).word());
    static_cast<void>(witness->stop());
}

} // namespace

Result<void> Delegation::send(Channel& channel, const Session& session, const SharedMemory& memory,
                              std::uint64_t memory_iova, const pci::FunctionInfo& function, Value extra) {
    extra.update(Value{{"ioas", session.ioas},
                       {"memory_iova", memory_iova},
                       {"memory_length", memory.view.size().value()},
                       {"cdev", function.vfio_cdev},
                       {"bdf", function.bdf.to_string()},
                       {"nvme", function.is_nvme()}});
    return channel.send("delegate", extra, {session.device.get(), session.iommufd.get(), memory.file.get()});
}

Result<void> Delegation::pass_on(Channel& channel, Value extra) const {
    extra.update(Value{{"ioas", ioas},
                       {"memory_iova", memory_iova},
                       {"memory_length", memory_length},
                       {"cdev", cdev},
                       {"bdf", bdf},
                       {"nvme", nvme}});
    return channel.send("delegate", extra, {device.get(), iommufd.get(), memory_file.get()});
}

Result<Delegation> Delegation::take(Message& message) {
    Delegation result;
    try {
        result.ioas = message.data.at("ioas").get<std::uint32_t>();
        result.memory_iova = message.data.at("memory_iova").get<std::uint64_t>();
        result.memory_length = message.data.at("memory_length").get<std::uint64_t>();
        result.cdev = message.data.at("cdev").get<std::string>();
        result.bdf = message.data.at("bdf").get<std::string>();
        result.nvme = message.data.at("nvme").get<bool>();
    } catch (const Value::exception&) {
        result.memory_length = 0;
    }
    if (message.fds.size() != 3 || result.memory_length < layout::length) {
        return fail(EPROTO, "taking the device over", "the primary",
                    "The message lacks something: use the same build.");
    }
    result.device = std::move(message.fds[0]);
    result.iommufd = std::move(message.fds[1]);
    result.memory_file = std::move(message.fds[2]);
    return result;
}

Value read_cap(const Requests& requests, int device) {
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    if (!bar.ok()) {
        return nullptr;
    }
    const Answered<os::Mapping> registers = requests.map_shared(device, bar.value.offset, page);
    if (!registers.ok()) {
        return nullptr;
    }
    // Two reads of 32 bits: the only width that every controller takes.
    const auto* const words =
        static_cast<const volatile std::uint32_t*>(static_cast<const void*>(registers.value.data()));
    const std::uint64_t low = words[0];
    return hex(low | (std::uint64_t{words[1]} << 32));
}

Result<void> look_at_delegation(Report& report, const Requests& requests, const Delegation& given,
                                const SharedMemory& own, const os::Mapping& shared) {
    const int device = given.device.get();
    const int iommufd = given.iommufd.get();
    report.outcome("share.own_open_of_cdev", requests.open(given.cdev).error, "what this user could open by itself");
    report.outcome("share.own_open_of_iommu", requests.open("/dev/iommu").error);
    report.outcome("share.device_info", requests.device_info(device).error);
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    report.outcome("share.region_info", bar.error);
    report.outcome("share.mmap_of_bar0", requests.map_shared(device, bar.value.offset, page).error);
    report.observe("share.cap", read_cap(requests, device), "address", "the register CAP through that mapping");
    report.outcome("share.bind_again", requests.bind(device, iommufd).error);

    const std::uint64_t own_length = own.view.size().value();
    const Answered<os::Mapping> anonymous = requests.anonymous(page);
    if (!anonymous.ok()) {
        return fail(anonymous.error, "mmap", "a page", "Is there memory left?");
    }
    const Answered<std::uint64_t> by_file = requests.map_file(iommufd, given.ioas, own.file.get(), 0, own_length);
    report.outcome("share.map_own_by_file", by_file.error, "through the passed iommufd");
    const Answered<std::uint64_t> by_address = requests.map(iommufd, given.ioas, anonymous.value.data(), page);
    report.outcome("share.map_own_by_address", by_address.error, "through the passed iommufd");
    if (by_file.ok() && by_address.ok()) {
        ask_the_device(report, requests, given, own, by_file.value, by_address.value, anonymous.value, shared);
    }
    if (by_file.ok()) {
        report.outcome("share.unmap_own", requests.unmap(iommufd, given.ioas, by_file.value, own_length).error);
    }
    if (by_address.ok()) {
        static_cast<void>(requests.unmap(iommufd, given.ioas, by_address.value, page));
    }
    return {};
}

} // namespace upcie::probes
