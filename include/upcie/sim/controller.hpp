// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <upcie/os/mapping.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>
#include <upcie/sim/address_space.hpp>
#include <upcie/sim/faults.hpp>
#include <upcie/sim/options.hpp>
#include <upcie/sim/violation.hpp>
#include <upcie/units.hpp>

namespace upcie::sim {

class Engine;

/// An NVMe controller in this process, that checks what the driver does and can be told to misbehave.
///
/// NVM Express Base Specification 2.0 and NVM Command Set 1.0, as far as docs/simulator.md says. It reaches host memory
/// only through its AddressSpace. Threads: any. With Options::threaded a thread of its own does the work; otherwise
/// nothing happens outside step().
class Controller {
  public:
    /// What it did since it was made.
    struct Counters {
        std::uint64_t commands = 0;    ///< fetched
        std::uint64_t completions = 0; ///< entries written
        std::uint64_t interrupts = 0;  ///< signalled
        std::uint64_t doorbells = 0; ///< changes seen of submission doorbells (batching makes them fewer than commands)
        std::uint64_t resets = 0;    ///< CC.EN cleared, and function level resets
    };

    /// Errors: Options::check()'s, and what making memory, a file or its mapping says.
    [[nodiscard]] static Result<std::shared_ptr<Controller>>
    create(const Options& options, std::shared_ptr<AddressSpace> space, os::System& system = os::real_system());
    Controller(const Controller&) = delete;
    Controller& operator=(const Controller&) = delete;
    /// Stops the thread first. Memory of the host is not touched after.
    ~Controller();

    [[nodiscard]] const Options& options() const noexcept { return options_; }
    [[nodiscard]] const std::shared_ptr<AddressSpace>& address_space() const noexcept { return space_; }

    /// Processes everything that is pending; answers how many things it did (register changes, commands, completions).
    std::size_t step();
    /// For a controller without thread: lets time pass for rules and delays that count in it, then steps.
    void advance(std::chrono::milliseconds time);

    /// What the driver did wrong so far.
    [[nodiscard]] std::vector<Violation> violations() const;
    void clear_violations();

    /// Replaces the script; counts start over.
    void set_faults(FaultScript script);
    /// How often each rule of the script did its work.
    [[nodiscard]] std::vector<std::uint64_t> fault_hits() const;
    [[nodiscard]] Counters counters() const;

    /// Completes an Asynchronous Event Request, now or when the host next sends one: type 2:0, information 7:0 and log
    /// page of Base Specification 2.0, figures 145 to 150.
    void raise_event(std::uint8_t type, std::uint8_t information, std::uint8_t log_page);

    /// The medium, past the driver: an independent witness. `lba` and data in the namespace's present blocks.
    /// Errors: EINVAL for a namespace, range or length that does not exist.
    Result<void> read_medium(Nsid nsid, Lba lba, std::span<std::byte> out) const;
    Result<void> write_medium(Nsid nsid, Lba lba, std::span<const std::byte> data);

    // ---- what sim::Function is made of

    /// Bytes of BAR 0, a power of two.
    [[nodiscard]] ByteCount bar_size() const noexcept;
    /// BAR 0 itself; it lives as long as a Mapping of it. [offset, offset + length) must lie inside.
    [[nodiscard]] os::Mapping map_bar(ByteCount offset, ByteCount length) const;
    [[nodiscard]] std::uint64_t read_bar(ByteCount offset, unsigned width) const noexcept;
    void write_bar(ByteCount offset, unsigned width, std::uint64_t value) noexcept;
    void set_bus_master(bool enabled);
    [[nodiscard]] bool bus_master() const;
    /// Vector i signals eventfds[i], which are duplicated; negative ones are silent. Error: what F_DUPFD_CLOEXEC says.
    Result<void> set_interrupts(std::span<const int> eventfds);
    /// Function level reset: as power-on, but for the medium.
    void reset();

  private:
    Controller(const Options& options, std::shared_ptr<AddressSpace> space, std::unique_ptr<Engine> engine);

    Options options_;
    std::shared_ptr<AddressSpace> space_;
    std::unique_ptr<Engine> engine_;
    struct Worker;
    std::unique_ptr<Worker> worker_; // declared last: stopped first
};

} // namespace upcie::sim
