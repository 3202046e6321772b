// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <memory>
#include <system_error>
#include <thread>

#include "bench_worker.hpp"
#include "commands.hpp"
#include "interruption.hpp"
#include "progress.hpp"

namespace upcie::cli {

namespace {

struct BenchOptions {
    DeviceChoice device;
    std::uint32_t depth = 32;
    unsigned queues = 1;
    std::uint64_t bytes = 4096;
    double seconds = 5;
    double timeout_seconds = 30;
    std::uint64_t lba = 0;
    std::uint64_t blocks = 0;
    std::uint64_t seed = 1;
    bool write = false;
    bool sequential = false;
    bool interrupt = false;
    bool destructive = false;
};

using Workers = std::vector<std::unique_ptr<BenchWorker>>;

ExitCode usage(Report& report, const BenchOptions& options, std::string hint) {
    return report.fail(fail(EINVAL, "bench", options.device.name, std::move(hint)).value(), ExitCode::usage);
}

std::uint64_t finished(const Workers& workers) {
    std::uint64_t sum = 0;
    for (const auto& worker : workers) {
        sum += worker->finished();
    }
    return sum;
}

/// Runs every worker in a thread of its own for the time asked; answers the seconds that really passed.
/// Error: EAGAIN (there are not so many threads); then nothing was measured.
Result<double> run_workers(Context& context, const Workers& workers, const BenchOptions& options) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    Progress progress{context.err, Progress::on_terminal()};
    std::atomic<unsigned> running{static_cast<unsigned>(workers.size())};
    std::optional<Error> no_thread;
    for (const auto& worker : workers) {
        try {
            threads.emplace_back([&worker, &stop, &running] {
                worker->run(stop);
                running.fetch_sub(1);
            });
        } catch (const std::system_error& error) {
            no_thread = fail(error.code().value(), "start a thread", fmt::format("queue {}", threads.size() + 1),
                             "Use fewer queues, or allow more threads (ulimit -u).")
                            .value();
            break;
        }
    }
    std::uint64_t before = 0;
    double before_seconds = 0;
    while (!no_thread && running.load() > 0 && progress.seconds() < options.seconds && !Interruption::requested()) {
        const double left = options.seconds - progress.seconds();
        std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(left, 0.0, 0.05)));
        if (progress.due()) {
            const std::uint64_t now = finished(workers);
            const double seconds = progress.seconds();
            progress.show(fmt::format("upcie: {:.0f} of {:.0f} s, {:.0f} IOPS", seconds, options.seconds,
                                      static_cast<double>(now - before) / (seconds - before_seconds)));
            before = now;
            before_seconds = seconds;
        }
    }
    stop = true;
    for (auto& thread : threads) {
        thread.join();
    }
    if (no_thread) {
        return tl::unexpected{std::move(*no_thread)};
    }
    return progress.seconds();
}

Json latency_json(const Histogram& latency) {
    return Json{{"min", latency.least()},
                {"mean", latency.mean()},
                {"p50", latency.percentile(0.5)},
                {"p90", latency.percentile(0.9)},
                {"p99", latency.percentile(0.99)},
                {"p99.9", latency.percentile(0.999)},
                {"p99.99", latency.percentile(0.9999)},
                {"max", latency.most()}};
}

ExitCode conclude(Report& report, const Workers& workers, const BenchOptions& options, const BenchLoad& load,
                  double seconds) {
    Histogram latency;
    std::uint64_t failed = 0;
    std::optional<Error> error;
    for (const auto& worker : workers) {
        latency.merge(worker->latency());
        failed += worker->failed();
        if (!error && worker->error()) {
            error = worker->error();
        }
    }
    const double iops = static_cast<double>(latency.count()) / seconds;
    const double bandwidth = iops * static_cast<double>(options.bytes);
    report.result() = Json{{"operation", options.write ? "write" : "read"},
                           {"order", options.sequential ? "sequential" : "random"},
                           {"completion", options.interrupt ? "interrupt" : "poll"},
                           {"size", options.bytes},
                           {"depth", options.depth},
                           {"queues", options.queues},
                           {"lba", load.range.first},
                           {"blocks", load.range.count},
                           {"seconds", seconds},
                           {"ios", latency.count()},
                           {"failed", failed},
                           {"iops", iops},
                           {"bytes_per_second", bandwidth},
                           {"latency_ns", latency_json(latency)}};
    const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000.0; };
    report.line("{} {}, {} bytes, depth {} on each of {} queue{}, {}", options.sequential ? "sequential" : "random",
                options.write ? "write" : "read", options.bytes, options.depth, options.queues,
                options.queues == 1 ? "" : "s", options.interrupt ? "interrupts" : "polled");
    report.line("{:.0f} IOPS, {:.1f} MB/s, {} I/Os in {:.2f} s, {} failed", iops, bandwidth / 1e6, latency.count(),
                seconds, failed);
    report.line("latency us: min {:.1f}  mean {:.1f}  p50 {:.1f}  p90 {:.1f}  p99 {:.1f}  p99.9 {:.1f}  p99.99 {:.1f}  "
                "max {:.1f}",
                us(latency.least()), latency.mean() / 1000.0, us(latency.percentile(0.5)), us(latency.percentile(0.9)),
                us(latency.percentile(0.99)), us(latency.percentile(0.999)), us(latency.percentile(0.9999)),
                us(latency.most()));
    if (!error && Interruption::requested()) {
        error = Interruption::error("bench", options.device.name);
    }
    return error ? report.fail(*error) : report.finish();
}

