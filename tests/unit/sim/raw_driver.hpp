// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Drives a simulated controller by its registers and rings alone, without the library's own driver: what the simulator
// says is tested by something that shares no code with what it is for.

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <upcie/nvme/command.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::sim::test {

/// Anonymous memory mapped for the device.
class Memory {
  public:
    Memory(iommu::AddressSpace& space, std::size_t size, iommu::Access access = iommu::Access::read_write)
        : size_{size} {
        memory_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory_, MAP_FAILED);
        auto mapped = space.map_memory(memory_, ByteCount{size}, access);
        EXPECT_TRUE(mapped) << mapped.error().message();
        if (mapped) {
            mapping_ = std::move(*mapped);
        }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
        static_cast<void>(mapping_.unmap());
        ::munmap(memory_, size_);
    }

    /// Device address of a byte.
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        for (const iommu::Extent& extent : mapping_.extents()) {
            if (offset < extent.length.value()) {
                return extent.address.value() + offset;
            }
            offset -= extent.length.value();
        }
        ADD_FAILURE() << "offset outside of the memory";
        return 0;
    }
    template <class Item = std::uint8_t>
    [[nodiscard]] Item* as(std::size_t offset = 0) const {
        return reinterpret_cast<Item*>(static_cast<std::byte*>(memory_) + offset);
    }
    [[nodiscard]] iommu::DmaMapping& mapping() { return mapping_; }
    [[nodiscard]] std::size_t size() const { return size_; }

  private:
    std::size_t size_;
    void* memory_ = nullptr;
    iommu::DmaMapping mapping_;
};

struct Entry { ///< a completion, taken apart
    std::uint32_t dword0 = 0;
    std::uint16_t cid = 0;
    std::uint16_t sqid = 0;
    std::uint16_t head = 0;
    std::uint16_t status = 0; ///< 15 bits
    /// Type and code: 0x102 is type 1, code 2.
    [[nodiscard]] unsigned code() const { return status & 0x7ffU; }
};

/// A submission and a completion ring of the same size.
struct Rings {
    Rings(iommu::AddressSpace& space, std::uint16_t id, std::uint32_t count)
        : qid{id}, entries{count}, sq{space, round(count * 64)}, cq{space, round(count * 16)} {}
    static std::size_t round(std::size_t size) { return (size + 4095) / 4096 * 4096; }

    std::uint16_t qid;
    std::uint32_t entries;
    Memory sq;
    Memory cq;
    std::uint32_t tail = 0;
    std::uint32_t head = 0;
    std::uint32_t phase = 1;
};

class RawDriver {
  public:
    explicit RawDriver(const std::string& spec) {
        const auto options = Options::parse(spec);
        EXPECT_TRUE(options) << options.error().message();
        auto made = Function::create(*options, spec);
        EXPECT_TRUE(made) << made.error().message();
        function = std::move(*made);
        controller = function->controller();
        bar = std::move(*function->map_region(0, ByteCount{0}, function->region(0)->areas[0].size));
        stride = 4U << options->dstrd;
    }

    template <class Word = std::uint32_t>
    [[nodiscard]] Word read(std::uint64_t offset) const {
        return __atomic_load_n(reinterpret_cast<Word*>(bar.data() + offset), __ATOMIC_ACQUIRE);
    }
    template <class Word>
    void write(std::uint64_t offset, Word value) const {
        __atomic_store_n(reinterpret_cast<Word*>(bar.data() + offset), value, __ATOMIC_RELEASE);
    }

