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
#include <vector>

#include <upcie/nvme/command.hpp>
#include <upcie/nvme/registers.hpp>
#include <upcie/os/fd.hpp>
#include <upcie/pci/function.hpp>

#include "nvme/pointer_space.hpp"

namespace upcie::test {

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

    explicit FakeDevice(std::shared_ptr<PointerSpace> space = std::make_shared<PointerSpace>());

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
    AdminHook io_hook;
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
    Result<std::uint64_t> read_region(unsigned, ByteCount offset, unsigned width) override;
    Result<void> write_region(unsigned, ByteCount offset, unsigned width, std::uint64_t value) override;
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
    Result<void> reset() override;
    void pause() noexcept override;

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

    void set_identify_defaults();

    std::uint64_t reg(std::uint64_t offset);

    void configure(std::uint32_t value);

    void forget();

    std::uint32_t doorbell(std::uint16_t qid);

    void complete(std::uint16_t qid, std::uint16_t cid, Reply reply);

    void work();

    void serve(std::uint16_t qid, const nvme::Command& command);

    Reply admin(const nvme::Command& command);

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
