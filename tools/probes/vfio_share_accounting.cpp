// SPDX-License-Identifier: BSD-3-Clause
// Whose RLIMIT_MEMLOCK is charged: both sides register memory, their own and the other's, by file and by address, until
// the kernel refuses, and both look at what /proc counts for them meanwhile.
#include <algorithm>
#include <cerrno>
#include <set>

#include <fmt/format.h>
#include <linux/capability.h>

#include "session.hpp"
#include "two_processes.hpp"
#include "vfio_share.hpp"

namespace upcie::probes {

namespace {

/// What the primary keeps registered while the secondary fills, to see whether the two share an account.
constexpr std::uint64_t standing_bytes = 4 * fill_chunk;

enum class Side : std::uint8_t { primary, secondary };
const char* word(Side side) noexcept {
    return side == Side::primary ? "primary" : "secondary";
}

/// One filling: who registers, whose memory, how.
struct Turn {
    Side registrar;
    Side owner;
    Way way;
    [[nodiscard]] std::string name(Accounting accounting) const {
        return fmt::format("memlock.{}.{}_registers_{}_memory_{}", probes::word(accounting), word(registrar),
                           registrar == owner ? "its_own" : "the_others", probes::word(way));
    }
};

std::vector<Turn> all_turns(Side registrar) {
    std::vector<Turn> turns;
    for (const Side owner : {Side::primary, Side::secondary}) {
        for (const Way way : {Way::by_file, Way::by_address}) {
            turns.push_back({registrar, owner, way});
        }
    }
    return turns;
}

/// The primary's view of one accounting mode: its session, both sides' memory, and the way to the secondary.
struct Bench {
    const Requests& requests;
    Channel& secondary;
    const Sides& sides;
    Session session;
    SharedMemory own;
    SharedMemory others;
    std::uint64_t span = 0;

