// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <upcie/memory/buffer.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/os/system.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::conformance {

/// A piece of a namespace with a meaning.
struct BlockRange {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t seed = 0; ///< of the stamps; 0 where none is meant
};

/// The device under test, as the environment names it; see tests/conformance/README.md. One a process.
class Device {
  public:
    static Device& instance();

    /// Reads the environment and opens. On failure says on stderr why, and what to set.
    [[nodiscard]] bool open();
    void close();

    /// Opened anew where a test closed it.
    [[nodiscard]] const std::shared_ptr<pci::Function>& function() const { return function_; }
    /// Null for a real device.
    [[nodiscard]] sim::Controller* simulated() const;
    /// Blocks that tests may overwrite; none: any.
    [[nodiscard]] const std::optional<BlockRange>& scratch() const { return scratch_; }
    [[nodiscard]] const std::optional<BlockRange>& witness_read() const { return witness_read_; }
    [[nodiscard]] const std::optional<BlockRange>& witness_write() const { return witness_write_; }
    [[nodiscard]] std::optional<Nsid> nsid() const { return nsid_; }

  private:
    std::string name_;
    std::string path_;
    std::shared_ptr<pci::Function> function_;
    std::optional<BlockRange> scratch_;
    std::optional<BlockRange> witness_read_;
    std::optional<BlockRange> witness_write_;
    std::optional<Nsid> nsid_;
};

/// A stamped block as docs/stamps.md defines it, written from that page: not the code of `upcie verify`.
void fill_stamp(std::span<std::byte> block, std::uint64_t seed, Nsid nsid, std::uint64_t lba, std::uint64_t pass = 1);
/// Empty when `block` is as fill_stamp() makes it, else what differs first.
[[nodiscard]] std::string check_stamp(std::span<const std::byte> block, std::uint64_t seed, Nsid nsid,
                                      std::uint64_t lba, std::uint64_t pass = 1);

/// Memory that the device may use and that pointers into resolve.
struct Memory {
    memory::Buffer buffer;
    memory::Registration registration; // declared last: goes first
    [[nodiscard]] std::byte* data() const { return buffer.data(); }
    [[nodiscard]] std::span<std::byte> bytes(std::size_t offset, std::size_t length) const {
        return buffer.bytes().subspan(offset, length);
    }
};

/// A controller brought up for each test, and taken down after; a simulated one must have nothing to complain of.
class Conformance : public ::testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;

    void open_controller(const nvme::ControllerOptions& options = {});
    [[nodiscard]] static nvme::QueueOptions of_depth(std::uint32_t depth);
    /// Of `depth` entries, or of as many as the controller takes.
    [[nodiscard]] nvme::QueuePair make_queue(std::uint32_t depth = 64, std::optional<unsigned> vector = std::nullopt);
    [[nodiscard]] Memory make_memory(std::size_t size);
    /// `blocks` from the `index`-th block of what may be overwritten; fails the test when there is no room.
    [[nodiscard]] Lba scratch(std::uint64_t index, std::uint64_t blocks);
    [[nodiscard]] std::size_t block_size() const { return std::size_t{1} << format.block_shift; }
    /// Most bytes of one command here, whole blocks.
    [[nodiscard]] std::size_t max_bytes(const nvme::QueuePair& queue) const;

    /// Rings, and takes completions until `count` came or ten seconds went by.
    [[nodiscard]] std::vector<nvme::Completion> finish(nvme::QueuePair& queue, std::size_t count) const;
    /// One command from start to end.
    [[nodiscard]] nvme::Completion finish_one(nvme::QueuePair& queue, const nvme::Submitted& submitted) const;
    /// The status's type and code: 0x102 is type 1, code 2. -1 for what did not complete.
    [[nodiscard]] static int code(const nvme::Completion& completion);
    /// The same of an error; -1 when it is of another domain.
    template <class Answer>
    [[nodiscard]] static int code(const Result<Answer>& answer) {
        if (answer) {
            return 0;
        }
        return answer.error().domain == ErrorDomain::nvme ? answer.error().code & 0x7ff : -1;
    }

    os::System& system = os::real_system();
    std::shared_ptr<nvme::Controller> controller;
    std::shared_ptr<memory::Registry> registry;
    nvme::NamespaceInfo space;
    nvme::BlockFormat format;
};

} // namespace upcie::conformance
