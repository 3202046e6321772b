// SPDX-License-Identifier: BSD-3-Clause
#include "verify.hpp"

#include <algorithm>
#include <memory>
#include <random>

#include <upcie/gpu/checksum.hpp>
#include <upcie/nvme/command_error.hpp>

#include "commands.hpp"
#include "interruption.hpp"

namespace upcie::cli {

namespace {

/// A run in progress: what all its phases share.
struct Run {
    Context& context;
    Report& report;
    const VerifyOptions& options;
    Session session;
    Target target;
    BlockRange range;
    Mover mover;
    VerifyTally tally;
    Progress progress;
    Stamp stamp; ///< of the pass at hand; the LBA is filled in for each block

    [[nodiscard]] std::string subject() const { return fmt::format("namespace {}", target.info.nsid.value()); }
    [[nodiscard]] std::uint64_t commands() const {
        const std::uint64_t step = mover.blocks_per_command();
        return (range.count + step - 1) / step;
    }
    [[nodiscard]] Transfer transfer(std::uint64_t index, nvme::IoOpcode opcode) const {
        const std::uint64_t step = mover.blocks_per_command();
        const std::uint64_t first = index * step;
        return {opcode, range.first + first, static_cast<std::uint32_t>(std::min(step, range.count - first))};
    }
    [[nodiscard]] Stamp expected(std::uint64_t lba) const {
        Stamp result = stamp;
        result.lba = lba;
        return result;
    }
    void show(std::string_view phase, std::uint64_t done) {
        if (progress.due()) {
            progress.show(fmt::format("upcie: {} pass {}: {} of {} blocks, {} bad", phase, stamp.pass, done,
                                      range.count, tally.bad()));
        }
    }
};

Result<void> write_phase(Run& run) {
    // Another order than that of reading, so that an error of the order does not hide in both.
    BlockOrder order{run.commands(), run.options.random, run.stamp.seed ^ run.stamp.pass};
    const std::uint32_t block_size = run.target.block_size();
    std::uint64_t written = 0;
    const auto next = [&](std::span<std::byte> memory) -> std::optional<Transfer> {
        const auto index = order.next();
        if (!index) {
            return std::nullopt;
        }
        const Transfer transfer = run.transfer(*index, nvme::IoOpcode::write);
        for (std::uint32_t i = 0; i < transfer.blocks; ++i) {
            write_stamp(memory.subspan(std::size_t{i} * block_size, block_size), run.expected(transfer.lba + i));
        }
        return transfer;
    };
    const auto done = [&](const Transfer& transfer, Landed&, const nvme::Completion& completion) -> Result<void> {
        written += transfer.blocks;
        run.show("writing", written);
        if (!completion.ok()) {
            run.tally.failed(transfer, nvme::to_error(completion, describe(transfer), run.subject()));
        }
        return {};
    };
    if (auto ran = run.mover.run(next, done); !ran) {
        return ran;
    }
    return run.mover.flush();
}

/// Whether the device itself, where it can, finds its memory to be as it must: by the checksum of all of it. What it
/// does not find so is looked at block by block on the host.
Result<bool> is_good_on_device(const Run& run, const Transfer& transfer, const Landed& landed,
                               std::vector<std::byte>& expectation) {
    const auto found = landed.checksum_on_device();
    if (!found) {
        return tl::unexpected{found.error()};
    }
    if (!*found) {
        return false;
    }
    const std::size_t block_size = run.target.block_size();
    expectation.resize(block_size * transfer.blocks);
    for (std::uint32_t i = 0; i < transfer.blocks; ++i) {
        write_stamp(std::span{expectation}.subspan(i * block_size, block_size), run.expected(transfer.lba + i));
    }
    return **found == gpu::checksum(expectation);
}

Result<void> read_phase(Run& run) {
    std::vector<std::byte> expectation;
    BlockOrder order{run.commands(), run.options.random, run.stamp.seed + run.stamp.pass};
    const std::uint32_t block_size = run.target.block_size();
    std::uint64_t seen = 0;
    const auto next = [&](std::span<std::byte> memory) -> std::optional<Transfer> {
        const auto index = order.next();
        if (!index) {
            return std::nullopt;
        }
        poison(memory);
        return run.transfer(*index, nvme::IoOpcode::read);
    };
    const auto done = [&](const Transfer& transfer, Landed& landed,
                          const nvme::Completion& completion) -> Result<void> {
        if (!completion.ok()) {
            run.tally.failed(transfer, nvme::to_error(completion, describe(transfer), run.subject()));
            return {};
        }
        seen += transfer.blocks;
        const auto good = is_good_on_device(run, transfer, landed, expectation);
        if (!good) {
            return tl::unexpected{good.error()};
        }
        if (*good) {
            run.tally.good_on_device(transfer.blocks);
        } else {
            const auto data = landed.bytes();
            if (!data) {
                return tl::unexpected{data.error()};
            }
            for (std::uint32_t i = 0; i < transfer.blocks; ++i) {
                run.tally.judge(data->subspan(std::size_t{i} * block_size, block_size), run.expected(transfer.lba + i));
            }
        }
        run.show("reading", seen);
        return {};
    };
    return run.mover.run(next, done);
}

/// Reads each bad block once more, alone: the same again says that the medium has it, a good one that the first
/// transfer went wrong.
Result<void> read_again(Run& run, std::size_t from) {
    auto& bad = run.tally.bad_blocks();
    std::size_t next_index = from;
    const auto next = [&](std::span<std::byte> memory) -> std::optional<Transfer> {
        if (next_index == bad.size()) {
            return std::nullopt;
        }
        poison(memory);
        return Transfer{nvme::IoOpcode::read, bad[next_index++].lba, 1};
    };
    const auto done = [&](const Transfer& transfer, Landed& landed,
                          const nvme::Completion& completion) -> Result<void> {
        const auto entry = std::find_if(bad.begin() + static_cast<std::ptrdiff_t>(from), bad.end(),
                                        [&](const auto& b) { return b.lba == transfer.lba; });
        if (!completion.ok()) {
            entry->again = "a second read fails";
            return {};
        }
        const auto data = landed.bytes();
        if (!data) {
            return tl::unexpected{data.error()};
        }
        const auto second = judge_block(*data, run.expected(transfer.lba));
        const auto& first = entry->finding;
        if (second.verdict == BlockVerdict::good) {
            entry->again = "a second read is good: the transfer was at fault, not the medium";
        } else if (second.verdict == first.verdict && second.first_bad_byte == first.first_bad_byte &&
                   second.found == first.found) {
            entry->again = "a second read shows the same";
        } else {
            entry->again = fmt::format("a second read differs: {}", to_string(second.verdict));
        }
        return {};
    };
    return run.mover.run(next, done);
}

/// Seed and pass that were not given are those of the first block, where that is stamped.
Result<std::string> adopt_stamp(Run& run) {
    std::optional<Stamp> found;
    bool given = false;
    const auto next = [&](std::span<std::byte> memory) -> std::optional<Transfer> {
        if (std::exchange(given, true)) {
            return std::nullopt;
        }
        poison(memory);
        return Transfer{nvme::IoOpcode::read, run.range.first, 1};
    };
    const auto done = [&](const Transfer& transfer, Landed& landed,
                          const nvme::Completion& completion) -> Result<void> {
        if (!completion.ok()) {
            return tl::unexpected{nvme::to_error(completion, describe(transfer), run.subject())};
        }
        const auto data = landed.bytes();
        if (!data) {
            return tl::unexpected{data.error()};
        }
        found = read_stamp(*data);
        return {};
    };
    if (auto ran = run.mover.run(next, done); !ran) {
        return tl::unexpected{ran.error()};
    }
    if (!found) {
        return fmt::format("LBA {} carries no stamp to take the seed from; --seed names the run that is looked for",
                           run.range.first);
    }
    if (!run.options.seed_given) {
        run.stamp.seed = found->seed;
    }
    if (!run.options.pass_given) {
        run.stamp.pass = found->pass;
    }
    return fmt::format("taken from LBA {}", run.range.first);
}

Json to_json(const VerifyTally::Bad& bad) {
    Json entry{{"lba", bad.lba}, {"verdict", to_string(bad.finding.verdict)}, {"text", bad.text}};
    if (bad.finding.found) {
        const auto& found = *bad.finding.found;
        entry["found"] = Json{{"seed", found.seed},
                              {"nsid", found.nsid},
                              {"block_size", found.block_size},
                              {"lba", found.lba},
                              {"pass", found.pass}};
    }
    if (bad.finding.bad_bytes != 0) {
        entry["first_bad_byte"] = bad.finding.first_bad_byte;
        entry["bad_bytes"] = bad.finding.bad_bytes;
    }
    if (!bad.again.empty()) {
        entry["again"] = bad.again;
    }
    return entry;
}

/// What was found, for people and in the document.
void tell(Run& run) {
    run.progress.finish();
    auto& tally = run.tally;
    Json& result = run.report.result();
    Json counts;
    for (std::size_t i = 0; i < block_verdict_count; ++i) {
        const auto verdict = static_cast<BlockVerdict>(i);
        counts[std::string{to_string(verdict)}] = tally.count(verdict);
    }
    result["counts"] = counts;
    result["good_on_device"] = tally.on_device();
    result["failed_blocks"] = tally.failed_blocks();
    result["seconds"] = run.progress.seconds();
    result["bad"] = Json::array();
    for (const auto& bad : tally.bad_blocks()) {
        result["bad"].push_back(to_json(bad));
        run.report.line("BAD  {}{}", bad.text, bad.again.empty() ? "" : "; " + bad.again);
    }
    if (tally.bad() > tally.bad_blocks().size()) {
        run.report.line("     and {} bad blocks more (--findings shows them)", tally.bad() - tally.bad_blocks().size());
    }
    result["failures"] = Json::array();
    for (const auto& failure : tally.failures()) {
        result["failures"].push_back(
            Json{{"lba", failure.lba}, {"blocks", failure.blocks}, {"error", upcie::cli::to_json(failure.error)}});
        run.report.line("FAIL {}", failure.error.message());
    }
}

ExitCode conclude(Run& run) {
    tell(run);
    auto& tally = run.tally;
    const std::string what =
        fmt::format("seed {:#x}, namespace {}, LBA {} to {}", run.stamp.seed, run.target.info.nsid.value(),
                    run.range.first, run.range.first + run.range.count - 1);
    std::string verdict;
    ExitCode code = ExitCode::ok;
    const Error* error = nullptr;
    if (tally.bad() > 0) {
        verdict = fmt::format("BAD DATA: {} of {} blocks read ({}); {}", tally.bad(), tally.bad() + tally.good(),
                              tally.summary(), what);
        code = ExitCode::bad_data;
    } else if (tally.failed_blocks() > 0) {
        verdict = fmt::format("NOT VERIFIED: commands for {} blocks failed; the {} blocks read are good; {}",
                              tally.failed_blocks(), tally.good(), what);
        code = ExitCode::failed;
        error = &tally.failures().front().error;
    } else {
        verdict = fmt::format("GOOD: {} blocks read, all as written; {}", tally.good(), what);
        if (tally.on_device() != 0) {
            verdict += fmt::format("; {} of them checked by the GPU", tally.on_device());
        }
    }
    run.report.result()["verdict"] = verdict;
    run.report.line("{}", verdict);
    return error != nullptr ? run.report.fail(*error, code) : run.report.finish(code);
}

ExitCode fail_run(Run& run, const Error& error) {
    // Bad data found before the device gave up is the more important news.
    if (run.tally.bad() > 0) {
        run.report.note(error.message());
        run.report.result()["stopped_by"] = upcie::cli::to_json(error);
        return conclude(run);
    }
    tell(run);
    return run.report.fail(error);
}

ExitCode verify_with(Run& run) {
    const VerifyOptions& options = run.options;
    Json& result = run.report.result();
    std::string seed_source = options.seed_given ? "given" : "random";
    if (options.read_only && (!options.seed_given || !options.pass_given)) {
        auto adopted = adopt_stamp(run);
        if (!adopted) {
            return fail_run(run, adopted.error());
        }
        seed_source = options.seed_given ? seed_source : *adopted;
    }
    result["seed"] = run.stamp.seed;
    result["seed_source"] = seed_source;
    result["nsid"] = run.stamp.nsid;
    result["block_size"] = run.stamp.block_size;
    result["lba"] = run.range.first;
    result["blocks"] = run.range.count;
    result["read_only"] = options.read_only;
    result["memory"] = options.move.into.host() ? "host" : options.move.into.name;
    run.report.line("seed {:#x} ({}), {} blocks of {} bytes from LBA {}, {} commands of up to {} blocks in flight",
                    run.stamp.seed, seed_source, run.range.count, run.stamp.block_size, run.range.first,
                    run.mover.depth(), run.mover.blocks_per_command());
    const std::uint32_t passes = options.read_only ? 1 : options.passes;
    if (options.pass == 0 || passes - 1 > ~std::uint64_t{0} - options.pass) {
        return run.report.fail(fail(EINVAL, "number the passes",
                                    fmt::format("from {}, {} of them", options.pass, passes),
                                    "Passes count from 1 and must not come round to 0.")
                                   .value(),
                               ExitCode::usage);
    }
    for (std::uint32_t i = 0; i < passes; ++i) {
        if (i > 0) {
            ++run.stamp.pass;
        }
        if (!options.read_only) {
            if (auto written = write_phase(run); !written) {
                return fail_run(run, written.error());
            }
        }
        const std::size_t known = run.tally.bad_blocks().size();
        auto checked = read_phase(run);
        if (checked) {
            checked = read_again(run, known);
        }
        if (!checked) {
            return fail_run(run, checked.error());
        }
        run.report.line("pass {}: {}{} bad so far", run.stamp.pass, options.read_only ? "read, " : "written and read, ",
                        run.tally.bad());
    }
    result["pass"] = run.stamp.pass;
    return conclude(run);
}

ExitCode verify(Context& context, VerifyOptions options) {
    Report report{context, "verify"};
    const Interruption interruption;
    if (!options.read_only) {
        if (const auto allowed = allow_destruction(options.device, options.destructive, "verify"); !allowed) {
            return report.fail(allowed.error().error, allowed.error().code);
        }
    }
    if (!options.seed_given && !options.read_only) {
        std::random_device random;
        options.seed = std::uint64_t{random()} << 32 | random();
    }
    nvme::ControllerOptions controller;
    controller.interrupt_vectors = vectors_for(options.move.interrupt, 1);
    auto session = open_session(context, report, options.device, controller);
    if (!session) {
        return report.fail(session.error().error, session.error().code);
    }
    auto target = choose_namespace(*session, options.device);
    if (!target) {
        return report.fail(target.error().error, target.error().code);
    }
    if (options.blocks == 0 && target->info.size_blocks > options.lba) {
        options.blocks = std::min(VerifyOptions::default_blocks, target->info.size_blocks - options.lba);
    }
    const auto range = choose_range(*target, options.lba, options.blocks);
    if (!range) {
        return report.fail(range.error().error, range.error().code);
    }
    auto mover = Mover::create(context, *session, *target, options.move);
    if (!mover) {
        return report.fail(mover.error().error, mover.error().code);
    }
    const Stamp stamp{options.seed, target->info.nsid.value(), target->block_size(), 0, options.pass};
    Run run{context,
            report,
            options,
            std::move(*session),
            std::move(*target),
            *range,
            std::move(*mover),
            VerifyTally{options.findings},
            Progress{context.err, Progress::on_terminal()},
            stamp};
    return verify_with(run);
}

} // namespace

void add_verify(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<VerifyOptions>();
    auto* command =
        app.add_subcommand("verify", "Write stamped blocks and check them, or check what was written before");
    add_device_options(*command, options->device);
    add_namespace_option(*command, options->device);
    command->add_option("--lba", options->lba, "First block")->capture_default_str()->type_name("LBA");
    command->add_option("--blocks", options->blocks, "How many; 0: 16384, or to the end where that is nearer")
        ->capture_default_str()
        ->type_name("N");
    auto* seed =
        command
            ->add_option("--seed", options->seed, "Names the run; random, or with --read-only that of the first block")
            ->type_name("N");
    auto* pass = command->add_option("--pass", options->pass, "Number of the first pass; stamps carry it")
                     ->capture_default_str()
                     ->type_name("N");
    auto* const passes =
        command
            ->add_option("--passes", options->passes, "Write and check so often; a block of an earlier pass is stale")
            ->capture_default_str()
            ->check(CLI::Range(1U, 1000000U))
            ->type_name("N");
    command->add_flag("--read-only", options->read_only, "Write nothing: check what an earlier run wrote")
        ->excludes(passes);
    command->add_flag("--random", options->random, "In random order instead of ascending");
    command->add_option("--findings", options->findings, "Describe so many bad blocks one by one")
        ->capture_default_str()
        ->type_name("N");
    add_destructive_flag(*command, options->destructive);
    add_move_options(*command, options->move);
    add_json_flag(*command, context);
    command->callback([&context, &action, options, seed, pass] {
        options->seed_given = seed->count() > 0;
        options->pass_given = pass->count() > 0;
        action = [&context, options] { return verify(context, *options); };
    });
}

} // namespace upcie::cli