    [[nodiscard]] Result<Account> ask_account() const {
        if (Result<void> asked = secondary.send("measure"); !asked) {
            return tl::unexpected{asked.error()};
        }
        const Result<Message> told = secondary.expect("measured");
        return told ? Account::of(told->data) : tl::unexpected{told.error()};
    }
};

Result<void> primary_fills(const Bench& bench, const Turn& turn, FillFacts& facts) {
    os::System& system = bench.requests.system();
    const Result<Account> before = bench.ask_account();
    const Result<Account> own_before = Account::now(system);
    Filling filling{bench.requests, bench.session.iommufd.get(), bench.session.ioas};
    filling.fill(turn.owner == Side::primary ? bench.own : bench.others, turn.way, bench.span);
    facts.accepted = filling.accepted();
    facts.error = filling.error();
    const Result<Account> own_during = Account::now(system);
    const Result<Account> during = bench.ask_account();
    for (const auto* one : {&before, &own_before, &own_during, &during}) {
        if (!*one) {
            return tl::unexpected{one->error()};
        }
    }
    facts.secondary_before = *before;
    facts.primary_before = *own_before;
    facts.primary_during = *own_during;
    facts.secondary_during = *during;
    return {};
}

Result<void> secondary_fills(const Bench& bench, const Turn& turn, FillFacts& facts) {
    os::System& system = bench.requests.system();
    const Result<Account> own_before = Account::now(system);
    if (!own_before) {
        return tl::unexpected{own_before.error()};
    }
    Result<void> sent = bench.secondary.send(
        "fill", {{"own", turn.owner == Side::secondary}, {"by_file", turn.way == Way::by_file}, {"most", bench.span}});
    if (!sent) {
        return sent;
    }
    const Result<Message> filled = bench.secondary.expect("filled");
    const Result<Account> own_during = Account::now(system);
    if (!filled || !own_during) {
        return tl::unexpected{filled ? own_during.error() : filled.error()};
    }
    facts.accepted = filled->data.value("accepted", std::uint64_t{0});
    facts.error = filled->data.value("error", EPROTO);
    const Result<Account> before = Account::of(filled->data.value("before", Value{}));
    const Result<Account> during = Account::of(filled->data.value("during", Value{}));
    if (!before || !during) {
        return tl::unexpected{before ? during.error() : before.error()};
    }
    facts.primary_before = *own_before;
    facts.primary_during = *own_during;
    facts.secondary_before = *before;
    facts.secondary_during = *during;
    if (Result<void> asked = bench.secondary.send("clear"); !asked) {
        return asked;
    }
    const Result<Message> cleared = bench.secondary.expect("cleared");
    return cleared ? Result<void>{} : tl::unexpected{cleared.error()};
}

Result<FillFacts> run(const Bench& bench, const Turn& turn) {
    FillFacts facts;
    facts.primary_limit = bench.sides.primary.memlock;
    facts.secondary_limit = bench.sides.secondary.memlock;
    Result<void> done =
        turn.registrar == Side::primary ? primary_fills(bench, turn, facts) : secondary_fills(bench, turn, facts);
    return done ? Result<FillFacts>{facts} : tl::unexpected{done.error()};
}

Value growth(std::uint64_t before, std::uint64_t during) {
    return static_cast<std::int64_t>(during) - static_cast<std::int64_t>(before);
}

void tell(Report& report, const std::string& name, const FillFacts& facts) {
    report.outcome(name + ".outcome", facts.error);
    report.observe(name + ".accepted", facts.accepted, "bytes");
    report.observe(name + ".primary_VmPin", growth(facts.primary_before.pinned, facts.primary_during.pinned), "bytes");
    report.observe(name + ".secondary_VmPin", growth(facts.secondary_before.pinned, facts.secondary_during.pinned),
                   "bytes");
    report.observe(name + ".primary_VmLck", growth(facts.primary_before.locked, facts.primary_during.locked), "bytes");
    report.observe(name + ".secondary_VmLck", growth(facts.secondary_before.locked, facts.secondary_during.locked),
                   "bytes");
    report.observe(name + ".pinned_on", pinned_on(facts));
    report.observe(name + ".locked_on", locked_on(facts));
    report.observe(name + ".limited_by", limited_by(facts));
}

/// Whether what the primary has registered leaves the secondary less.
Result<void> look_for_one_account(Report& report, const Bench& bench, Accounting accounting) {
    Filling standing{bench.requests, bench.session.iommufd.get(), bench.session.ioas};
    standing.fill(bench.own, Way::by_file, standing_bytes);
    const Turn turn{Side::secondary, Side::secondary, Way::by_file};
    const Result<FillFacts> beside = run(bench, turn);
    if (!beside) {
        return tl::unexpected{beside.error()};
    }
    const std::string name = fmt::format("memlock.{}", probes::word(accounting));
    report.observe(name + ".primarys_standing", standing.accepted(), "bytes", "registered by the primary meanwhile");
    report.observe(name + ".secondary_accepted_beside_it", beside->accepted, "bytes");
    return {};
}

/// All values that observations "memlock.*.<registrar>_registers_*.<what>" have; empty when there are none.
std::set<std::string> words_of(const Report& report, Side registrar, const ShareOptions& options, const char* what) {
    std::set<std::string> words;
    for (const Accounting accounting : options.accountings) {
        for (const Turn& turn : all_turns(registrar)) {
            if (const Observation* const seen = report.find(turn.name(accounting) + "." + what)) {
                words.insert(seen->value.is_string() ? seen->value.get<std::string>() : "?");
            }
        }
    }
    return words;
}

std::string joined(const std::set<std::string>& words) {
    return words.empty() ? "nobody" : fmt::format("{}", fmt::join(words, " or "));
}

void judge_registrar(Report& report, Side registrar, const Identity& identity, const ShareOptions& options) {
    const std::string topic = fmt::format("memlock_of_what_the_{}_registers", word(registrar));
    report.control(topic, fmt::format("control.{}_lacks_cap_ipc_lock", word(registrar)),
                   !identity.capable(CAP_IPC_LOCK), !identity.capable(CAP_IPC_LOCK),
                   "with that capability (root has it) no limit applies, and nothing can be told about limits");
    const bool within_reach = identity.memlock && *identity.memlock < options.span;
    report.control(topic, fmt::format("control.{}_limit_within_reach", word(registrar)), within_reach,
                   identity.memlock ? Value(*identity.memlock) : Value("unlimited"),
                   fmt::format("its RLIMIT_MEMLOCK is below the {} bytes that it tries to register", options.span));
    const std::set<std::string> limits = words_of(report, registrar, options, "limited_by");
    const std::set<std::string> accounts = words_of(report, registrar, options, "pinned_on");
    const std::string answer = limits.size() == 1 ? "limit_of_" + *limits.begin() : "differs";
    report.answer(
        topic, answer,
        fmt::format("What the {} registers, its own memory and the other's, by file and by address, is counted as "
                    "pinned (VmPin) on the {}; the RLIMIT_MEMLOCK that bounds it is that of: {}.",
                    word(registrar), joined(accounts), joined(limits)));
}

void judge_accounts(Report& report, const Sides& sides, Accounting accounting) {
    const std::string name = fmt::format("memlock.{}", probes::word(accounting));
    const std::string topic = fmt::format("accounting_{}", probes::word(accounting));
    const Turn turn{Side::secondary, Side::secondary, Way::by_file};
    const Observation* const alone = report.find(turn.name(accounting) + ".accepted");
    const Observation* const beside = report.find(name + ".secondary_accepted_beside_it");
    const Observation* const standing = report.find(name + ".primarys_standing");
    if (alone == nullptr || beside == nullptr || standing == nullptr) {
        return; // this mode could not be set, which its own observation says
    }
    report.control(topic, "control.both_are_charged",
                   !sides.primary.capable(CAP_IPC_LOCK) && !sides.secondary.capable(CAP_IPC_LOCK) &&
                       !report.succeeded(turn.name(accounting) + ".outcome"),
                   nullptr, "neither side has CAP_IPC_LOCK, and the secondary meets a limit");
    const bool one = alone->value.get<std::uint64_t>() >= beside->value.get<std::uint64_t>() + standing_bytes;
    const bool same_user = sides.primary.effective_uid == sides.secondary.effective_uid;
    report.answer(
        topic, one ? "one_account" : "separate_accounts",
        fmt::format("With {} accounting, two processes of {} user{} {}.",
                    accounting == Accounting::per_user ? "per-user" : "per-process",
                    same_user ? "the same" : "distinct", same_user ? "" : "s",
                    one ? "share one account: what one registers leaves less for the other"
                        : "have accounts of their own: what one registers leaves the other all of its limit"));
}

} // namespace

Result<void> look_at_accounting(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                Channel& secondary, const Sides& sides, Accounting accounting,
                                const ShareOptions& options) {
    const std::string name = fmt::format("memlock.{}", word(accounting));
    // Per user is what the kernel does unasked; asking for it would need a capability for nothing.
    const std::optional<std::uint64_t> mode =
        accounting == Accounting::per_user ? std::nullopt : std::optional<std::uint64_t>{1};
    Result<Session> session = open_session(requests, function.vfio_cdev, mode);
    if (!session && session.error().operation == "IOMMU_OPTION_RLIMIT_MODE") {
        report.outcome(name + ".set_mode", session.error().code, "it takes CAP_SYS_RESOURCE");
        return {};
    }
    if (!session) {
        return tl::unexpected{session.error()};
    }
    report.outcome(name + ".set_mode", 0, mode ? "" : "what the kernel does unasked");
    const Answered<std::uint64_t> says = requests.rlimit_mode(session->iommufd.get());
    report.observe(name + ".mode", says.ok() ? Value(says.value) : Value(outcome_word(says.error)), {},
                   "IOMMU_OPTION_RLIMIT_MODE: 0 per user, 1 per process");

    Result<SharedMemory> own = make_shared_memory(requests, "upcie-probe-primary", options.span);
    if (!own) {
        return tl::unexpected{own.error()};
    }
    Result<void> sent = secondary.send("accounting", {{"ioas", session->ioas}, {"span", options.span}},
                                       {session->iommufd.get(), own->file.get()});
    if (!sent) {
        return sent;
    }
    Result<Message> ready = secondary.expect("ready");
    if (!ready || ready->fds.size() != 1) {
        return ready ? fail(EPROTO, "exchanging memory", "the secondary", "Use the same build on both sides.")
                     : tl::unexpected{ready.error()};
    }
    Answered<os::Mapping> view = requests.map_shared(ready->fds[0].get(), 0, options.span);
    if (!view.ok()) {
        return fail(view.error, "mmap", "the secondary's memory", "Is there memory left?");
    }
    SharedMemory others{std::move(ready->fds[0]), std::move(view.value)};
    const Bench bench{requests,        secondary,         sides,       std::move(*session),
                      std::move(*own), std::move(others), options.span};
    for (const Side registrar : {Side::primary, Side::secondary}) {
        for (const Turn& turn : all_turns(registrar)) {
            const Result<FillFacts> facts = run(bench, turn);
            if (!facts) {
                return tl::unexpected{facts.error()};
            }
            tell(report, turn.name(accounting), *facts);
        }
    }
    if (Result<void> looked = look_for_one_account(report, bench, accounting); !looked) {
        return looked;
    }
    sent = secondary.send("end");
    if (!sent) {
        return sent;
    }
    const Result<Message> closed = secondary.expect("closed");
    return closed ? Result<void>{} : tl::unexpected{closed.error()};
}

Result<void> serve_accounting(const Requests& requests, Channel& primary, Message& opening) {
    const std::uint64_t span = opening.data.value("span", std::uint64_t{0});
    const std::uint32_t ioas = opening.data.value("ioas", std::uint32_t{0});
    if (opening.fds.size() != 2 || span == 0) {
        return fail(EPROTO, "starting the accounting", "the primary", "Use the same build on both sides.");
    }
    const os::Fd iommufd = std::move(opening.fds[0]);
    Answered<os::Mapping> view = requests.map_shared(opening.fds[1].get(), 0, span);
    Result<SharedMemory> own = make_shared_memory(requests, "upcie-probe-secondary", span);
    if (!view.ok() || !own) {
        return view.ok() ? tl::unexpected{own.error()}
                         : fail(view.error, "mmap", "the primary's memory", "Is there memory left?");
    }
    const SharedMemory theirs{std::move(opening.fds[1]), std::move(view.value)};
    Result<void> sent = primary.send("ready", Value::object(), {own->file.get()});
    Filling filling{requests, iommufd.get(), ioas};
    while (sent) {
        const Result<Message> task = primary.receive();
        if (!task) {
            return tl::unexpected{task.error()};
        }
        const Result<Account> before = Account::now(requests.system());
        if (!before) {
            return tl::unexpected{before.error()};
        }
        if (task->type == "measure") {
            sent = primary.send("measured", before->json());
        } else if (task->type == "fill") {
            filling.fill(task->data.value("own", true) ? *own : theirs,
                         task->data.value("by_file", true) ? Way::by_file : Way::by_address,
                         std::min(span, task->data.value("most", std::uint64_t{0})));
            const Result<Account> during = Account::now(requests.system());
            if (!during) {
                return tl::unexpected{during.error()};
            }
            sent = primary.send("filled", {{"accepted", filling.accepted()},
                                           {"error", filling.error()},
                                           {"before", before->json()},
                                           {"during", during->json()}});
        } else if (task->type == "clear") {
            filling.clear();
            sent = primary.send("cleared");
        } else if (task->type == "end") {
            break;
        } else {
            return fail(EPROTO, "reading a message", task->type, "Use the same build on both sides.");
        }
    }
    return sent;
}

void judge_accounting(Report& report, const Sides& sides, const ShareOptions& options) {
    const auto& one = sides.primary.memlock;
    const auto& other = sides.secondary.memlock;
    const bool apart =
        one != other && (!one || !other || std::max(*one, *other) - std::min(*one, *other) > 2 * fill_chunk);
    for (const Side side : {Side::primary, Side::secondary}) {
        report.control(
            fmt::format("memlock_of_what_the_{}_registers", word(side)), "control.limits_differ", apart, apart,
            "the two sides' RLIMIT_MEMLOCK are more than 2 MiB apart, so that one cannot pass for the other");
    }
    judge_registrar(report, Side::primary, sides.primary, options);
    judge_registrar(report, Side::secondary, sides.secondary, options);
    for (const Accounting accounting : options.accountings) {
        judge_accounts(report, sides, accounting);
    }
}

} // namespace upcie::probes
