// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <csignal>
#include <iostream>
#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../standard_descriptors.hpp"
#include "host.hpp"
#include "proc_status.hpp"
#include "tracer.hpp"

namespace {

using namespace upcie;

// As env(1) and timeout(1) have them.
constexpr int usage_status = 2;
constexpr int tracer_failed = 125;
constexpr int not_executable = 126;
constexpr int not_found = 127;

struct Arguments {
    std::string output;
    bool append = false;
    bool memory = false;
    bool every_call = false;
    bool statistics = false;
    bool quiet = false;
    pid_t pid = 0;
    std::string driver;
    std::vector<std::string> nodes;
    std::vector<std::string> command;
};

void complain(const Error& error) {
    std::cerr << "upcie_rm_trace: " << error.message() << '\n';
}

std::uint64_t nanoseconds(const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_usec) * 1000U;
}

std::uint64_t processor_time(int whose) {
    rusage used{};
    return ::getrusage(whose, &used) == 0 ? nanoseconds(used.ru_utime) + nanoseconds(used.ru_stime) : 0;
}

void print_summary(const rm::SummaryRecord& summary, const Arguments& arguments, std::uint64_t records) {
    std::uint64_t all = 0;
    for (const auto& one : summary.stops) {
        all += one.stops;
    }
    const double share = summary.elapsed_ns != 0
                             ? 100.0 * static_cast<double>(summary.tracer_ns) / static_cast<double>(summary.elapsed_ns)
                             : 0;
    std::cerr << fmt::format("upcie_rm_trace: {} records in {}; {} stops, tracer {:.1f} % of {:.3f} s\n", records,
                             arguments.output, all, share, static_cast<double>(summary.elapsed_ns) * 1e-9);
    if (arguments.statistics) {
        for (const auto& one : summary.stops) {
            std::cerr << fmt::format("{:>12}  {}\n", one.stops, one.kind);
        }
    }
}

/// What to do about a trace that could not be written to its end.
std::string_view remedy(int error) {
    switch (error) {
    case EPIPE:
        return "what read the pipe has gone; let it read to the end, or name a file with -o, and run it again";
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
        return "make room, and run it again";
    default:
        return "name another file with -o, and run it again";
    }
}

/// A write that fails is an error and no reason to end, as StopRequests has it later on. The program that is started
/// between gets these signals as they were.
class WriteSignals {
  public:
    WriteSignals() noexcept {
        struct sigaction ignoring {};
        ignoring.sa_handler = SIG_IGN;
        ::sigemptyset(&ignoring.sa_mask);
        ::sigaction(SIGPIPE, &ignoring, &pipe_);
        ::sigaction(SIGXFSZ, &ignoring, &size_);
    }
    WriteSignals(const WriteSignals&) = delete;
    WriteSignals& operator=(const WriteSignals&) = delete;
    ~WriteSignals() {
        ::sigaction(SIGPIPE, &pipe_, nullptr);
        ::sigaction(SIGXFSZ, &size_, nullptr);
    }

  private:
    struct sigaction pipe_ {};
    struct sigaction size_ {};
};

