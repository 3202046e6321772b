// SPDX-License-Identifier: BSD-3-Clause
#include "vfio_share.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "delegation.hpp"
#include "nvme_witness.hpp"
#include "session.hpp"
#include "two_processes.hpp"

namespace upcie::probes {

namespace {

constexpr std::uint64_t primarys_word = 0x7072696d61727921;
constexpr std::uint64_t secondarys_word = 0x7365636f6e642121;

void put_word(const os::Mapping& memory, std::size_t index, std::uint64_t value) {
    std::memcpy(memory.data() + layout::words + index * sizeof(value), &value, sizeof(value));
}

std::uint64_t get_word(const os::Mapping& memory, std::size_t index) {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + layout::words + index * sizeof(value), sizeof(value));
    return value;
}

/// The control of all DMA: the primary's own reaches its memory. An address space that does not translate has none.
Result<void> try_own_dma(Report& report, const Requests& requests, const Session& session, const SharedMemory& memory,
                         std::uint64_t iova) {
    Result<DmaWitness> witness = DmaWitness::open(requests, session.device.get(), memory.view.data(), iova);
    if (!witness) {
        return tl::unexpected{witness.error()};
    }
    if (Result<void> started = witness->start(); !started) {
        return started;
    }
    const DmaWitness::Sight seen = witness->identify(memory.view.data() + layout::scratch, iova + layout::scratch);
    report.control("delegation", "control.primarys_own_dma", seen.landed, seen.word(),
                   "the device can write to the primary's memory");
    return witness->stop();
}

Result<void> delegate(Report& report, const Requests& requests, const pci::FunctionInfo& function, Channel& secondary) {
    const Result<Session> session = open_session(requests, function.vfio_cdev);
    if (!session) {
        return tl::unexpected{session.error()};
    }
    const int iommufd = session->iommufd.get();
    const Result<SharedMemory> memory = make_shared_memory(requests, "upcie-probe-shared", layout::length);
    if (!memory) {
        return tl::unexpected{memory.error()};
    }
    const Answered<std::uint64_t> iova =
        requests.map_file(iommufd, session->ioas, memory->file.get(), 0, layout::length);
    const Answered<std::uint64_t> sacrifice = requests.map_file(iommufd, session->ioas, memory->file.get(), 0, page);
    if (!iova.ok() || !sacrifice.ok()) {
        return fail(iova.ok() ? sacrifice.error : iova.error, "IOMMU_IOAS_MAP_FILE", "the shared memory",
                    "Raise RLIMIT_MEMLOCK (ulimit -l).");
    }
    const Value own_cap = read_cap(requests, session->device.get());
    report.control("delegation", "control.cap_is_readable", own_cap != nullptr && own_cap != "0xffffffffffffffff",
                   own_cap, "the primary reads the register CAP itself");
    if (function.is_nvme()) {
        if (Result<void> tried = try_own_dma(report, requests, *session, *memory, iova.value); !tried) {
            return tried;
        }
    }
    put_word(memory->view, 0, primarys_word);
    Result<void> sent =
        Delegation::send(secondary, *session, *memory, iova.value, function, {{"sacrifice_iova", sacrifice.value}});
    if (!sent) {
        return sent;
    }
    const Result<Message> told = secondary.expect("delegated");
    if (!told) {
        return tl::unexpected{told.error()};
    }
    if (Result<void> taken = take_findings(report, *told); !taken) {
        return taken;
    }
    report.observe("share.primary_sees_secondarys_write", get_word(memory->view, 1) == secondarys_word);
    const Observation* const cap = report.find("share.cap");
    report.observe("share.same_cap_on_both_sides", cap != nullptr && cap->value == own_cap);
    return {};
}

void judge_delegation(Report& report, const pci::FunctionInfo& function, const Sides& sides) {
    const auto is = [&](const char* name, const Value& value) {
        const Observation* const seen = report.find(name);
        return seen != nullptr && seen->value == value;
    };
    const bool registers = report.succeeded("share.mmap_of_bar0") && is("share.same_cap_on_both_sides", true);
    const bool memory =
        is("share.secondary_sees_primarys_write", true) && is("share.primary_sees_secondarys_write", true);
    const bool mapping = report.succeeded("share.map_own_by_file") && report.succeeded("share.map_own_by_address");
    const bool dma = !function.is_nvme() || (is("share.dma_to_own_memory", "completed, data arrived") &&
                                             is("share.dma_to_shared_memory", "completed, data arrived"));
    const bool usable = registers && memory && mapping && dma;
    const std::string who =
        sides.primary.effective_uid == sides.secondary.effective_uid ? "of the same user" : "of another user";
    std::string sentence =
        "A secondary " + who + " that was given the device, the iommufd with its IOAS id and a memfd ";
    sentence += usable ? "can use the device as its owner does: registers, shared memory, and mappings of its own."
                       : std::string{"cannot use all of it: registers "} + (registers ? "yes" : "no") +
                             ", shared memory " + (memory ? "yes" : "no") + ", own mappings " +
                             (mapping ? "yes" : "no") + ", DMA " + (dma ? "yes" : "no") + ".";
    if (report.succeeded("share.unmap_of_primarys_mapping")) {
        sentence +=
            " It can also unmap what the primary mapped: the descriptor gives all rights over the address space.";
    }
    report.answer("delegation", usable ? "usable" : "partly", sentence);
}

/// The secondary's look; the given descriptors are closed when it ends, so that the primary can open the device anew.
Result<void> take_delegation(Report& report, const Requests& requests, Message& message) {
    const Result<Delegation> given = Delegation::take(message);
    if (!given) {
        return tl::unexpected{given.error()};
    }
    describe_given_device(report, requests.system(), given->bdf);
    const Answered<os::Mapping> shared = requests.map_shared(given->memory_file.get(), 0, given->memory_length);
    report.outcome("share.mmap_of_memory", shared.error);
    if (!shared.ok()) {
        return {};
    }
    report.observe("share.secondary_sees_primarys_write", get_word(shared.value, 0) == primarys_word);
    put_word(shared.value, 1, secondarys_word);
    const Result<SharedMemory> own = make_shared_memory(requests, "upcie-probe-own", DmaWitness::rings_length);
    if (!own) {
        return tl::unexpected{own.error()};
    }
    if (Result<void> looked = look_at_delegation(report, requests, *given, *own, shared.value); !looked) {
        return looked;
    }
    const std::uint64_t sacrifice = message.data.value("sacrifice_iova", std::uint64_t{0});
    report.outcome("share.unmap_of_primarys_mapping",
                   requests.unmap(given->iommufd.get(), given->ioas, sacrifice, page).error);
    return {};
}

} // namespace