ExitCode bench(Context& context, const BenchOptions& options) {
    Report report{context, "bench"};
    const Interruption interruption;
    if (options.write) {
        if (const auto allowed = allow_destruction(options.device, options.destructive, "bench --write"); !allowed) {
            return report.fail(allowed.error().error, allowed.error().code);
        }
    }
    nvme::ControllerOptions controller;
    controller.io_queues = static_cast<std::uint16_t>(options.queues);
    controller.interrupt_vectors = vectors_for(options.interrupt, options.queues);
    auto session = open_session(context, report, options.device, controller);
    if (!session) {
        return report.fail(session.error().error, session.error().code);
    }
    auto target = choose_namespace(*session, options.device);
    if (!target) {
        return report.fail(target.error().error, target.error().code);
    }
    const auto range = choose_range(*target, options.lba, options.blocks);
    if (!range) {
        return report.fail(range.error().error, range.error().code);
    }
    const std::uint32_t block_size = target->block_size();
    if (options.bytes == 0 || options.bytes % block_size != 0 || options.bytes / block_size > range->count) {
        return usage(
            report, options,
            fmt::format("--size has to be a multiple of the block, {} bytes, and lie in the range.", block_size));
    }
    if (const auto limit = session->controller->max_transfer(); limit && options.bytes > limit->value()) {
        return usage(report, options,
                     fmt::format("--size is above what one command may move, {} bytes.", limit->value()));
    }
    const std::uint32_t entries = session->controller->capabilities().max_queue_entries();
    if (options.depth + 1 > entries) {
        return usage(report, options, fmt::format("--depth may be {} at most on this controller.", entries - 1));
    }
    if (options.queues > session->controller->queue_count()) {
        return usage(report, options,
                     fmt::format("there can be {} queues: {}.", session->controller->queue_count(),
                                 session->controller->queue_count_reason()));
    }
    if (options.interrupt && session->controller->interrupt_vectors() < options.queues + 1) {
        return report.fail(
            fail(ENOTSUP, "wait for interrupts", options.device.name,
                 fmt::format("There are {} interrupt vectors and {} are needed: use fewer queues, or poll.",
                             session->controller->interrupt_vectors(), options.queues + 1))
                .value(),
            ExitCode::precondition);
    }
    BenchLoad load;
    load.depth = options.depth;
    load.blocks = static_cast<std::uint32_t>(options.bytes / block_size);
    load.range = *range;
    load.write = options.write;
    load.sequential = options.sequential;
    load.interrupt = options.interrupt;
    load.seed = options.seed;
    Workers workers;
    for (unsigned i = 0; i < options.queues; ++i) {
        auto worker = BenchWorker::create(context, *session, *target, load, i, options.timeout_seconds);
        if (!worker) {
            return report.fail(worker.error().error, worker.error().code);
        }
        workers.push_back(std::move(*worker));
    }
    const auto seconds = run_workers(context, workers, options);
    return seconds ? conclude(report, workers, options, load, *seconds) : report.fail(seconds.error());
}

} // namespace

void add_bench(CLI::App& app, Context& context, Action& action) {
    auto options = std::make_shared<BenchOptions>();
    auto* command = app.add_subcommand("bench", "Measure I/Os a second, bandwidth and latency");
    add_device_options(*command, options->device);
    add_namespace_option(*command, options->device);
    command->add_option("--depth", options->depth, "Commands in flight on each queue")
        ->capture_default_str()
        ->check(CLI::Range(1U, 65535U))
        ->type_name("N");
    command->add_option("--queues", options->queues, "I/O queues, a thread each")
        ->capture_default_str()
        ->check(CLI::Range(1U, 1024U))
        ->type_name("N");
    command->add_option("--size", options->bytes, "Bytes of one command, with K or M")
        ->capture_default_str()
        ->transform(CLI::AsSizeValue(false))
        ->type_name("BYTES");
    command->add_option("--seconds", options->seconds, "How long")
        ->capture_default_str()
        ->check(CLI::Range(0.01, 86400.0))
        ->type_name("S");
    command->add_option("--timeout", options->timeout_seconds, "Seconds until a command counts as lost")
        ->capture_default_str()
        ->check(CLI::Range(0.001, 86400.0))
        ->type_name("SECONDS");
    command->add_option("--lba", options->lba, "First block of the range")->capture_default_str()->type_name("LBA");
    command->add_option("--blocks", options->blocks, "Blocks of the range; 0: to the end")
        ->capture_default_str()
        ->type_name("N");
    command->add_option("--seed", options->seed, "Of the random order")->capture_default_str()->type_name("N");
    command->add_flag("--write", options->write, "Write instead of reading (destroys what was there)");
    command->add_flag("--sequential", options->sequential, "Ascending instead of random; each queue by itself");
    command->add_flag("--interrupt", options->interrupt, "Wait for interrupts instead of polling");
    add_destructive_flag(*command, options->destructive);
    add_json_flag(*command, context);
    command->callback(
        [&context, &action, options] { action = [&context, options] { return bench(context, *options); }; });
}

} // namespace upcie::cli
