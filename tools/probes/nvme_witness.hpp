// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <upcie/nvme/queue_layout.hpp>
#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

#include "report.hpp"
#include "requests.hpp"

namespace upcie::probes {

/// Asks the drive itself whether an address leads to memory: it is told to write its Identify data there, and the
/// memory is looked at. A mapping request that succeeds says nothing yet (a fresh IOAS takes any mapping), and neither
/// does the command's status (a drive may report success although the IOMMU stopped its write): only the data do.
///
/// Drives the admin queue with nothing but registers and two pages, apart from the library's controller, so that a
/// fault there cannot colour an answer. Threads: one.
class DmaWitness {
  public:
    static constexpr std::uint64_t rings_length = 8192; ///< submission page, then completion page
    static constexpr std::uint64_t data_length = 4096;

    /// Where the queues stand, for another process to go on with them.
    struct State {
        std::uint32_t tail = 0;
        std::uint32_t head = 0;
        std::uint32_t phase = 1;
        [[nodiscard]] Value json() const;
        /// Error: EPROTO.
        [[nodiscard]] static Result<State> of(const Value& json);
    };

    /// Maps BAR 0 of a bound device and takes `rings` (rings_length bytes that the device reaches at `rings_dma`).
    /// Lets the function do DMA (bus master). Error: ENODEV (all ones: the device is gone), EOPNOTSUPP (it wants pages
    /// larger than 4 KiB), what the kernel says to mapping.
    [[nodiscard]] static Result<DmaWitness> open(Requests requests, int device, std::byte* rings,
                                                 std::uint64_t rings_dma);

    /// CAP, as the registers say it now.
    [[nodiscard]] std::uint64_t capabilities() const noexcept { return read64(0x00); }
    /// CSTS.RDY
    [[nodiscard]] bool ready() const noexcept { return (read32(0x1c) & 1U) != 0; }

    /// Resets the controller and starts its admin queue in the rings. Error: ETIMEDOUT, EIO (CSTS.CFS), ENODEV.
    Result<void> start();
    /// Goes on with queues that another process started.
    void adopt(const State& state) noexcept;
    [[nodiscard]] State state() const noexcept { return {queue_.tail(), queue_.head(), queue_.phase != 0 ? 1U : 0U}; }
    /// Disables the controller, so that it touches no memory any more. Error: ETIMEDOUT, ENODEV.
    Result<void> stop();

    /// What became of one Identify to `data_dma`, with `data` the CPU's view of what should be there.
    struct Sight {
        bool completed = false;   ///< an entry came into the completion queue in time
        std::uint16_t status = 0; ///< of that entry, 15 bits; 0 is success
        bool landed = false;      ///< the data are in the memory: it is what the device wrote to
        [[nodiscard]] std::string word() const;
    };
    [[nodiscard]] Sight identify(std::byte* data, std::uint64_t data_dma);

  private:
    DmaWitness(Requests requests, os::Mapping registers, std::byte* rings, std::uint64_t rings_dma) noexcept;
    [[nodiscard]] std::uint32_t read32(std::size_t offset) const noexcept;
    [[nodiscard]] std::uint64_t read64(std::size_t offset) const noexcept;
    void write32(std::size_t offset, std::uint32_t value) noexcept;
    Result<void> wait_ready(bool ready);
    [[nodiscard]] std::chrono::milliseconds ready_timeout() const noexcept;

    Requests requests_;
    os::Mapping registers_;
    std::uint64_t rings_dma_;
    nvme::QueueLayout queue_;
    std::uint16_t next_cid_ = 1;
};

} // namespace upcie::probes
