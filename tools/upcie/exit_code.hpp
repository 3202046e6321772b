// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace upcie::cli {

/// What every subcommand ends with; documented in upcie(1) and docs/command-line.md.
enum class ExitCode : int {
    ok = 0,
    failed = 1,       ///< the operation was begun and failed
    usage = 2,        ///< the command line was wrong; nothing was touched
    bad_data = 3,     ///< the operation worked and the data is not what it should be
    precondition = 4, ///< it could not be begun: something that has to be there first is missing
};

} // namespace upcie::cli