int trace(const Arguments& arguments) {
    std::vector<rm::PretendedNode> pretended;
    for (const std::string& one : arguments.nodes) {
        auto node = rm::parse_pretended_node(one);
        if (!node) {
            complain(node.error());
            return usage_status;
        }
        pretended.push_back(std::move(*node));
    }
    rm::TraceHeader header = rm::header_of_this_machine();
    if (!arguments.driver.empty()) {
        header.driver = arguments.driver;
    }
    rm::TracerOptions options;
    if (!header.driver.empty()) {
        const auto version = rm::parse_driver_version(header.driver);
        if (!version && !arguments.driver.empty()) {
            complain(version.error());
            return usage_status;
        }
        options.driver = version.value_or(rm::DriverVersion{});
    }
    options.command = arguments.command;
    options.pid = arguments.pid;
    options.every_call = arguments.every_call;
    options.memory = arguments.memory;
    const bool attached = arguments.command.empty();
    header.mode = attached ? "attach" : arguments.every_call ? "every-call" : "filter";
    header.command = attached ? rm::command_line_of(arguments.pid) : arguments.command;
    header.memory = arguments.memory;

    auto sink = rm::Sink::open(os::real_system(), arguments.output, arguments.append);
    if (!sink) {
        complain(sink.error());
        return tracer_failed;
    }
    {
        const WriteSignals ignored;
        sink->write(header);
    }
    rm::Nodes nodes{std::move(pretended)};
    rm::Tracer tracer{os::real_system(), nodes, *sink, std::move(options)};
    const auto status = tracer.run();
    if (!status) {
        complain(status.error());
        const bool of_exec = status.error().operation == "execvp";
        return of_exec && status.error().is(ENOENT) ? not_found : of_exec ? not_executable : tracer_failed;
    }
    rm::Record last;
    rm::SummaryRecord summary;
    summary.stops = tracer.stops();
    summary.tracer_ns = processor_time(RUSAGE_SELF);
    summary.program_ns = processor_time(RUSAGE_CHILDREN);
    last.stamp.time_in = last.stamp.time_out = rm::monotonic_now();
    last.stamp.entered = sink->next_sequence();
    summary.elapsed_ns = last.stamp.time_out - header.started_monotonic;
    summary.lost = sink->lost();
    last.body = summary;
    const std::uint64_t records = sink->emit(std::move(last));
    sink->flush();
    if (!arguments.quiet) {
        print_summary(summary, arguments, records);
    }
    if (sink->lost() != 0) {
        complain(
            fail(sink->first_error(), "write", arguments.output,
                 fmt::format("{} records are missing from the trace: {}.", sink->lost(), remedy(sink->first_error())))
                .value());
        return tracer_failed;
    }
    return *status;
}

} // namespace

int main(int argument_count, char** argument_values) {
    if (!hold_standard_descriptors()) {
        return tracer_failed;
    }
    Arguments arguments;
    CLI::App app{
        "Records what a program asks of NVIDIA's driver: each ioctl with all its parameters, before and after.\n"
        "The exit status is the program's; 128 + signal when one killed it; 125 when tracing failed, 126 and 127 "
        "when the program could not be run or was not found."};
    app.set_version_flag("--version", "upcie_rm_trace " UPCIE_VERSION);
    app.add_option("-o,--output", arguments.output, "Write the trace there (rm-trace.PID.jsonl)");
    app.add_flag("--append", arguments.append, "Add to the file instead of replacing it; several tracers may at once");
    app.add_flag(
        "--memory", arguments.memory,
        "Record what changes in memory mapped through the nodes (rings, push buffers), at each of their calls");
    app.add_flag(
        "--every-call", arguments.every_call,
        "Stop at every system call instead of by a filter: slow, and sees calls that a filter of the program's "
        "own answers");
    app.add_flag("--stats", arguments.statistics, "At the end, print the number of stops by kind");
    app.add_flag("-q,--quiet", arguments.quiet, "Print nothing at the end");
    app.add_option("--driver", arguments.driver, "Version whose structures are meant, where no driver is loaded")
        ->type_name("VERSION");
    app.add_option("--node", arguments.nodes, "Let this file count as a node; KIND is control, device or uvm")
        ->type_name("PATH=KIND")
        ->take_all()
        ->expected(1);
    auto* const pid =
        app.add_option("-p,--pid", arguments.pid, "Attach to a running process instead; SIGINT or SIGTERM lets it go")
            ->check(CLI::Range(pid_t{1}, std::numeric_limits<pid_t>::max()));
    auto* const command = app.add_option("program", arguments.command, "Program and its arguments, after --");
    pid->excludes(command);
    app.positionals_at_end();
    try {
        app.parse(argument_count, argument_values);
        if (arguments.command.empty() && arguments.pid == 0) {
            throw CLI::RequiredError{"program, or -p PID"};
        }
    } catch (const CLI::ParseError& error) {
        const int status = app.exit(error);
        return status == 0 ? 0 : usage_status;
    }
    if (arguments.output.empty()) {
        arguments.output = fmt::format("rm-trace.{}.jsonl", ::getpid());
    }
    return trace(arguments);
}
