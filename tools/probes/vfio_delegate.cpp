// SPDX-License-Identifier: BSD-3-Clause
// The primary, and the secondary that outlives it.
#include "vfio_delegate.hpp"

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include <upcie/os/sysfs.hpp>

#include "delegation.hpp"
#include "nvme_witness.hpp"
#include "session.hpp"
#include "two_processes.hpp"

namespace upcie::probes {

namespace {

/// Waits until the process is no more than a name: gone, or a zombie, whose descriptors and memory are gone too.
/// Error: ETIMEDOUT.
Result<void> wait_for_exit(os::System& system, pid_t pid, std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        const Result<std::string> stat = os::read_text(system, fmt::format("/proc/{}/stat", pid));
        // proc(5): the state follows the name, which is in parentheses and may hold anything.
        const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;
        if (!stat || name_end == std::string::npos || name_end + 2 >= stat->size() ||
            std::strchr("ZX", (*stat)[name_end + 2]) != nullptr) {
            return {};
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            return fail(ETIMEDOUT, "waiting for its end", fmt::format("process {}", pid),
                        "The primary lives on although its connection is gone.");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
}

/// One look at everything that the secondary can do with what it was given. Names begin with `when`.
class Looks {
  public:
    Looks(Report& report, const Requests& requests, const Delegation& given, const os::Mapping& shared,
          DmaWitness* witness)
        : report_{report}, requests_{requests}, given_{given}, shared_{shared}, witness_{witness} {}

    Result<void> look(const std::string& when) {
        const int device = given_.device.get();
        report_.outcome(when + ".region_info", requests_.region_info(device, 0).error);
        report_.observe(when + ".cap", read_cap(requests_, device), "address", "through a new mapping of BAR 0");
        report_.outcome(when + ".bind_again", requests_.bind(device, given_.iommufd.get()).error);
        if (witness_ != nullptr) {
            report_.observe(when + ".controller_ready", witness_->ready(), {}, "CSTS.RDY, through the old mapping");
            report_.observe(
                when + ".dma_to_shared_memory",
                witness_->identify(shared_.data() + layout::witness, given_.memory_iova + layout::witness).word(), {},
                "memory that the primary mapped, through the queue that it started");
        }
        return map_more(when);
    }

  private:
    Result<void> map_more(const std::string& when) {
        const int iommufd = given_.iommufd.get();
        const Result<SharedMemory> memory = make_shared_memory(requests_, "upcie-probe-more", page);
        const Answered<os::Mapping> anonymous = requests_.anonymous(page);
        if (!memory || !anonymous.ok()) {
            return memory ? fail(anonymous.error, "mmap", "a page", "Is there memory left?")
                          : tl::unexpected{memory.error()};
        }
        const Answered<std::uint64_t> by_file = requests_.map_file(iommufd, given_.ioas, memory->file.get(), 0, page);
        report_.outcome(when + ".map_by_file", by_file.error);
        const Answered<std::uint64_t> by_address = requests_.map(iommufd, given_.ioas, anonymous.value.data(), page);
        report_.outcome(when + ".map_by_address", by_address.error);
        if (witness_ != nullptr && by_file.ok()) {
            report_.observe(when + ".dma_to_new_memory", witness_->identify(memory->view.data(), by_file.value).word());
        }
        if (by_file.ok()) {
            report_.outcome(when + ".unmap", requests_.unmap(iommufd, given_.ioas, by_file.value, page).error);
        }
        if (by_address.ok()) {
            static_cast<void>(requests_.unmap(iommufd, given_.ioas, by_address.value, page));
        }
        return {};
    }

    Report& report_;
    const Requests& requests_;
    const Delegation& given_;
    const os::Mapping& shared_;
    DmaWitness* witness_;
};

/// All of it worked at that time.
bool all_works(const Report& report, const std::string& when, bool nvme) {
    const auto arrived = [&](const char* what) {
        const Observation* const seen = report.find(when + what, "secondary");
        return !nvme || (seen != nullptr && seen->value == "completed, data arrived");
    };
    const Observation* const cap = report.find(when + ".cap", "secondary");
    return cap != nullptr && cap->value != nullptr && cap->value != "0xffffffffffffffff" &&
           report.succeeded(when + ".region_info", "secondary") &&
           report.succeeded(when + ".map_by_file", "secondary") &&
           report.succeeded(when + ".map_by_address", "secondary") && arrived(".dma_to_shared_memory") &&
           arrived(".dma_to_new_memory");
}

void judge_survival(Report& report, bool nvme) {
    report.control("survival", "control.everything_worked_before", all_works(report, "before", nvme),
                   all_works(report, "before", nvme), "registers, mapping and DMA, while the primary lived");
    const bool survives = all_works(report, "after", nvme);
    report.answer("survival", survives ? "all" : "not_all",
                  survives
                      ? "After the primary's end the secondary goes on as before: register reads, mappings of more "
                        "memory, and DMA to memory that the primary had mapped, on the queue that it had started. The "
                        "kernel's objects live as long as their descriptors."
                      : "Not everything survives the primary's end: compare \"before\" with \"after\".");
}

void judge_restart(Report& report, bool nvme) {
    const auto arrived = [&](const char* name) {
        const Observation* const seen = report.find(name);
        return !nvme || (seen != nullptr && seen->value == "completed, data arrived");
    };
    const bool anew = report.succeeded("restart.bind_own");
    const bool back = report.succeeded("restart.map_by_file") && arrived("restart.dma_to_new_memory") &&
                      arrived("restart.dma_to_shared_memory");
    const std::string refused = outcome_word(report.find("restart.bind_own")->error.value_or(0));
    if (anew) {
        report.answer("restart", "bind_anew", "A restarted primary can bind the device again beside the secondary.");
    } else if (back) {
        report.answer("restart", "handover",
                      "A restart of the primary is a handover: binding anew is refused (" + refused +
                          ") while the secondary lives, but given the descriptors back it goes on with the running "
                          "controller. Once all descriptors are closed the device is free, and reset.");
    } else {
        report.answer("restart", "fatal",
                      "A restart of the primary is fatal: it can neither bind anew (" + refused +
                          ") nor go on with the descriptors given back.");
    }
}

/// Gives everything to the restarted primary, and lets go of it.
Result<void> give_back(Report& report, const Requests& requests, std::optional<Delegation>& given,
                       std::optional<DmaWitness>& witness, const std::string& socket,
                       const std::vector<std::uint32_t>& admitted, std::chrono::milliseconds patience) {
    Result<Listener> listener = Listener::open(requests.system(), socket, admitted);
    if (!listener) {
        return tl::unexpected{listener.error()};
    }
    Result<Channel> restarted = listener->accept(patience);
    if (!restarted) {
        return tl::unexpected{restarted.error()};
    }
    const Result<Identity> who = introduce(report, requests.system(), *restarted, "secondary", "restarted");
    if (!who) {
        return tl::unexpected{who.error()};
    }
    Result<void> sent =
        given->pass_on(*restarted, {{"queue", witness ? witness->state().json() : DmaWitness::State{}.json()}});
    if (!sent) {
        return sent;
    }
    const Result<Message> took = restarted->expect("took");
    Result<void> taken = took ? take_findings(report, *took) : tl::unexpected{took.error()};
    if (!taken) {
        return taken;
    }
    // Both let go now; what a fresh open finds then is the control of its having been refused before.
    witness.reset();
    given.reset();
    sent = restarted->send("released");
    const Result<Message> anew = sent ? restarted->expect("anew") : tl::unexpected{sent.error()};
    return anew ? take_findings(report, *anew) : tl::unexpected{anew.error()};
}

} // namespace

Result<void> hand_over_and_end(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                               Channel& secondary, const std::function<void()>& end) {
    const Result<Identity> other = introduce(report, requests.system(), secondary, "primary", "secondary");
    if (!other) {
        return tl::unexpected{other.error()};
    }
    const Result<Session> session = open_session(requests, function.vfio_cdev);
    const Result<SharedMemory> memory = make_shared_memory(requests, "upcie-probe-shared", layout::length);
    const Answered<os::Mapping> orphan = requests.anonymous(page);
    if (!session || !memory || !orphan.ok()) {
        return !session  ? tl::unexpected{session.error()}
               : !memory ? tl::unexpected{memory.error()}
                         : fail(orphan.error, "mmap", "a page", "Is there memory left?");
    }
    const int iommufd = session->iommufd.get();
    const auto iova = requests.map_file(iommufd, session->ioas, memory->file.get(), 0, layout::length);
    const auto orphan_iova = requests.map(iommufd, session->ioas, orphan.value.data(), page);
    if (!iova.ok() || !orphan_iova.ok()) {
        return fail(iova.ok() ? orphan_iova.error : iova.error, "mapping", "the shared memory",
                    "Raise RLIMIT_MEMLOCK (ulimit -l).");
    }
    DmaWitness::State state;
    if (function.is_nvme()) {
        Result<DmaWitness> witness = DmaWitness::open(requests, session->device.get(), memory->view.data(), iova.value);
        Result<void> started = witness ? witness->start() : tl::unexpected{witness.error()};
        if (!started) {
            return started;
        }
        const DmaWitness::Sight seen =
            witness->identify(memory->view.data() + layout::scratch, iova.value + layout::scratch);
        report.observe("primary.dma", seen.word());
        state = witness->state();
    }
    Result<void> sent = Delegation::send(secondary, *session, *memory, iova.value, function,
                                         {{"queue", state.json()}, {"orphan_iova", orphan_iova.value}});
    if (!sent) {
        return sent;
    }
    const Result<Message> taken = secondary.expect("taken");
    if (!taken) {
        return tl::unexpected{taken.error()};
    }
    report.answer("part", "handed_over",
                  "The controller runs on; the secondary says what survived this process's end.");
    end();
    return fail(ECANCELED, "ending", "the primary", "It did not end where it had to: this is a fault of the probe.");
}

Result<void> outlive_primary(Report& report, const Requests& requests, Channel& primary,
                             const std::string& handover_socket, const std::vector<std::uint32_t>& admitted) {
    const Result<Identity> other = introduce(report, requests.system(), primary, "secondary", "primary");
    const Result<os::PeerCredentials> peer = primary.peer();
    Result<Message> message = other ? primary.expect("delegate") : tl::unexpected{other.error()};
    Result<Delegation> taken = message ? Delegation::take(*message) : tl::unexpected{message.error()};
    if (!taken || !peer) {
        return tl::unexpected{taken ? peer.error() : taken.error()};
    }
    std::optional<Delegation> given{std::move(*taken)};
    describe_given_device(report, requests.system(), given->bdf);
    const Answered<os::Mapping> shared = requests.map_shared(given->memory_file.get(), 0, given->memory_length);
    if (!shared.ok()) {
        return fail(shared.error, "mmap", "the shared memory", "This is unexpected: run the probe again.");
    }
    std::optional<DmaWitness> witness;
    const bool nvme = given->nvme;
    if (nvme) {
        const Result<DmaWitness::State> state = DmaWitness::State::of(message->data.value("queue", Value{}));
        Result<DmaWitness> opened =
            DmaWitness::open(requests, given->device.get(), shared.value.data(), given->memory_iova);
        if (!state || !opened) {
            return tl::unexpected{state ? opened.error() : state.error()};
        }
        opened->adopt(*state);
        witness.emplace(std::move(*opened));
    }
    Looks looks{report, requests, *given, shared.value, witness ? &*witness : nullptr};
    Result<void> step = looks.look("before");
    if (step) {
        step = primary.send("taken");
    }
    if (step) {
        step = primary.wait_for_end();
    }
    if (!step) {
        return step;
    }
    const Result<void> gone = wait_for_exit(requests.system(), peer->pid, primary.patience());
    report.control("", "control.primary_is_gone", peer->pid > 0 && gone, peer->pid, "process id, by the kernel's word");
    step = looks.look("after");
    if (!step) {
        return step;
    }
    const std::uint64_t orphan = message->data.value("orphan_iova", std::uint64_t{0});
    report.outcome("after.unmap_of_primarys_private_memory",
                   requests.unmap(given->iommufd.get(), given->ioas, orphan, page).error,
                   "ok: the pages of a process that is gone stayed pinned for the device");
    const Answered<os::Fd> own = requests.open(given->cdev);
    report.outcome("after.own_open_of_cdev", own.error, "what this user could open by itself");
    if (own.ok()) {
        const Answered<os::Fd> iommufd = requests.open("/dev/iommu");
        report.outcome("after.bind_of_own_open", requests.bind(own.value.get(), iommufd.value.get()).error);
    }
    judge_survival(report, nvme);
    if (handover_socket.empty()) {
        report.not_seen("restart", "no --handover-socket was given");
        return {};
    }
    step = give_back(report, requests, given, witness, handover_socket, admitted, primary.patience());
    if (step) {
        judge_restart(report, nvme);
    }
    return step;
}

Result<void> be_restarted_primary(Report& report, const Requests& requests, Channel& secondary) {
    const Result<Identity> other = introduce(report, requests.system(), secondary, "restarted", "secondary");
    Result<Message> message = other ? secondary.expect("delegate") : tl::unexpected{other.error()};
    Result<Delegation> given = message ? Delegation::take(*message) : tl::unexpected{message.error()};
    if (!given) {
        return tl::unexpected{given.error()};
    }
    describe_given_device(report, requests.system(), given->bdf);
    const Answered<os::Fd> iommufd = requests.open("/dev/iommu");
    const Answered<os::Fd> device = requests.open(given->cdev);
    report.outcome("restart.open_own", device.error, "the way that the first start went");
    report.outcome("restart.bind_own", requests.bind(device.ok() ? device.value.get() : -1, iommufd.value.get()).error);

    const Answered<os::Mapping> shared = requests.map_shared(given->memory_file.get(), 0, given->memory_length);
    const Result<SharedMemory> memory = make_shared_memory(requests, "upcie-probe-restarted", page);
    if (!shared.ok() || !memory) {
        return memory ? fail(shared.error, "mmap", "the shared memory", "This is unexpected: run the probe again.")
                      : tl::unexpected{memory.error()};
    }
    report.observe("restart.cap", read_cap(requests, given->device.get()), "address");
    const auto mapped = requests.map_file(given->iommufd.get(), given->ioas, memory->file.get(), 0, page);
    report.outcome("restart.map_by_file", mapped.error);
    const Result<DmaWitness::State> state = DmaWitness::State::of(message->data.value("queue", Value{}));
    if (given->nvme && state && mapped.ok()) {
        Result<DmaWitness> witness =
            DmaWitness::open(requests, given->device.get(), shared.value.data(), given->memory_iova);
        if (!witness) {
            return tl::unexpected{witness.error()};
        }
        witness->adopt(*state);
        report.observe("restart.controller_ready", witness->ready());
        report.observe(
            "restart.dma_to_shared_memory",
            witness->identify(shared.value.data() + layout::witness, given->memory_iova + layout::witness).word());
        report.observe("restart.dma_to_new_memory", witness->identify(memory->view.data(), mapped.value).word());
        // It is left running: whether the last close resets it is part of the question.
    }
    given->device.reset();
    given->iommufd.reset();
    Result<void> sent = secondary.send("took", {{"findings", report.share_findings()}});
    const Result<Message> released = sent ? secondary.expect("released") : tl::unexpected{sent.error()};
    if (!released) {
        return tl::unexpected{released.error()};
    }
    Report after{"vfio_delegate", {}, "restarted"};
    const Answered<std::uint32_t> bound = requests.bind(device.ok() ? device.value.get() : -1, iommufd.value.get());
    after.control("restart", "control.bind_own_once_all_are_closed", bound.ok(), outcome_word(bound.error),
                  "the restarted process can bind the device at all", bound.error);
    if (given->nvme && bound.ok()) {
        const Result<DmaWitness> anew = DmaWitness::open(requests, device.value.get(), shared.value.data(), 0);
        after.observe("restart.controller_ready_once_bound_anew", anew ? Value(anew->ready()) : Value(nullptr), {},
                      "false: the last close has reset it");
    }
    return secondary.send("anew", {{"findings", after.share_findings()}});
}

} // namespace upcie::probes
