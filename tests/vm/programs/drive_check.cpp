// SPDX-License-Identifier: BSD-3-Clause
// Drives a controller of the VM through the library, with the host as the witness: blocks that the host stamped before
// the boot are read and judged; what is written here, the host judges after the boot.
//   drive_check transfer DEVICE PATH NSID READ WRITE QUEUES   READ and WRITE are SEED:FIRST:COUNT, WRITE may be '-'
//   drive_check kill DEVICE PATH NSID READ TIMES              owners are killed at random moments, the next must work
//   drive_check stale DEVICE PATH NSID READ                   memory is unmapped under reads: the stamps must tell
// Prints a line a check; the status is 1 when one failed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <upcie/os/fd_passing.hpp>
#include <upcie/os/sysfs.hpp>
#include <upcie/pci/enumeration.hpp>

#include "drive.hpp"

using namespace upcie;
using namespace upcie::vm;

namespace {

// ---- transfer

int transfer(const std::vector<std::string>& words) {
    const Stamped wanted{words[3]};
    const auto queues = static_cast<std::uint32_t>(numbers(words[5]).at(0));
    auto drive = Drive::open(words[0], words[1], static_cast<std::uint32_t>(numbers(words[2]).at(0)));
    if (!expect(drive, "opens")) {
        return 1;
    }
    const nvme::Controller& controller = *drive->controller;
    fmt::print("     {} ({}), uid {}\n", controller.function()->path(), controller.function()->path_reason(), getuid());
    expect(controller.queue_count() >= queues, "has the queues asked for", controller.queue_count_reason());
    const unsigned vectors = controller.interrupt_vectors();
    // uio_pci_generic has no MSI-X (its source says so); every vfio path has.
    expect(words[1] == "uio" ? vectors == 0 : vectors > queues, "MSI-X vectors", std::to_string(vectors));
    for (std::uint32_t i = 0; i < queues; ++i) {
        nvme::QueueOptions options;
        options.registry = drive->registry;
        if (vectors > i + 1) {
            options.interrupt_vector = i + 1;
        }
        auto queue = drive->controller->create_queue_pair(options);
        auto buffer = drive->memory(wanted.count);
        if (!expect(queue, fmt::format("queue {}", i + 1)) || !expect(buffer, "memory")) {
            return 1;
        }
        auto registered = drive->registry->register_buffer(*buffer);
        if (!expect(registered, "registers")) {
            return 1;
        }
        const std::string fault = read_verified(*drive, *queue, *buffer, wanted);
        expect(fault.empty(), fmt::format("{} bytes in one command are what the host wrote", buffer->size().value()),
               fault);
        if (options.interrupt_vector) {
            const auto fired = queue->wait_for_interrupt(host(), 10s);
            expect(fired && *fired, "its interrupt fired");
        }
        if (words[4] == "-") {
            continue;
        }
        // A part for each queue.
        Stamped part{words[4]};
        part.count /= queues;
        part.first += std::uint64_t{i} * part.count;
        if (!expect(part.count > 0 && part.count <= wanted.count, "the range to write fits")) {
            return 1;
        }
        for (std::uint32_t b = 0; b < part.count; ++b) {
            cli::write_stamp(drive->block(*buffer, b), part.stamp(drive->format, b));
        }
        std::string bad = "not submitted";
        if (queue->write(drive->format, Lba{part.first}, part.count, buffer->data(), 2)) {
            queue->ring();
            bad.clear();
            finish(*queue, 1, bad);
        }
        expect(bad.empty(), fmt::format("writes {} blocks for the host to check", part.count), bad);
    }
    return failures;
}

// ---- kill

constexpr const char* socket_name = "/tmp/drive_check.socket";

/// An owner with a socket, memory and reads in flight, for ever. Writes a byte to `ready` when it got so far.
[[noreturn]] void own(const std::vector<std::string>& words, int ready) {
    const Stamped range{words[3]};
    auto listener = os::Listener::listen(host(), socket_name);
    auto drive = Drive::open(words[0], words[1], static_cast<std::uint32_t>(numbers(words[2]).at(0)));
    if (listener && drive) {
        auto queue = drive->queue(32);
        auto buffer = drive->memory(range.count);
        if (queue && buffer) {
            const auto registered = drive->registry->register_buffer(*buffer);
            std::vector<nvme::Completion> ended(32);
            for (std::uint64_t round = 0; registered; ++round) {
                while (queue->read(drive->format, Lba{range.first}, range.count, buffer->data(), round)) {
                }
                queue->ring();
                if (round == 0 && write(ready, "r", 1) != 1) {
                    break;
                }
                (void)queue->poll(ended);
            }
        }
    }
    _exit(1); // never while all is well: the parent takes it for a failure
}

std::string hugepages_free() {
    return os::read_text(host(), "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").value_or("unreadable");
}

/// What the next owner finds; empty: all as it should be.
std::string next_owner(const std::vector<std::string>& words, const Stamped& range) {
    auto drive = Drive::open(words[0], words[1], static_cast<std::uint32_t>(numbers(words[2]).at(0)));
    if (!drive) {
        return drive.error().message();
    }
    if (!drive->controller->info().serial.starts_with("upcie-")) {
        return "identify says serial '" + drive->controller->info().serial + "'";
    }
    auto queue = drive->queue(4);
    auto buffer = drive->memory(range.count);
    if (!queue || !buffer) {
        return queue ? buffer.error().message() : queue.error().message();
    }
    const auto registered = drive->registry->register_buffer(*buffer);
    return registered ? read_verified(*drive, *queue, *buffer, range) : registered.error().message();
}

int kill_owner(const std::vector<std::string>& words) {
    const Stamped range{words[3]};
    const auto times = numbers(words[4]).at(0);
    const std::string hugepages = hugepages_free();
    const auto driver_of = [&] { return pci::find_function(host(), *pci::Bdf::parse(words[0]))->driver; };
    const auto driver = driver_of();
    const auto seed = std::random_device{}();
    std::mt19937 random{seed};
    fmt::print("     random seed {}\n", seed);
    auto usual = 1000ms; // what a start takes; the first round measures it
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    for (std::uint64_t round = 0; round <= times; ++round) {
        int ends[2] = {-1, -1};
        if (pipe(ends) != 0) {
            expect(false, "pipe");
            return 1;
        }
        (void)fflush(stdout);
        const auto begin = Clock::now();
        const pid_t owner = fork();
        if (owner == 0) {
            own(words, ends[1]);
        }
        close(ends[1]);
        char ready = 0;
        if (round == 0) {
            // Undisturbed, to see that the owner gets to work at all.
            expect(read(ends[0], &ready, 1) == 1, "the owner gets to work");
            usual = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
            ready = 0;
        } else {
            const auto most = static_cast<int>(usual.count()) * 8 / 5;
            std::this_thread::sleep_for(std::chrono::milliseconds{std::uniform_int_distribution<int>{0, most}(random)});
        }
        const auto moment = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
        kill(owner, SIGKILL);
        int status = 0;
        waitpid(owner, &status, 0);
        const bool working = round == 0 || read(ends[0], &ready, 1) == 1;
        close(ends[0]);
        ++(working ? after : before);
        const std::string where = fmt::format("round {}, killed after {} ms, {}", round, moment.count(),
                                              working ? "with reads in flight" : "on its way up");
        if (!WIFSIGNALED(status)) {
            expect(false, where, "the owner had ended by itself");
        }
        std::string fault;
        if (auto listener = os::Listener::listen(host(), socket_name); !listener) {
            fault = listener.error().message();
        }
        fault = fault.empty() ? next_owner(words, range) : fault;
        if (fault.empty() && hugepages_free() != hugepages) {
            fault = fmt::format("hugepages free before: {}, now: {}", hugepages, hugepages_free());
        }
        if (fault.empty() && driver_of() != driver) {
            fault = "bound to another driver now";
        }
        if (fault.empty() && access(socket_name, F_OK) == 0) {
            fault = "a socket is left over";
        }
        if (!fault.empty()) {
            expect(false, where, fault);
        }
    }
    expect(before > 0 && after > 1, "kills came on the way up and during work",
           fmt::format("{} and {}; a start takes {} ms", before, after, usual.count()));
    return failures;
}

// ---- stale

int stale(const std::vector<std::string>& words) {
    const Stamped range{words[3]};
    auto drive = Drive::open(words[0], words[1], static_cast<std::uint32_t>(numbers(words[2]).at(0)));
    if (!expect(drive, "opens")) {
        return 1;
    }
    const auto space = drive->controller->address_space();
    if (!expect(space->translating(), "an IOMMU translates", space->describe())) {
        return 1;
    }
    auto queue = drive->queue(32);
    auto buffer = drive->memory(range.count);
    if (!expect(queue, "queue") || !expect(buffer, "memory")) {
        return 1;
    }
    const auto map = [&] { return space->map_memory(buffer->data(), buffer->size()); };
    const auto read_all = [&](std::span<const iommu::Extent> extents, unsigned commands) {
        for (unsigned i = 0; i < commands; ++i) {
            const auto submitted =
                queue->transfer(nvme::IoOpcode::read, drive->format, Lba{range.first}, range.count, extents, i);
            expect(static_cast<bool>(submitted), "submits");
        }
        queue->ring();
    };
    std::uint32_t bad = 0;
    std::string fault;
    for (const bool in_flight : {false, true}) {
        auto mapping = map();
        if (!expect(mapping, "maps")) {
            return 1;
        }
        const std::vector<iommu::Extent> extents(mapping->extents().begin(), mapping->extents().end());
        cli::poison(buffer->bytes());
        read_all(extents, 1);
        finish(*queue, 1, fault);
        expect(fault.empty() && judge(*drive, *buffer, range, bad).empty(), "while mapped: good", fault);

        cli::poison(buffer->bytes());
        if (in_flight) {
            read_all(extents, 16);
        }
        expect(mapping->unmap(), "unmaps");
        cli::poison(buffer->bytes());
        read_all(extents, in_flight ? 8 : 1);
        const std::size_t came = finish(*queue, in_flight ? 24 : 1, fault);
        fmt::print("     {} reads to the unmapped address completed: {}\n", came,
                   fault.empty() ? "with success" : fault);
        expect(came == (in_flight ? 24 : 1), "every read completes");
        const std::string finding = judge(*drive, *buffer, range, bad);
        expect(bad == range.count, "the stamps tell of every block",
               fmt::format("{} of {}: {}", bad, range.count, finding));
        fault.clear();
    }
    auto mapping = map();
    if (expect(mapping, "maps again")) {
        cli::poison(buffer->bytes());
        read_all(mapping->extents(), 1);
        finish(*queue, 1, fault);
        const std::string finding = judge(*drive, *buffer, range, bad);
        expect(fault.empty() && finding.empty(), "and reads good data", fault + finding);
    }
    return failures;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
    const std::string_view verb = argc > 1 ? argv[1] : "";
    if (verb == "transfer" && words.size() == 6) {
        return transfer(words) == 0 ? 0 : 1;
    }
    if (verb == "kill" && words.size() == 5) {
        return kill_owner(words) == 0 ? 0 : 1;
    }
    if (verb == "stale" && words.size() == 4) {
        return stale(words) == 0 ? 0 : 1;
    }
    fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
    return 2;
}
