// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <upcie/iommu/address_space.hpp>
#include <upcie/nvme/command.hpp>
#include <upcie/nvme/registers.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/pci/function.hpp>

namespace upcie::test {

/// Device addresses are pointers of this process. `scattered`: no two pages are neighbours.
class PointerSpace final : public iommu::AddressSpace {
  public:
    explicit PointerSpace(bool scattered = false) : scattered_{scattered} {}
    iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    std::string describe() const override { return "pointers"; }
    bool translating() const noexcept override { return !scattered_; }
    Result<std::vector<iommu::IovaRange>> iova_ranges() override { return std::vector<iommu::IovaRange>{}; }
    ByteCount granule() const noexcept override { return ByteCount{unit}; }

    std::size_t live = 0;      ///< mappings
    std::uint64_t unit = 4096; ///< and what every mapping's address is a multiple of

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, iommu::Access) override {
        ++live;
        return Mapped{0, {{DmaAddress{reinterpret_cast<std::uintptr_t>(start)}, length}}};
    }
    Result<Mapped> do_map_file(int fd, ByteCount offset, ByteCount length, iommu::Access) override {
        ++live;
        Mapped mapped;
        mapped.token = ++tokens_;
        const std::size_t piece = scattered_ ? 4096 : length.value();
        for (std::size_t done = 0; done < length.value(); done += piece) {
            // More room than needed, so that the next piece does not follow.
            const std::size_t reserved = piece + unit + 4096;
            void* const room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            auto* const start =
                reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(room) + unit - 1) & ~(unit - 1));
            void* const page = ::mmap(start, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                                      static_cast<off_t>(offset.value() + done));
            mapped.extents.push_back({DmaAddress{reinterpret_cast<std::uintptr_t>(page)}, ByteCount{piece}});
            rooms_[mapped.token].push_back({room, reserved});
        }
        return mapped;
    }
    Result<void> do_unmap(std::uint64_t token, ByteCount) override {
        --live;
        for (const auto& [address, length] : rooms_[token]) {
            ::munmap(address, length);
        }
        rooms_.erase(token);
        return {};
    }

  private:
    bool scattered_;
    std::uint64_t tokens_ = 0;
    std::map<std::uint64_t, std::vector<std::pair<void*, std::size_t>>> rooms_;
};

/// A controller just clever enough for the cold path. Registers are reached by read_region and can be scripted; only
/// the doorbells can be mapped. It works when somebody waits: in pause().
class FakeDevice final : public pci::Function {
  public:
    struct Reply {
        nvme::Status status;
        std::uint64_t result = 0;
        bool silent = false; ///< no completion, until release_held()
    };
    using AdminHook = std::function<std::optional<Reply>(const nvme::Command&)>;

    explicit FakeDevice(std::shared_ptr<PointerSpace> space = std::make_shared<PointerSpace>())
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

    // ---- script
    std::uint64_t cap = 0x00000020'01010fffULL; ///< MQES 4096, CQR, TO 500 ms, NVM command set, pages of 4 KiB
    std::uint32_t vs = 0x00010400;
    ByteCount bar_size = 64_KiB;
    std::vector<pci::MappableArea> areas;
    bool ready_follows = true; ///< CSTS.RDY follows CC.EN
    bool ready_clears = true;  ///< also when EN is cleared
    bool fatal = false;        ///< CSTS.CFS
    bool gone = false;         ///< all registers read as all ones
    bool reset_works = true;   ///< function reset
    bool shutdown_completes = true;
    std::function<void(std::uint32_t)> on_configuration; ///< CC was written
    std::function<void()> on_pause;
    AdminHook admin_hook;
    std::uint16_t grants = 8; ///< queues of each kind
    std::array<std::byte, 4096> identify_controller{};
    std::array<std::byte, 4096> identify_namespace{};
    std::vector<std::uint32_t> active{1};
    unsigned vectors = 4;

    // ---- what happened
    std::vector<nvme::Command> admin_commands;
    std::vector<nvme::Command> io_commands;
    std::vector<std::uint32_t> configurations; ///< every CC written
    std::uint32_t cc = 0;
    std::uint32_t csts = 0;
    std::uint32_t aqa = 0;
    std::uint64_t asq = 0;
    std::uint64_t acq = 0;
    bool bus_master = false;
    bool bus_master_while_enabled_first = false;
    unsigned resets = 0;
    std::vector<int> eventfds;
    std::set<std::uint16_t> completion_queues;
    std::set<std::uint16_t> submission_queues;

