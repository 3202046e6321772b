// SPDX-License-Identifier: BSD-3-Clause
#include "nvme_witness.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

namespace upcie::probes {

namespace {

using Clock = std::chrono::steady_clock;

// Registers, Base Specification 2.0, section 3.1.3.
constexpr std::size_t cc_offset = 0x14;
constexpr std::size_t csts_offset = 0x1c;
constexpr std::size_t aqa_offset = 0x24;
constexpr std::size_t asq_offset = 0x28;
constexpr std::size_t acq_offset = 0x30;
constexpr std::size_t doorbells_offset = 0x1000;
constexpr std::uint32_t all_ones = 0xffffffff;
constexpr std::uint32_t entries = 16;
constexpr std::uint32_t cc_enable = 1U | (6U << 16) | (4U << 20); // entry sizes 2^6 and 2^4, 4 KiB pages
constexpr std::chrono::seconds command_timeout{5};
constexpr int sentinel = 0xa5; // no Identify data consist of it
constexpr std::uint16_t bus_master = 1U << 2;

tl::unexpected<Error> gone(const char* operation) {
    return fail(ENODEV, operation, "the controller",
                "Its registers read all ones: it is gone or its memory decode off.");
}

} // namespace

Value DmaWitness::State::json() const {
    return {{"tail", tail}, {"head", head}, {"phase", phase}};
}

Result<DmaWitness::State> DmaWitness::State::of(const Value& json) {
    State state;
    try {
        state.tail = json.at("tail").get<std::uint32_t>();
        state.head = json.at("head").get<std::uint32_t>();
        state.phase = json.at("phase").get<std::uint32_t>();
    } catch (const Value::exception&) {
        state.tail = entries;
    }
    if (state.tail >= entries || state.head >= entries || state.phase > 1) {
        return fail(EPROTO, "taking over a queue", "the other process", "Its position is none: use the same build.");
    }
    return state;
}

DmaWitness::DmaWitness(Requests requests, os::Mapping registers, std::byte* rings, std::uint64_t rings_dma) noexcept
    : requests_{requests}, registers_{std::move(registers)}, rings_dma_{rings_dma} {
    queue_.submission = static_cast<nvme::Command*>(static_cast<void*>(rings));
    queue_.completion = static_cast<nvme::CompletionEntry*>(static_cast<void*>(rings + data_length));
    queue_.entries = entries;
    const std::size_t stride = std::size_t{4} << ((read64(0) >> 32) & 0xf); // CAP.DSTRD
    std::byte* const doorbells = registers_.data() + doorbells_offset;
    queue_.submission_doorbell = static_cast<volatile std::uint32_t*>(static_cast<void*>(doorbells));
    queue_.completion_doorbell = static_cast<volatile std::uint32_t*>(static_cast<void*>(doorbells + stride));
    queue_.restart();
}

Result<DmaWitness> DmaWitness::open(Requests requests, int device, std::byte* rings, std::uint64_t rings_dma) {
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    if (!bar.ok()) {
        return fail(bar.error, "VFIO_DEVICE_GET_REGION_INFO", "BAR 0", "The device must be bound to an iommufd.");
    }
    // Two pages hold the registers and the admin doorbells of every stride up to 2 KiB.
    const std::uint64_t length = std::min<std::uint64_t>(bar.value.size, 8192);
    if (length < 8192) {
        return fail(EOPNOTSUPP, "mapping", "BAR 0", "It is too small for an NVMe controller's doorbells.");
    }
    Answered<os::Mapping> registers = requests.map_shared(device, bar.value.offset, length);
    if (!registers.ok()) {
        return fail(registers.error, "mmap", "BAR 0", "Its first 8 KiB must be mappable (no MSI-X table there).");
    }
    const Answered<std::uint16_t> command = requests.change_command(device, bus_master, 0);
    if (!command.ok()) {
        return fail(command.error, "setting bus master", "PCI config space", "Is the device still bound?");
    }
    DmaWitness result{requests, std::move(registers.value), rings, rings_dma};
    const std::uint64_t capabilities = result.capabilities();
    if (capabilities == ~std::uint64_t{0}) {
        return gone("reading CAP");
    }
    if (((capabilities >> 48) & 0xf) != 0 || ((capabilities >> 32) & 0xf) > 9) {
        return fail(EOPNOTSUPP, "reading CAP", "the controller",
                    "It wants pages above 4 KiB or a doorbell stride above 2 KiB: this probe drives neither.");
    }
    return result;
}

std::uint32_t DmaWitness::read32(std::size_t offset) const noexcept {
    return *static_cast<const volatile std::uint32_t*>(static_cast<const void*>(registers_.data() + offset));
}

std::uint64_t DmaWitness::read64(std::size_t offset) const noexcept {
    return read32(offset) | (std::uint64_t{read32(offset + 4)} << 32);
}

void DmaWitness::write32(std::size_t offset, std::uint32_t value) noexcept {
    *static_cast<volatile std::uint32_t*>(static_cast<void*>(registers_.data() + offset)) = value;
}

std::chrono::milliseconds DmaWitness::ready_timeout() const noexcept {
    const std::uint64_t units = (read64(0) >> 24) & 0xff; // CAP.TO, in 500 ms; 0 does not mean "at once"
    return std::chrono::milliseconds{500 * std::max<std::uint64_t>(units, 4)};
}

Result<void> DmaWitness::wait_ready(bool ready) {
    const Clock::time_point deadline = Clock::now() + ready_timeout();
    for (;;) {
        const std::uint32_t status = read32(csts_offset);
        if (status == all_ones) {
            return gone("waiting for CSTS.RDY");
        }
        if (((status & 1U) != 0) == ready) {
            return {};
        }
        if (ready && (status & 2U) != 0) {
            return fail(EIO, "waiting for CSTS.RDY", "the controller", "It reports a fatal status (CSTS.CFS).");
        }
        if (Clock::now() >= deadline) {
            return fail(ETIMEDOUT, "waiting for CSTS.RDY", "the controller", "It does not follow CC.EN: reset it.");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

Result<void> DmaWitness::start() {
    if (Result<void> stopped = stop(); !stopped) {
        return stopped;
    }
    std::memset(static_cast<void*>(queue_.submission), 0, rings_length);
    adopt({});
    write32(aqa_offset, (entries - 1) | ((entries - 1) << 16));
    write32(asq_offset, static_cast<std::uint32_t>(rings_dma_));
    write32(asq_offset + 4, static_cast<std::uint32_t>(rings_dma_ >> 32));
    write32(acq_offset, static_cast<std::uint32_t>(rings_dma_ + data_length));
    write32(acq_offset + 4, static_cast<std::uint32_t>((rings_dma_ + data_length) >> 32));
    nvme::store_barrier();
    write32(cc_offset, cc_enable);
    return wait_ready(true);
}

void DmaWitness::adopt(const State& state) noexcept {
    queue_.resume(state.tail, state.head, state.phase);
}

Result<void> DmaWitness::stop() {
    write32(cc_offset, read32(cc_offset) & ~1U);
    return wait_ready(false);
}

std::string DmaWitness::Sight::word() const {
    if (!completed) {
        return "no completion";
    }
    const std::string data = landed ? "data arrived" : "no data";
    return status == 0 ? "completed, " + data : fmt::format("status {:#x}, {}", status, data);
}

DmaWitness::Sight DmaWitness::identify(std::byte* data, std::uint64_t data_dma) {
    std::memset(data, sentinel, data_length);
    nvme::Command& command = *queue_.next;
    command = nvme::Command{};
    command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::identify);
    command.cid = next_cid_++;
    command.prp1 = data_dma;
    command.cdw10 = 1; // CNS 1: the controller
    const std::uint16_t cid = command.cid;
    queue_.advance_tail();
    queue_.ring_submission();

    Sight sight;
    const Clock::time_point deadline = Clock::now() + command_timeout;
    while (!sight.completed && Clock::now() < deadline) {
        std::uint32_t dword3 = 0;
        if (!queue_.peek_completion(dword3)) {
            std::this_thread::sleep_for(std::chrono::microseconds{200});
            continue;
        }
        queue_.advance_head();
        queue_.ring_completion();
        // One that came too late for an earlier command is that command's and not this one's.
        if (static_cast<std::uint16_t>(dword3) == cid) {
            sight.completed = true;
            sight.status = static_cast<std::uint16_t>(dword3 >> 17);
        }
    }
    // Identify data begin with the vendor's id and hold text: that all of it still is the sentinel means that nothing
    // came.
    sight.landed = std::any_of(data, data + data_length, [](std::byte one) { return one != std::byte{sentinel}; });
    return sight;
}

} // namespace upcie::probes
