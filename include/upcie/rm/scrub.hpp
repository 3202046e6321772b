// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <upcie/rm/trace.hpp>

namespace upcie::rm {

struct ScrubOptions {
    /// Keep what came back from controls that no public header describes. Nobody can say what is in there.
    bool keep_opaque = false;
    /// Further texts to remove wherever they stand: a host name, a user's name.
    std::vector<std::string> also;
};

/// What was removed, as numbers.
struct ScrubReport {
    std::uint64_t pointers = 0;    ///< words and fields
    std::uint64_t identifiers = 0; ///< distinct GPU, MIG and fabric identifiers
    std::uint64_t serials = 0;     ///< replies that carry serial numbers or certificates
    std::uint64_t opaque = 0;      ///< replies of controls without a public description
    std::uint64_t texts = 0;       ///< user names in paths, names of machines, what `also` says
};

/// Takes out of a trace what tells about one machine or one person, in place: addresses that the system chose for the
/// process, GPU UUIDs (as text and as bytes), serial numbers, user names in paths, user@host, opaque replies. The same
/// value becomes the same placeholder everywhere and distances between addresses of one region stay, so the structure
/// remains; sizes never change. Scrubbing a scrubbed trace changes nothing. Handles, addresses that drivers choose by
/// rule (below 2^44), PCI addresses and process ids stay. Threads: any.
ScrubReport scrub(Trace& trace, const ScrubOptions& options = {});

} // namespace upcie::rm
