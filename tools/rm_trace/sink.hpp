// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <upcie/os/fd.hpp>
#include <upcie/result.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t monotonic_now() noexcept;

/// Numbers records and writes them to the trace, a line each by one write(2) in append mode, so that a line of another
/// tracer never lands inside. emit() only queues: the thread that made the record is set going first, then flush().
///
/// Threads: one.
class Sink {
  public:
    /// Error: what open says.
    [[nodiscard]] static Result<Sink> open(os::System& system, const std::string& path, bool append);
    /// For tests: records are kept in `kept` and never written.
    Sink(std::uint64_t run, std::vector<Record>& kept) noexcept : run_{run}, kept_{&kept} {}

    void write(TraceHeader header);
    /// The number that the next record will have.
    [[nodiscard]] std::uint64_t next_sequence() const noexcept { return next_; }
    /// Queues `record`; its stamp lacks run and sequence, which are filled here. Answers the sequence number.
    std::uint64_t emit(Record record);
    void flush();
    [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
    [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
    /// The first error of a write: code 0 when there was none.
    [[nodiscard]] int first_error() const noexcept { return first_error_; }

  private:
    Sink(os::Fd file, std::uint64_t run) noexcept : file_{std::move(file)}, run_{run} {}
    [[nodiscard]] bool write_line();

    os::Fd file_;
    std::uint64_t run_ = 0;
    std::uint64_t next_ = 1;
    std::uint64_t lost_ = 0;
    int first_error_ = 0;
    std::vector<Record> queue_;
    std::string line_;
    std::vector<Record>* kept_ = nullptr;
};

} // namespace upcie::rm
