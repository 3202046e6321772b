// SPDX-License-Identifier: BSD-3-Clause
// "sim:key=value,..." with its fault script: typed by people, and taken from files.
#include <cstdint>
#include <string_view>

#include <upcie/sim/options.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    if (const auto options = upcie::sim::Options::parse(text)) {
        (void)options->check();
    }
    (void)upcie::sim::FaultScript::parse(text);
    return 0;
}
