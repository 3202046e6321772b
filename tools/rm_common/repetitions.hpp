// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// Tells what is in a trace's file twice, for instance where two copies of it were put together: counting it again
/// would be wrong. A run and a number make a record; a run makes a header. Threads: one at a time.
class Repetitions {
  public:
    /// Whether this is the first header of its run.
    [[nodiscard]] bool header_is_new(std::uint64_t run_number, std::uint64_t line) {
        Run& run = runs_[run_number];
        if (!std::exchange(run.has_header, true)) {
            return true;
        }
        run.repeated_header = true;
        run.first_repeated_line = run.first_repeated_line != 0 ? run.first_repeated_line : line;
        return false;
    }
    /// Whether no record of this run has had its number yet. 0 is the number of none.
    [[nodiscard]] bool record_is_new(const Stamp& stamp, std::uint64_t line) {
        Run& run = runs_[stamp.run];
        if (stamp.sequence == 0 || run.numbers.add(stamp.sequence)) {
            return true;
        }
        if (run.repeated++ == 0) {
            run.first_repeated = stamp.sequence;
            run.first_repeated_line = run.first_repeated_line != 0 ? run.first_repeated_line : line;
        }
        return false;
    }
    /// Adds one problem for each run that has repetitions.
    void tell(std::vector<TraceProblem>& problems) const {
        for (const auto& [number, run] : runs_) {
            if (run.repeated != 0) {
                problems.push_back(
                    {run.first_repeated_line,
                     fmt::format("left out: {} records of run {} that are there already, the first number {}{}",
                                 run.repeated, number, run.first_repeated,
                                 run.repeated_header ? "; so is its header" : "")});
            } else if (run.repeated_header) {
                problems.push_back({run.first_repeated_line,
                                    fmt::format("left out: the header of run {}, which is there already", number)});
            }
        }
    }

  private:
    /// The numbers that a run has had, small as long as they come in order.
    class Numbers {
      public:
        /// False when it is there already.
        bool add(std::uint64_t number) {
            if (number <= all_up_to_ || !beyond_.insert(number).second) {
                return false;
            }
            for (auto next = beyond_.begin(); next != beyond_.end() && *next == all_up_to_ + 1;
                 next = beyond_.erase(next)) {
                ++all_up_to_;
            }
            return true;
        }

      private:
        std::uint64_t all_up_to_ = 0;
        std::set<std::uint64_t> beyond_;
    };
    struct Run {
        bool has_header = false;
        bool repeated_header = false;
        Numbers numbers;
        std::uint64_t repeated = 0;            ///< records that were left out
        std::uint64_t first_repeated = 0;      ///< the number of the first
        std::uint64_t first_repeated_line = 0; ///< 0: none
    };
    std::map<std::uint64_t, Run> runs_;
};

} // namespace upcie::rm
