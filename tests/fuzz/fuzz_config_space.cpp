// SPDX-License-Identifier: BSD-3-Clause
// Capability chains of a function's config space: a device may say anything, loops included.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <upcie/pci/config_space.hpp>

#include "support/fake_function.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    upcie::test::ConfigOnlyFunction function;
    std::copy_n(data, std::min(size, function.config.size()), function.config.begin());
    function.config_size = size > 256 ? 4096 : 256;
    if (const auto found = upcie::pci::capabilities(function); found && found->size() > 64) {
        std::abort(); // more than fit behind each other: an offset was visited twice
    }
    if (const auto found = upcie::pci::extended_capabilities(function); found && found->size() > 960) {
        std::abort();
    }
    (void)upcie::pci::msix_layout(function);
    (void)upcie::pci::has_function_level_reset(function);
    return 0;
}