    template <class T>
    static void put(std::array<std::byte, 4096>& data, std::size_t offset, T value) {
        std::memcpy(data.data() + offset, &value, sizeof value);
    }
    std::size_t count(nvme::AdminOpcode opcode) const {
        std::size_t number = 0;
        for (const nvme::Command& command : admin_commands) {
            number += command.opcode == static_cast<std::uint8_t>(opcode) ? 1 : 0;
        }
        return number;
    }
    /// Answers every command that was kept silent.
    void release_held(nvme::Status status = {}) {
        for (const auto& [qid, cid] : held_) {
            complete(qid, cid, {status, 0, false});
        }
        held_.clear();
    }
    void event(std::uint32_t dword) {
        complete(0, events_.front(), {{}, dword, false});
        events_.pop_front();
    }

    // ---- Function
    const pci::Identity& identity() const noexcept override { return identity_; }
    std::string path() const override { return "fake"; }
    std::string path_reason() const override { return "test"; }
    std::shared_ptr<iommu::AddressSpace> address_space() const override { return space_; }
    Result<std::uint32_t> read_config(unsigned, unsigned) override { return 0U; }
    Result<void> write_config(unsigned, unsigned, std::uint32_t) override { return {}; }
    Result<pci::RegionInfo> region(unsigned index) override {
        return pci::RegionInfo{index, bar_size, true, true, areas};
    }
    Result<os::Mapping> map_region(unsigned, ByteCount offset, ByteCount length) override {
        return os::Mapping::map(os::real_system(), bar_.get(), static_cast<off_t>(offset.value()), length);
    }
    Result<std::uint64_t> read_region(unsigned, ByteCount offset, unsigned width) override {
        const std::lock_guard guard{mutex_};
        widths.push_back(width);
        if (gone) {
            return width == 8 ? ~std::uint64_t{0} : 0xffffffffU;
        }
        const std::uint64_t whole = reg(offset.value() & ~7ULL);
        const std::uint64_t value = width == 8 ? whole : (whole >> ((offset.value() & 4) * 8)) & 0xffffffffU;
        return value;
    }
    Result<void> write_region(unsigned, ByteCount offset, unsigned width, std::uint64_t value) override {
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
    Result<void> set_bus_master(bool enabled) override {
        bus_master_while_enabled_first |= enabled && !bus_master && (cc & 1) != 0;
        bus_master = enabled;
        return {};
    }
    Result<unsigned> interrupt_count() override { return vectors; }
    Result<void> enable_interrupts(std::span<const int> fds) override {
        eventfds.assign(fds.begin(), fds.end());
        return {};
    }
    Result<void> disable_interrupts() override {
        eventfds.clear();
        return {};
    }
    Result<void> reset() override {
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
    void pause() noexcept override {
        {
            const std::lock_guard guard{mutex_};
            if (on_pause) {
                on_pause();
            }
            work();
        }
        std::this_thread::yield();
    }

    std::vector<unsigned> widths;      ///< of every register read
    std::vector<std::uint64_t> writes; ///< the offset of every register written

  private:
    struct Ring {
        std::uint64_t submission = 0;
        std::uint64_t completion = 0;
        std::uint32_t entries = 0;
        std::uint32_t head = 0;
        std::uint32_t tail = 0; ///< of completions
        bool phase = true;
    };

    void set_identify_defaults() {
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

    std::uint64_t reg(std::uint64_t offset) {
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

    void configure(std::uint32_t value) {
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

    void forget() {
        rings_.clear();
        held_.clear();
        events_.clear();
        completion_queues.clear();
        submission_queues.clear();
        memory_of_completions_.clear();
    }

    std::uint32_t doorbell(std::uint16_t qid) {
        const std::uint64_t stride = std::uint64_t{4} << ((cap >> 32) & 15);
        std::uint32_t value = 0;
        std::memcpy(&value, doorbells_.data() + 0x1000 + 2 * qid * stride, sizeof value);
        return value;
    }

    void complete(std::uint16_t qid, std::uint16_t cid, Reply reply) {
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

    void work() {
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
                            reinterpret_cast<const void*>(ring.submission + ring.head * sizeof command),
                            sizeof command);
                ring.head = (ring.head + 1) % ring.entries;
                serve(qid, command);
            }
        }
    }

    void serve(std::uint16_t qid, const nvme::Command& command) {
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

    Reply admin(const nvme::Command& command) {
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

  public:
    AdminHook io_hook;

  private:
    std::recursive_mutex mutex_; ///< hooks call back
    std::shared_ptr<PointerSpace> space_;
    os::Fd bar_;
    os::Mapping doorbells_;
    pci::Identity identity_;
    std::map<std::uint16_t, Ring> rings_;
    std::map<std::uint16_t, std::uint64_t> memory_of_completions_;
    std::vector<std::pair<std::uint16_t, std::uint16_t>> held_;
    std::deque<std::uint16_t> events_;
};

} // namespace upcie::test