    /// Takes steps (or waits for the thread) until `done` or for two seconds.
    template <class Done>
    bool wait(Done&& done) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{2};
        while (!done()) {
            function->pause();
            if (!controller->options().threaded) {
                controller->step();
                return done();
            }
            if (std::chrono::steady_clock::now() > end) {
                return false;
            }
        }
        return true;
    }

    /// Admin queues of `entries`, bus master, CC.EN. False when CSTS.RDY does not come.
    bool enable(std::uint32_t entries = 32, std::uint32_t cc = 0x00460001) {
        static_cast<void>(function->set_bus_master(true));
        admin.reset();
        admin = std::make_unique<Rings>(*controller->address_space(), std::uint16_t{0}, entries);
        write<std::uint32_t>(0x24, (entries - 1) << 16 | (entries - 1));
        write<std::uint64_t>(0x28, admin->sq.address());
        write<std::uint64_t>(0x30, admin->cq.address());
        write<std::uint32_t>(0x14, cc);
        return wait([&] { return (read(0x1c) & 1) != 0 && read(0x1c) != ~0U; });
    }
    bool disable() {
        write<std::uint32_t>(0x14, read(0x14) & ~1U);
        return wait([&] { return (read(0x1c) & 1) == 0; });
    }

    /// Puts a command into the ring without telling.
    void place(Rings& rings, const nvme::Command& command) const {
        *rings.sq.as<nvme::Command>(rings.tail * 64) = command;
        rings.tail = (rings.tail + 1) % rings.entries;
    }
    void ring(const Rings& rings) const { doorbell(rings.qid, false, rings.tail); }
    void doorbell(unsigned qid, bool completion, std::uint32_t value) const {
        write<std::uint32_t>(0x1000 + (2 * qid + (completion ? 1 : 0)) * stride, value);
    }
    void submit(Rings& rings, const nvme::Command& command) const {
        place(rings, command);
        ring(rings);
    }
    /// The next completion, taken and given back; nothing when none comes.
    std::optional<Entry> next(Rings& rings) const {
        const auto* entry = rings.cq.as<nvme::CompletionEntry>(rings.head * 16);
        std::uint32_t dword3 = 0;
        const bool came = wait([&] {
            dword3 = __atomic_load_n(&entry->cid_phase_status, __ATOMIC_ACQUIRE);
            return ((dword3 >> 16) & 1) == rings.phase;
        });
        if (!came) {
            return std::nullopt;
        }
        Entry taken{entry->result_low, static_cast<std::uint16_t>(dword3), entry->submission_queue,
                    entry->submission_head, static_cast<std::uint16_t>(dword3 >> 17)};
        rings.head = (rings.head + 1) % rings.entries;
        if (rings.head == 0) {
            rings.phase ^= 1U;
        }
        doorbell(rings.qid, true, rings.head);
        return taken;
    }
    /// One command from start to end.
    Entry run(Rings& rings, nvme::Command command) {
        command.cid = ++cid;
        submit(rings, command);
        const auto entry = next(rings);
        if (!entry) {
            ADD_FAILURE() << "no completion of opcode " << unsigned{command.opcode};
            return {0, 0, 0, 0, 0x7fff};
        }
        EXPECT_EQ(entry->cid, command.cid);
        return *entry;
    }
    Entry admin_run(const nvme::Command& command) { return run(*admin, command); }

    Entry create_cq(const Rings& rings, std::uint32_t flags = 1) {
        nvme::Command command;
        command.opcode = 0x05;
        command.prp1 = rings.cq.address();
        command.cdw10 = rings.qid | (rings.entries - 1) << 16;
        command.cdw11 = flags;
        return admin_run(command);
    }
    Entry create_sq(const Rings& rings, std::uint32_t cqid = 0) {
        nvme::Command command;
        command.opcode = 0x01;
        command.prp1 = rings.sq.address();
        command.cdw10 = rings.qid | (rings.entries - 1) << 16;
        command.cdw11 = 1 | (cqid == 0 ? rings.qid : cqid) << 16;
        return admin_run(command);
    }
    /// An I/O queue pair, ready.
    std::unique_ptr<Rings> queue(std::uint16_t qid, std::uint32_t entries = 16, std::uint32_t cq_flags = 1) {
        auto rings = std::make_unique<Rings>(*controller->address_space(), qid, entries);
        EXPECT_EQ(create_cq(*rings, cq_flags).code(), 0U);
        EXPECT_EQ(create_sq(*rings).code(), 0U);
        return rings;
    }

    static nvme::Command io(std::uint8_t opcode, std::uint64_t lba, std::uint32_t blocks, std::uint64_t prp1 = 0,
                            std::uint64_t prp2 = 0) {
        nvme::Command command;
        command.opcode = opcode;
        command.nsid = 1;
        command.prp1 = prp1;
        command.prp2 = prp2;
        command.cdw10 = static_cast<std::uint32_t>(lba);
        command.cdw11 = static_cast<std::uint32_t>(lba >> 32);
        command.cdw12 = blocks - 1;
        return command;
    }

    [[nodiscard]] std::string violations() const { return to_string(controller->violations()); }
    /// Exactly one violation of that kind since the last call.
    ::testing::AssertionResult violated(ViolationKind kind) const {
        const auto found = controller->violations();
        controller->clear_violations();
        if (found.size() == 1 && found[0].kind == kind) {
            return ::testing::AssertionSuccess();
        }
        return ::testing::AssertionFailure() << "wanted one " << to_string(kind) << ", got " << found.size() << ":\n"
                                             << to_string(found);
    }

    std::unique_ptr<Function> function;
    std::shared_ptr<Controller> controller;
    os::Mapping bar;
    std::uint64_t stride = 4;
    std::unique_ptr<Rings> admin;
    std::uint16_t cid = 0;
};

} // namespace upcie::sim::test
