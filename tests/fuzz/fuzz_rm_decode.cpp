// SPDX-License-Identifier: BSD-3-Clause
// Traces that somebody else wrote: whatever a line holds, everything that reads a trace answers or says why not. The
// input is the text of a trace; a mutator of our own changes single bytes of payloads, since most changes of JSON are
// only errors of JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>
#include <upcie/rm/contract.hpp>
#include <upcie/rm/difference.hpp>
#include <upcie/rm/picture.hpp>
#include <upcie/rm/scrub.hpp>
#include <upcie/rm/summary.hpp>

#include "commands.hpp"
#include "trace_reader.hpp"

namespace {

using namespace upcie::rm;

void read_all_ways(std::string_view text) {
    Trace trace = parse_trace(text);
    const Summary summary = summarise(trace);
    std::uint64_t counted = 0;
    for (const auto& [number, tally] : summary.escapes) {
        counted += tally.calls;
    }
    for (const auto& [number, tally] : summary.uvm) {
        counted += tally.calls;
    }
    for (const auto& [request, tally] : summary.others) {
        counted += tally.calls;
    }
    if (counted != summary.ioctls) {
        std::abort(); // a call was lost, or counted twice
    }
    (void)tool::timeline_text(trace);
    (void)tool::summary_text(trace, summary);
    (void)tool::decode_json(trace).dump(-1, ' ', false, tool::Json::error_handler_t::replace);
    const ObjectTree tree = ObjectTree::of(trace);
    (void)tree_text(tree);
    (void)tree_dot(tree);
    (void)tree_svg(tree);
    (void)timeline_html(trace, "fuzz");
    const Contract contract = contract_of({&trace});
    (void)tool::contract_text(contract);
    (void)tool::contract_json(contract);
    if (!compare(trace, trace).same()) {
        std::abort(); // a trace differs from itself
    }
    Trace half = trace;
    half.records.resize(half.records.size() / 2);
    (void)tool::difference_text(compare(trace, half), false);
    scrub(trace);
    Trace again = trace;
    scrub(again);
    if (!(again.records == trace.records)) {
        std::abort(); // scrubbing is not done after scrubbing
    }
}

} // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned int seed) {
    std::string text{reinterpret_cast<const char*>(data), size};
    constexpr std::string_view digits = "0123456789abcdef";
    // Most times: other digits within numbers and payloads. Sometimes: anything.
    if (seed % 8 == 0 || text.empty()) {
        return LLVMFuzzerMutate(data, size, most);
    }
    std::uint64_t random = std::uint64_t{seed} * 0x9e3779b97f4a7c15 + 1;
    for (unsigned i = 0; i < 1 + seed % 7; ++i) {
        random = random * 6364136223846793005 + 1442695040888963407;
        const std::size_t at = text.find_first_of(digits, (random >> 20) % text.size());
        if (at != std::string::npos) {
            const bool decimal = text[at] <= '9' && (at == 0 || text[at - 1] == ':' || text[at - 1] == ',');
            text[at] = digits[(random >> 50) % (decimal ? 10 : 16)];
        }
    }
    const std::size_t length = std::min(text.size(), most);
    std::memcpy(data, text.data(), length);
    return length;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    read_all_ways(text);
    (void)read_allow_list(text, "fuzz");
    (void)unpack_xz(text, "fuzz");
    return 0;
}