const char* word(Accounting accounting) noexcept {
    return accounting == Accounting::per_user ? "per_user" : "per_process";
}

Result<void> ask_vfio_share(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            Channel& secondary, const ShareOptions& options) {
    const Result<Identity> other = introduce(report, requests.system(), secondary, "primary", "secondary");
    const Result<Identity> self = who_am_i(requests.system());
    if (!other || !self) {
        return tl::unexpected{other ? self.error() : other.error()};
    }
    const Sides sides{*self, *other};
    if (Result<void> done = delegate(report, requests, function, secondary); !done) {
        return done;
    }
    judge_delegation(report, function, sides);
    for (const Accounting accounting : options.accountings) {
        Result<void> done = look_at_accounting(report, requests, function, secondary, sides, accounting, options);
        if (!done) {
            return done;
        }
    }
    judge_accounting(report, sides, options);
    if (Result<void> sent = secondary.send("end"); !sent) {
        return sent;
    }
    const Result<Message> goodbye = secondary.expect("goodbye");
    const Result<Account> theirs = goodbye ? Account::of(goodbye->data) : tl::unexpected{goodbye.error()};
    const Result<Account> own = Account::now(requests.system());
    if (!theirs || !own) {
        return tl::unexpected{theirs ? own.error() : theirs.error()};
    }
    for (const auto& [side, account] : {std::pair{"primary", *own}, std::pair{"secondary", *theirs}}) {
        report.observe(fmt::format("memlock.after.{}_VmLck", side), account.locked, "bytes");
        report.observe(fmt::format("memlock.after.{}_VmPin", side), account.pinned, "bytes");
    }
    return {};
}

Result<void> be_share_secondary(Report& report, const Requests& requests, Channel& primary) {
    if (const Result<Identity> other = introduce(report, requests.system(), primary, "secondary", "primary"); !other) {
        return tl::unexpected{other.error()};
    }
    for (;;) {
        Result<Message> message = primary.receive();
        if (!message) {
            return tl::unexpected{message.error()};
        }
        if (message->type == "delegate") {
            if (Result<void> taken = take_delegation(report, requests, *message); !taken) {
                return taken;
            }
            message->fds.clear();
            if (Result<void> told = primary.send("delegated", {{"findings", report.share_findings()}}); !told) {
                return told;
            }
        } else if (message->type == "accounting") {
            Result<void> served = serve_accounting(requests, primary, *message);
            message->fds.clear();
            // Said once nothing of the primary's is open here any more: it opens the device anew.
            if (Result<void> told = served ? primary.send("closed") : served; !told) {
                return told;
            }
        } else if (message->type == "end") {
            const Result<Account> account = Account::now(requests.system());
            return account ? primary.send("goodbye", account->json()) : tl::unexpected{account.error()};
        } else {
            return fail(EPROTO, "reading a message", message->type, message->data.value("message", "It is unknown."));
        }
    }
}

} // namespace upcie::probes
