// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <upcie/nvme/sgl.hpp>
#include <upcie/result.hpp>
#include <upcie/sim/address_space.hpp>
#include <upcie/sim/faults.hpp>
#include <upcie/units.hpp>

namespace upcie::sim {

/// What kind of controller is simulated. The text form of each member is given after it; see docs/simulator.md.
struct Options {
    ByteCount size{std::uint64_t{1} << 30}; ///< "size=1G": of each namespace. Memory is used only where written
    std::uint32_t block_size = 512;         ///< "lba=4096": 512 or 4096
    std::uint32_t metadata_size = 0;        ///< "meta=8": bytes a block, to be refused by a driver; I/O is refused too
    std::uint32_t namespaces = 1;           ///< "ns=2": 1 to 1024
    std::string file;          ///< "file=/path": keeps the namespaces one after the other in a file, made when missing
    std::uint8_t mdts = 5;     ///< "mdts=5": largest transfer is 2^5 pages of 4 KiB << mpsmin; 0: no limit
    std::uint16_t mqes = 1023; ///< "mqes=1023": as in CAP, so queues of up to 1024 entries
    std::uint16_t queues = 4;  ///< "queues=4": I/O queue pairs that are granted, 1 to 1024
    std::uint16_t vectors = 0; ///< "vectors=5": MSI-X vectors; 0: one more than queues. "vectors=none": no_interrupts
    bool no_interrupts = false;
    std::uint8_t dstrd = 0;                  ///< "dstrd=0": doorbells are 4 << dstrd bytes apart, 0 to 10
    std::uint8_t mpsmin = 0;                 ///< "mpsmin=0": smallest page is 4 KiB << mpsmin
    std::uint8_t mpsmax = 4;                 ///< "mpsmax=4": largest likewise; 0 to 15
    std::uint8_t to = 10;                    ///< "to=10": CAP.TO, in units of 500 ms
    std::chrono::milliseconds ready_delay{}; ///< "ready=20ms": from CC.EN to CSTS.RDY
    std::uint64_t msix_table = 0;   ///< "msix=0x5000": offset of the MSI-X table inside BAR 0, whose page cannot be
                                    ///< mapped; 0: in BAR 4
    bool volatile_cache = true;     ///< "vwc=on"
    std::uint16_t vendor = 0x1b36;  ///< "vendor=0x1b36": PCI vendor
    std::uint16_t device = 0x5c1e;  ///< "device=0x5c1e"
    std::string serial = "SIM0001"; ///< "serial=..": up to 20 characters
    std::string model = "upcie simulated NVMe";    ///< "model=..": up to 40
    std::string firmware = "1.0";                  ///< "firmware=..": up to 8
    nvme::SglSupport sgl = nvme::SglSupport::none; ///< "sgl=bytes", "dwords", "none": what data pointers may be
    bool threaded = true;          ///< "thread=off": nothing happens except in Controller::step() and Function::pause()
    AddressSpaceOptions addresses; ///< "iova=0x1000..0xffffff", "scatter=1" (pages_per_run), "zero=on", "seed=7"
    FaultScript faults;            ///< "faults=SCRIPT"

    /// Reads "sim:key=value,…", with or without "sim:" before it. Numbers are decimal or 0x…; sizes take K, M, G, T
    /// (powers of 1024). Errors: EINVAL naming the key or value, and the keys there are.
    [[nodiscard]] static Result<Options> parse(std::string_view text);
    /// Checks values against each other. Error: EINVAL naming the member.
    [[nodiscard]] Result<void> check() const;
};

} // namespace upcie::sim
