// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>

#include <fcntl.h>

#include <upcie/os/fd.hpp>

#include "commands.hpp"
#include "device.hpp"
#include "fill.hpp"
#include "hexdump.hpp"
#include "interruption.hpp"
#include "mover.hpp"
#include "progress.hpp"

namespace upcie::cli {

namespace {

struct CopyOptions {
    DeviceChoice device;
    MoveOptions move;
    std::uint64_t lba = 0;
    std::uint64_t blocks = 1;
    std::string file;
    std::string pattern;
    std::uint64_t seed = 1;
    bool seed_given = false;
    bool destructive = false;
};

/// A subcommand's parts that both have.
struct Work {
    Session session;
    Target target;
    BlockRange range;
};

nvme::ControllerOptions controller_options(const CopyOptions& options) {
    nvme::ControllerOptions controller;
    controller.interrupt_vectors = vectors_for(options.move.interrupt, 1);
    return controller;
}

Outcome<Work> prepare(Context& context, Report& report, const CopyOptions& options) {
    auto session = open_session(context, report, options.device, controller_options(options));
    if (!session) {
        return tl::unexpected{std::move(session.error())};
    }
    auto target = choose_namespace(*session, options.device);
    if (!target) {
        return tl::unexpected{std::move(target.error())};
    }
    return Work{std::move(*session), std::move(*target), {}};
}

void say_range(Report& report, const Work& work, const MemoryChoice& memory) {
    report.result()["nsid"] = work.target.info.nsid.value();
    report.result()["block_size"] = work.target.block_size();
    report.result()["lba"] = work.range.first;
    report.result()["blocks"] = work.range.count;
    report.result()["bytes"] = work.range.count * work.target.block_size();
    report.result()["memory"] = memory.host() ? "host" : memory.name;
}

Result<os::Fd> create_file(os::System& system, const std::string& path) {
    constexpr mode_t readable_by_all = 0644;
    const int fd = system.open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, readable_by_all);
    if (fd < 0) {
        const int code = errno;
        return fail(code, "create", path, "Name a file in a folder that exists and may be written to.");
    }
    return os::Fd{system, fd};
}

Result<void> write_all(os::System& system, int fd, std::span<const std::byte> data, std::uint64_t offset,
                       const std::string& name) {
    while (!data.empty()) {
        const ssize_t put = system.pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
        if (put < 0) {
            const int code = errno;
            return fail(code, "write", name, "What was read from the device does not fit there.");
        }
        data = data.subspan(static_cast<std::size_t>(put));
        offset += static_cast<std::uint64_t>(put);
    }
    return {};
}

/// Transfers in ascending order over a range.
class Ascending {
  public:
    Ascending(BlockRange range, std::uint32_t blocks_per_command, nvme::IoOpcode opcode)
        : next_{range.first}, end_{range.first + range.count}, step_{blocks_per_command}, opcode_{opcode} {}

    std::optional<Transfer> operator()() {
        if (next_ == end_) {
            return std::nullopt;
        }
        const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(step_, end_ - next_));
        const Transfer transfer{opcode_, next_, blocks};
        next_ += blocks;
        return transfer;
    }

  private:
    std::uint64_t next_;
    std::uint64_t end_;
    std::uint32_t step_;
    nvme::IoOpcode opcode_;
};

ExitCode read(Context& context, CopyOptions options) {
    Report report{context, "read"};
    const Interruption interruption;
    const bool to_file = !options.file.empty();
    if (!to_file) {
        options.move.depth = 1; // a dump is printed in order
    }
    auto work = prepare(context, report, options);
    if (!work) {
        return report.fail(work.error().error, work.error().code);
    }
    const auto range = choose_range(work->target, options.lba, options.blocks);
    if (!range) {
        return report.fail(range.error().error, range.error().code);
    }
    work->range = *range;
    say_range(report, *work, options.move.into);
    constexpr std::uint64_t largest_dump = 1 << 20;
    if (!to_file && work->range.count * work->target.block_size() > largest_dump) {
        return report.fail(
            fail(EFBIG, "read", options.device.name, "More than 1 MiB is not dumped: name a file with --output.")
                .value(),
            ExitCode::usage);
    }
    os::Fd file;
    if (to_file) {
        auto opened = create_file(context.system, options.file);
        if (!opened) {
            return report.fail(opened.error(), ExitCode::precondition);
        }
        file = std::move(*opened);
    }
    auto mover = Mover::create(context, work->session, work->target, options.move);
    if (!mover) {
        return report.fail(mover.error().error, mover.error().code);
    }
    Ascending order{work->range, mover->blocks_per_command(), nvme::IoOpcode::read};
    std::string hex;
    std::uint64_t moved = 0;
    Progress progress{context.err, Progress::on_terminal()};
    const auto done = [&](const Transfer& transfer, Landed& landed,
                          const nvme::Completion& completion) -> Result<void> {
        if (auto ok = must_succeed(transfer, completion, work->target); !ok) {
            return ok;
        }
        const auto data = landed.bytes();
        if (!data) {
            return tl::unexpected{data.error()};
        }
        const std::uint64_t offset = (transfer.lba - work->range.first) * work->target.block_size();
        if (to_file) {
            if (progress.due()) {
                progress.show(fmt::format("upcie: read {} of {} blocks", moved, work->range.count));
            }
            auto written = write_all(context.system, file.get(), *data, offset, options.file);
            moved += written ? transfer.blocks : 0;
            return written;
        }
        moved += transfer.blocks;
        if (report.json()) {
            append_hex(hex, *data);
        } else {
            hexdump(context.out, *data, transfer.lba * work->target.block_size());
        }
        return {};
    };
    const auto ran = mover->run([&](std::span<std::byte>) { return order(); }, done);
    progress.finish();
    report.result()["blocks_done"] = moved;
    if (!to_file) {
        report.result()["data"] = hex; // as far as it came
    }
    if (!ran) {
        return report.fail(ran.error());
    }
    if (to_file) {
        report.result()["file"] = options.file;
        report.line("read {} blocks of {} bytes from LBA {} into {}", work->range.count, work->target.block_size(),
                    work->range.first, options.file);
    }
    return report.finish();
}

