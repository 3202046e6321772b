// SPDX-License-Identifier: BSD-3-Clause
// A trace as anybody may hand it over: read without harm, and what was understood is written and read again the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trace_reader.hpp"
#include "trace_writer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto trace = upcie::rm::parse_trace(std::string_view{reinterpret_cast<const char*>(data), size});
    std::string text;
    for (const auto& header : trace.headers) {
        upcie::rm::append_line(text, header);
    }
    for (const auto& record : trace.records) {
        upcie::rm::append_line(text, record);
    }
    const auto again = upcie::rm::parse_trace(std::string_view{text});
    // Several runs may be put in another order, and a gap stays one.
    if (again.headers != trace.headers || again.records.size() != trace.records.size() ||
        (trace.headers.size() < 2 && again.records != trace.records)) {
        std::abort();
    }
    return 0;
}