ExitCode write(Context& context, const CopyOptions& options) {
    Report report{context, "write"};
    const Interruption interruption;
    if (options.file.empty() == options.pattern.empty()) {
        return report.fail(fail(EINVAL, "write", options.device.name, "Say --input FILE or --pattern PATTERN.").value(),
                           ExitCode::usage);
    }
    if (options.seed_given && options.pattern != "stamp") {
        return report.fail(fail(EINVAL, "write", options.device.name, "--seed is for --pattern stamp alone.").value(),
                           ExitCode::usage);
    }
    if (const auto allowed = allow_destruction(options.device, options.destructive, "write"); !allowed) {
        return report.fail(allowed.error().error, allowed.error().code);
    }
    auto work = prepare(context, report, options);
    if (!work) {
        return report.fail(work.error().error, work.error().code);
    }
    auto source = options.file.empty()
                      ? Fill::pattern(options.pattern, options.seed, work->target)
                      : Fill::file(context.system, options.file, options.lba, work->target.block_size());
    if (!source) {
        return report.fail(source.error(), options.file.empty() ? ExitCode::usage : ExitCode::precondition);
    }
    const std::uint64_t blocks = source->file_blocks().value_or(options.blocks);
    const auto range = choose_range(work->target, options.lba, blocks);
    if (!range) {
        return report.fail(range.error().error, range.error().code);
    }
    work->range = *range;
    say_range(report, *work, options.move.into);
    auto mover = Mover::create(context, work->session, work->target, options.move);
    if (!mover) {
        return report.fail(mover.error().error, mover.error().code);
    }
    Ascending order{work->range, mover->blocks_per_command(), nvme::IoOpcode::write};
    std::uint64_t moved = 0;
    std::optional<Error> source_error;
    Progress progress{context.err, Progress::on_terminal()};
    const auto next = [&](std::span<std::byte> memory) -> std::optional<Transfer> {
        const auto transfer = order();
        if (!transfer) {
            return std::nullopt;
        }
        const auto bytes = std::size_t{transfer->blocks} * work->target.block_size();
        if (auto filled = source->fill(memory.first(bytes), transfer->lba); !filled) {
            source_error = filled.error();
            return std::nullopt;
        }
        return transfer;
    };
    const auto done = [&](const Transfer& transfer, Landed&, const nvme::Completion& completion) {
        moved += completion.ok() ? transfer.blocks : 0;
        if (progress.due()) {
            progress.show(fmt::format("upcie: wrote {} of {} blocks", moved, work->range.count));
        }
        return must_succeed(transfer, completion, work->target);
    };
    auto ran = mover->run(next, done);
    progress.finish();
    if (ran && source_error) {
        ran = tl::unexpected{*source_error};
    }
    if (ran) {
        ran = mover->flush();
    }
    report.result()["blocks_done"] = moved;
    if (!ran) {
        return report.fail(ran.error());
    }
    report.line("wrote {} blocks of {} bytes from LBA {} on, and flushed", work->range.count, work->target.block_size(),
                work->range.first);
    return report.finish();
}

} // namespace

void add_read(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<CopyOptions>();
    auto* command = app.add_subcommand("read", "Read blocks into a file, or show them");
    add_device_options(*command, options->device);
    add_namespace_option(*command, options->device);
    command->add_option("--lba", options->lba, "First block")->capture_default_str()->type_name("LBA");
    command->add_option("--blocks", options->blocks, "How many; 0: to the end")->capture_default_str()->type_name("N");
    command->add_option("--output", options->file, "File to write; without it the blocks are dumped")
        ->type_name("FILE");
    add_move_options(*command, options->move);
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, options] { action = [&context, options] { return read(context, *options); }; });
}

void add_write(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<CopyOptions>();
    auto* command = app.add_subcommand("write", "Write blocks from a file or a pattern (destroys what was there)");
    add_device_options(*command, options->device);
    add_namespace_option(*command, options->device);
    command->add_option("--lba", options->lba, "First block")->capture_default_str()->type_name("LBA");
    auto* const blocks = command->add_option("--blocks", options->blocks, "How many, of a pattern; 0: to the end")
                             ->capture_default_str()
                             ->type_name("N");
    auto* const input =
        command
            ->add_option("--input", options->file, "File to read, all of it; its last block is filled up with zeroes")
            ->type_name("FILE");
    input->excludes(blocks);
    command->add_option("--pattern", options->pattern, "zero, ones, a byte (0xa5), or stamp (what verify writes)")
        ->type_name("PATTERN")
        ->excludes(input);
    auto* const seed =
        command->add_option("--seed", options->seed, "Seed of --pattern stamp")->capture_default_str()->type_name("N");
    add_destructive_flag(*command, options->destructive);
    add_move_options(*command, options->move);
    add_json_flag(*command, context);
    command->callback([&context, &action, options, seed] {
        options->seed_given = seed->count() > 0;
        action = [&context, options] { return write(context, *options); };
    });
}

} // namespace upcie::cli
